"""Merges model weights on machines that may disappear at any moment.

Each function is a command of the command line; `help(resumerge.run)` describes `run`.

    merge      run, resume, extract_expert, extract_lora, reproduce
    before it  init, plan, explain, methods, compare, search, demo
    after it   status, verify, try_model, push, clean
    downloads  cache_check, cache_repair

They raise `InputError` (nothing was written), `Resumable` and `Interrupted` (the same run can be
resumed) and `DoubtfulNumbers`. Importing this package loads neither torch nor transformers.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

__all__ = [
    "DoubtfulNumbers",
    "InputError",
    "Interrupted",
    "Resumable",
    "cache_check",
    "cache_repair",
    "clean",
    "compare",
    "demo",
    "explain",
    "extract_expert",
    "extract_lora",
    "init",
    "methods",
    "plan",
    "push",
    "reproduce",
    "resume",
    "run",
    "search",
    "status",
    "try_model",
    "verify",
]

if TYPE_CHECKING:
    from resumerge.api import (
        cache_check,
        cache_repair,
        clean,
        compare,
        demo,
        explain,
        extract_expert,
        extract_lora,
        init,
        methods,
        plan,
        push,
        reproduce,
        resume,
        run,
        search,
        status,
        try_model,
        verify,
    )
    from resumerge.errors import DoubtfulNumbers, InputError, Interrupted, Resumable

    __version__: str

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in __all__:
        raise AttributeError(f"module 'resumerge' has no attribute {name!r}")
    from resumerge import api, errors

    if name == "methods":  # the package, which is callable like the function of this name
        return sys.modules["resumerge.methods"]
    return getattr(errors if hasattr(errors, name) else api, name)


def __dir__() -> list[str]:
    """Return the public names, without the subpackages."""
    return sorted([*__all__, "__version__", "__doc__", "__file__", "__name__", "__path__"])


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("resumerge")
    except metadata.PackageNotFoundError:  # the source tree is not installed
        return "0+unknown"
