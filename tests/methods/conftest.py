"""Small blocks, so that small tensors have several."""

import pytest
from tensor_sets import BLOCK


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resumerge.tensors.target.BLOCK_ELEMENTS", BLOCK)
