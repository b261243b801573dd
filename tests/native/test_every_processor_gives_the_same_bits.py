"""Promise: a kernel returns and writes the same bits on every processor.

`hashes.txt` has what kernels make of random arguments, as a hash of each function. It is the same
with all instruction sets of x86-64, and on aarch64, compiled by GCC. Where a kernel's bits change,
or arguments are drawn in another way, it is made anew, in tests/::

    python -m fuzz.kernel_calls.hashes --calls 20 > fuzz/kernel_calls/hashes.txt
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from both_ways import SETS, Use
from fuzz.kernel_calls import hashes

from resumerge.native import F32, Vector, _kernels

TESTS = Path(__file__).parents[1]
RECORDED = dict(
    line.split() for line in (TESTS / "fuzz/kernel_calls/hashes.txt").read_text().splitlines()
)


def test_each_function_has_the_hash_on_record() -> None:
    found = dict(hashes.hashes("0", 20))
    assert found.pop("(contents)") == RECORDED["(contents)"], "the arguments are others"
    assert {name: RECORDED.get(name) for name in found} == found
    assert found.keys() | {"(contents)"} == RECORDED.keys()


@pytest.mark.skipif(len(SETS) == 1, reason="this processor has one instruction set")
def test_instruction_sets_that_differ_are_found(
    monkeypatch: pytest.MonkeyPatch, use_kernels: Use
) -> None:
    used: list[str] = []
    monkeypatch.setattr(_kernels, "use", used.append)
    monkeypatch.setattr(hashes, "CALLS", [(lambda: used[-1] == SETS[0], lambda given: [])])
    with pytest.raises(AssertionError, match=f"FOUND by call 0 of .*{SETS[0]} and "):
        list(hashes.hashes("0", 1))


@pytest.mark.parametrize("factor", [1e30, -1e30])
@pytest.mark.parametrize("length", [1, 7, 2000])
def test_a_product_that_is_not_asked_for_does_not_overflow(
    compiled: str, length: int, factor: float
) -> None:
    """Elements that two models changed do not get the factor of those that one changed."""
    base = Vector(np.zeros(length, np.float32))
    changed = np.full(length, 1e20, np.float32)
    out = Vector(np.zeros(length, np.float32), F32)
    both = [Vector(changed).less(base), Vector(changed).less(base)]
    assert not _kernels.add_mean_change(base, both, [factor, factor], 0.0, out)
    assert (out.data == np.float32(1e20)).all()
    alone = [Vector(changed).less(base), Vector(base.data).less(base)]
    assert _kernels.add_mean_change(base, alone, [factor, factor], 0.0, out)
