"""A fixture that chooses the kernels that compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from resumerge.native import library


@pytest.fixture
def use_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Compute with ``torch``, or with the kernels compiled for an instruction set."""

    def forget() -> None:
        library.instruction_set.cache_clear()
        library.function.cache_clear()

    def use(name: str) -> None:
        monkeypatch.setenv(library.KERNELS, name)
        forget()

    yield use
    monkeypatch.undo()
    forget()
