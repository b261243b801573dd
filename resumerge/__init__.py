"""resumerge: merge model weights on machines that may disappear at any moment.

The functions of this package are the commands of the command line. Importing it loads neither torch
nor transformers.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

__all__ = [
    "InputError",
    "Interrupted",
    "Resumable",
    "cache_check",
    "cache_repair",
    "clean",
    "extract_expert",
    "init",
    "plan",
    "push",
    "resume",
    "run",
    "status",
    "verify",
]

if TYPE_CHECKING:
    from resumerge.api import (
        cache_check,
        cache_repair,
        clean,
        extract_expert,
        plan,
        push,
        resume,
        run,
        status,
        verify,
    )
    from resumerge.errors import InputError, Interrupted, Resumable

    __version__: str

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in __all__:
        raise AttributeError(f"module 'resumerge' has no attribute {name!r}")
    from resumerge import api, errors

    return getattr(errors if hasattr(errors, name) else api, name)


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("resumerge")
    except metadata.PackageNotFoundError:  # a source tree that is not installed
        return "0+unknown"
