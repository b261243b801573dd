"""The threads of NumPy's BLAS: by default one for each core, which wait for each other busily."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MAPS = Path("/proc/self/maps")
_NAMES = (
    "scipy_openblas_{}_num_threads64_",
    "openblas_{}_num_threads64_",
    "openblas_{}_num_threads",
)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Have OpenBLAS compute in the thread that calls it, until the end of the block.

    Threads that compare tensors are as many as there are cores already, and what depends on no
    number of threads has the same bits on every machine of a kind. Where NumPy has another BLAS,
    nothing changes.
    """
    libraries = [(library, name) for library in _loaded() for name in _NAMES if _has(library, name)]
    before = [getattr(library, name.format("get"))() for library, name in libraries]
    for library, name in libraries:
        getattr(library, name.format("set"))(1)
    try:
        yield
    finally:
        for (library, name), threads in zip(libraries, before):
            getattr(library, name.format("set"))(threads)


def _loaded() -> list[ctypes.CDLL]:
    """Return the OpenBLAS libraries that this process has loaded."""
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:
        return []
    paths = dict.fromkeys(line.split(maxsplit=5)[-1] for line in lines if "openblas" in line)
    return [ctypes.CDLL(path) for path in paths]


def _has(library: ctypes.CDLL, name: str) -> bool:
    return hasattr(library, name.format("set")) and hasattr(library, name.format("get"))
