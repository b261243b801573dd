"""Promise: a quantised weight travels to another process, and is described in the ledger."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from quantised_files import exact, numbers, written
from quantised_models import SCHEMES

from resumerge.tensors import stored_in


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_sent_computes_the_same(scheme: str, tmp_path: Path) -> None:
    stored, _, config = SCHEMES[scheme](40, 192, 7)
    source = written(tmp_path, {f"m.{key}": value for key, value in stored.items()}, config)
    tensor = exact(source, "m.weight")
    sent = pickle.loads(pickle.dumps(tensor))
    assert np.array_equal(numbers(source, sent), numbers(source, tensor))
    assert sent.as_json() == json.loads(json.dumps(tensor.as_json()))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_read_ahead_is_what_is_read(scheme: str, tmp_path: Path) -> None:
    """Downloads, the page cache and comparisons rely on the ranges that a tensor names."""
    stored, _, config = SCHEMES[scheme](64, 192, 8)
    source = written(tmp_path, {f"m.{key}": value for key, value in stored.items()}, config)
    tensor = exact(source, "m.weight")
    named = {leaf.name for leaf in stored_in(tensor)}
    for start, stop in ((0, tensor.numel), (1000, 1500), (5, 6)):
        reads = [*tensor.reads(start, stop)]
        for node in tensor.nodes():
            reads += node.reads_once()
        assert {leaf.name for leaf, _, _ in reads} == named
        assert all(0 <= first <= last <= leaf.numel for leaf, first, last in reads)
    passed = [*tensor.no_longer_read(0, tensor.numel)]
    assert {leaf.name for leaf, _, _ in passed} == named
