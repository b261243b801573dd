"""NumPy, imported when something of it is first used: to plan, or to copy, takes nothing of it.

To be imported in its place, as ``np``, where a module is loaded by commands that compute nothing.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    import numpy

    found = getattr(numpy, name)
    globals()[name] = found
    return found
