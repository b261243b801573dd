"""The threads of NumPy's BLAS. By default, it has one per core, and they wait in busy loops."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from resumerge.host.system import kernel_file

_NAMES = (
    "scipy_openblas_{}_num_threads64_",
    "openblas_{}_num_threads64_",
    "openblas_{}_num_threads",
)


class _OneThread:
    """The number of active `one_blas_thread` blocks. The last one restores BLAS's own setting."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks = 0
        self._before: list[tuple[ctypes.CDLL, str, int]] = []

    def begin(self) -> None:
        with self._lock:
            self._blocks += 1
            if self._blocks == 1:
                self._before = [
                    (library, name, getattr(library, name.format("get"))())
                    for library in _loaded()
                    for name in _NAMES
                    if _has(library, name)
                ]
                for library, name, _ in self._before:
                    getattr(library, name.format("set"))(1)

    def end(self) -> None:
        with self._lock:
            self._blocks -= 1
            if not self._blocks:
                for library, name, threads in self._before:
                    getattr(library, name.format("set"))(threads)


_one_thread = _OneThread()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Make OpenBLAS compute in the calling thread, until the end of the block.

    A merge already has one computing thread per core, so more threads would not be faster. With one
    thread, results also have the same bits on every machine of a kind, independent of its number of
    cores. Several threads may be in such blocks at the same time. If NumPy uses another BLAS, it is
    not changed.
    """
    _one_thread.begin()
    try:
        yield
    finally:
        _one_thread.end()


def _loaded() -> list[ctypes.CDLL]:
    """Return the OpenBLAS libraries that this process has loaded; without /proc, only NumPy's."""
    try:
        lines = kernel_file("/proc/self/maps").read_text().splitlines()
    except OSError:
        paths = [str(path) for path in _in_wheel()]
    else:
        paths = [line.split(maxsplit=5)[-1] for line in lines if "openblas" in line]
    return [ctypes.CDLL(path) for path in dict.fromkeys(paths)]


def _in_wheel() -> Iterator[Path]:
    """Yield the paths of the OpenBLAS libraries in NumPy's wheel, which NumPy itself loads."""
    numpy = find_spec("numpy")
    for package in (numpy and numpy.submodule_search_locations) or ():
        for folder in (Path(package, ".dylibs"), Path(f"{package}.libs")):
            yield from folder.glob("*openblas*")


def _has(library: ctypes.CDLL, name: str) -> bool:
    return hasattr(library, name.format("set")) and hasattr(library, name.format("get"))
