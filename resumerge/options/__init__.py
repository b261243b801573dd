"""The options of a merge. Each option is declared once, as a field of `OptionFields`.

From that declaration come the option of the command line (``cli/parsing/arguments.py``), the
parameter of the Python function and its documentation (``signature.py``), the check of its value,
what a run's ledger keeps and a resumed run inherits, and the words of the command that resumes it.

To add an option, add a field to `OptionFields` (``fields.py``). For type checkers, add its name to
the `TypedDict` of the functions that take it (``call_options.py``); a test compares the two.
``options.py`` has `Options`, which a command is given; ``types.py`` has the types of values,
``cluster.py`` those of a cluster's, ``declaration.py`` what is said of an option beside its type.
"""

from resumerge.options.declaration import Kept, Option
from resumerge.options.fields import MIRROR_WAIT, SEED, SHARD_SIZE
from resumerge.options.options import Options, are_kept_options, declared

__all__ = [
    "MIRROR_WAIT",
    "SEED",
    "SHARD_SIZE",
    "Kept",
    "Option",
    "Options",
    "are_kept_options",
    "declared",
]
