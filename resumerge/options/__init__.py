"""The options of a merge. Each option is declared once, as a field of `OptionFields`.

The declaration is the source of the command line's option (`cli/parsing/arguments.py`), of the
Python function's parameter and its documentation (`signature.py`), and of the check of the value.
It also decides whether a run's ledger keeps the value, whether a resumed run inherits it, and
whether the command that resumes the run repeats it.

To add an option, add a field to `OptionFields` (`fields.py`). For type checkers, add its name to
the `TypedDict` of the functions that take it (`call_options.py`); a test compares the two.
`options.py` has `Options`, the checked values that a command works with. `declaration.py` has the
other facts that a declaration states beside the type. `types.py` has the types of values, and
`cluster.py` the types for the options of a Ray cluster. `in_python.py` puts a function's arguments
in place of options in the messages for users of Python.
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
