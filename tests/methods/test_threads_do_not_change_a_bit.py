"""However many threads share the blocks of a tensor, the result is the same to the last bit."""

from pathlib import Path

import numpy as np
import pytest
from array_merges import example, inputs, merged

from resumerge.methods import METHODS


@pytest.mark.parametrize("method", METHODS)
def test_threads_change_no_bit(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resumerge.tensors.target.BLOCK_ELEMENTS", 100)
    random = np.random.default_rng(0)
    base, a, b = ({"x": random.standard_normal((60, 20)).astype(np.float32)} for _ in range(3))
    text = example(method)
    models = inputs(text, a=a, b=b, base=base)
    one = merged(tmp_path / "one", text, models, threads=1)
    many = merged(tmp_path / "many", text, models, threads=4)
    assert one["x"].tobytes() == many["x"].tobytes()
