"""resumerge: merge model weights on machines that cannot be trusted.

The commands of the command line as functions; importing this loads neither torch nor transformers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = ["cache_check", "cache_repair", "plan", "resume", "run", "status", "verify"]

if TYPE_CHECKING:
    from resumerge.api import cache_check, cache_repair, plan, resume, run, status, verify


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'resumerge' has no attribute {name!r}")
    from resumerge import api

    return getattr(api, name)
