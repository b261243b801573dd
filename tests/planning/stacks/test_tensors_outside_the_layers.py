"""Promise: layers are not sliced where tensors outside have a part for each of them."""

from __future__ import annotations

import pytest
from made_up_plans import llama, plan, tensor

from resumerge.errors import InputError

WHAT = "The layers of a cannot be sliced: tensors outside them have a part for each layer"


def merged(*ranges: tuple[int, int], outside: str = "model.layer_scales") -> None:
    """Plan a stack of these ranges of a model's four layers."""
    sources = "".join(
        f"  - sources: [{{model: a, layer_range: [{first}, {last}]}}]\n" for first, last in ranges
    )
    model = llama("a", 4, others=[tensor(outside, (4, 8))])
    plan(f"merge_method: passthrough\nslices:\n{sources}", model)


@pytest.mark.parametrize("ranges", [[(0, 4)], [(0, 2), (2, 4)]])
def test_every_layer_in_its_order_is_no_slice(ranges: list[tuple[int, int]]) -> None:
    merged(*ranges)


@pytest.mark.parametrize("ranges", [[(0, 3)], [(1, 4)], [(2, 4), (0, 2)], [(0, 4), (3, 4)]])
def test_fewer_more_or_moved_layers_are_refused(ranges: list[tuple[int, int]]) -> None:
    with pytest.raises(InputError) as refused:
        merged(*ranges)
    [problem] = refused.value.problems
    assert problem.what == WHAT
    assert problem.found == "model.layer_scales, with a row for each of the 4 layers"
    merged(*ranges, outside="model.scales.weight")  # of what it has four is not known
