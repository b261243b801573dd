"""Promise: the bytes of a quantised weight do not depend on the ranges that are read."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import evaluation, read

from resumerge.quantisation import OUTPUTS
from resumerge.tensors import Quantised, Stored
from resumerge.tensors.quantised.form import Form

FORMS = [scheme.layout.form for scheme in OUTPUTS.values()]


class Numbers:
    """A file of one tensor in float32, whose numbers follow from their places."""

    def __init__(self, tensor: Stored) -> None:
        draw = np.random.default_rng(tensor.numel)
        self._data = draw.standard_normal(tensor.numel).astype(np.float32).tobytes()

    def descriptor(self, tensor: Any) -> None:
        return None

    def fill(self, tensor: Any, offset: int, buffer: memoryview) -> None:
        buffer[:] = self._data[offset : offset + len(buffer)]


@st.composite
def weights(draw: st.DrawFn) -> Quantised:
    """Draw a weight of blocks that may be cut at the edges; a few rows are read at once."""
    form = draw(st.sampled_from(FORMS))
    block = draw(st.integers(1, 5)), 2 * draw(st.integers(1, 5))
    shape = draw(st.integers(1, 17)), 2 * draw(st.integers(1, 9))
    tensor = Quantised.of("w", Stored("w", "F32", shape, "f", 0), form, block, b"describe")
    at_once = block[0] * draw(st.integers(1, 3))
    return Quantised(
        name="w",
        dtype="U8",
        shape=tensor.shape,
        weight=tensor.weight,
        form=form,
        block=block,
        rows_at_once=at_once,
        described=tensor.described,
    )


@given(weights(), st.data())
def test_any_range_has_the_bytes_of_the_whole(tensor: Quantised, data: st.DataObject) -> None:
    """The order of the ranges does not matter, nor whether values are held between them."""
    stored = tensor.weight
    assert isinstance(stored, Stored)
    files = Numbers(stored)
    whole = read(evaluation(files), tensor)
    cuts = data.draw(st.lists(st.integers(0, tensor.numel), max_size=4))
    ends = [0, *sorted(cuts), tensor.numel]
    ranges = data.draw(st.permutations([*pairwise(ends)]))
    for limit in (0, 1 << 20):
        with_ = evaluation(files, limit)
        found = {(start, stop): read(with_, tensor, start, stop) for start, stop in ranges}
        assert all(part == whole[start:stop] for (start, stop), part in found.items())
    assert read(evaluation(files), pickle.loads(pickle.dumps(tensor))) == whole


@given(weights(), st.data())
def test_what_codes_are_computed_from_is_told(tensor: Quantised, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, tensor.code_bytes - 1))
    stop = data.draw(st.integers(start + 1, tensor.code_bytes))
    [(leaf, first, last)] = tensor.reads(start, stop)
    piece = tensor.rows_at_once * tensor.columns
    assert first % piece == 0 and (last % piece == 0 or last == leaf.numel)
    assert first <= start * tensor.form.code.per_byte < last
    assert first < stop * tensor.form.code.per_byte <= last
    assert [*tensor.no_longer_read(0, tensor.numel)] == [(leaf, 0, leaf.numel)]
    assert not [*tensor.no_longer_read(0, tensor.numel - 1)], "the scales may be computed again"


@pytest.mark.parametrize("form", FORMS)
def test_scales_of_zeros_of_the_smallest_and_of_what_is_not_finite(form: Form) -> None:
    maxima = np.array([[0.0, 1e-45, 1.0, 448.0, np.inf, np.nan]], np.float32)
    stored, scales = form.scaled(maxima, form.factor(448.0))
    assert scales.shape == maxima.shape
    assert (scales[0, :4] > 0).all() and np.isfinite(scales[0, :4]).all()
    assert np.isnan(scales[0, 4:]).all()
    assert stored.nbytes == maxima.size * {"F32": 4, "BF16": 2}.get(form.scales, 1)
    assert np.all(maxima[0, 2:4] / scales[0, 2:4] <= form.largest * 1.3)


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan])
def test_a_number_that_is_not_finite_leaves_the_factor_as_it_is(odd: float) -> None:
    """The number changes its own block alone."""
    weight = Stored("w", "F32", (2, 8), "f", 0)
    files, spoilt = Numbers(weight), Numbers(weight)
    tensor = Quantised.of("w", weight, FORMS[-1], (1, 4))
    spoilt._data = np.float32(odd).tobytes() + files._data[4:]
    data = np.frombuffer(files._data, np.float32)
    expected = tensor.form.factor(float(np.abs(data[1:]).max()))
    assert read(evaluation(spoilt), tensor)[-4:] == expected.tobytes()
