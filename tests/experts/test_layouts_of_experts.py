"""Promise: experts are taken apart and put together where they lie, if nothing is lost thereby."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from made_up_plans import llama, tensor

from resumerge.experts.packed_experts import with_packed_experts
from resumerge.experts.separate_experts import with_separate_experts
from resumerge.experts.views import MixtureViews
from resumerge.layout.expert_names import Template
from resumerge.recipe import parse_recipe
from resumerge.sources.types import Source
from resumerge.tensors import Stored

HEAD = "model.layers.0.mlp.experts"
EXPERTS, INNER, HIDDEN = 3, 5, 4
GATE_UP, DOWN = (EXPERTS, 2 * INNER, HIDDEN), (EXPERTS, HIDDEN, INNER)


def model(tensors: Mapping[str, Stored]) -> Source:
    return replace(llama("a"), tensors=dict(tensors))


def packed(gate_up: tuple[int, ...] = GATE_UP, down: tuple[int, ...] = DOWN) -> Source:
    first = tensor(f"{HEAD}.gate_up_proj", gate_up, offset=100)
    second = tensor(f"{HEAD}.down_proj", down, offset=100 + first.nbytes)
    return model({t.name: t for t in (first, second)})


def separate(*, left_out: str = "", odd: str = "", **of_odd: object) -> Source:
    """Experts with matrices of their own.

    Args:
        left_out: what names of matrices begin with, after the head, that are left out.
        odd: such a beginning of matrices that differ, in `of_odd`.
    """
    made = {}
    for expert in range(EXPERTS):
        for name, shape in (("gate", (INNER, HIDDEN)), ("up", (INNER, HIDDEN)), ("down", DOWN[1:])):
            rest, found = f"{expert}.{name}_proj.weight", tensor("", shape)
            if not (left_out and rest.startswith(left_out)):
                changes = of_odd if odd and rest.startswith(odd) else {}
                key = f"{HEAD}.{rest}"
                made[key] = replace(found, name=key, **changes)
    return model(made)


def test_each_matrix_of_a_packed_tensor_is_read_where_it_lies() -> None:
    source, places = with_separate_experts(packed())
    assert list(source.tensors) == [
        *(f"{HEAD}.{n}.{p}_proj.weight" for n in range(EXPERTS) for p in ("gate", "up")),
        *(f"{HEAD}.{n}.down_proj.weight" for n in range(EXPERTS)),
    ]
    offsets = []
    for name, found in source.tensors.items():
        assert isinstance(found, Stored) and found.name == name
        assert found.shape == (DOWN[1:] if "down" in name else (INNER, HIDDEN))
        offsets.append(found.offset)
    assert offsets == [100 + 4 * INNER * HIDDEN * number for number in range(3 * EXPERTS)]
    assert [(place.number, place.count) for place in places.values()] == [(0, 2), (1, 2), (0, 1)]


@pytest.mark.parametrize("count", [EXPERTS - 1, EXPERTS + 1])
def test_packed_tensors_of_other_numbers_of_experts_stay(count: int) -> None:
    whole = packed(down=(count, *DOWN[1:]))
    assert with_separate_experts(whole) == (whole, {})


def test_a_packed_tensor_stays_where_one_of_its_matrices_is_there_as_well() -> None:
    """One of the two is a tensor too many, and that is told later."""
    twice = f"{HEAD}.1.down_proj.weight"
    both = model({**packed().tensors, twice: separate().tensors[twice]})
    found, places = with_separate_experts(both)
    for name in (f"{HEAD}.down_proj", twice):
        assert found.tensors[name] is both.tensors[name]
    assert len(found.tensors) == 2 + 2 * EXPERTS and len(places) == 2


def test_outputs_along_the_last_axis_stay_one_matrix_of_each_expert() -> None:
    """As gpt-oss has them: gates and ups do not follow each other."""
    transposed = (EXPERTS, HIDDEN, 2 * INNER)
    source, _ = with_separate_experts(packed(transposed, (EXPERTS, INNER, HIDDEN)))
    assert [found.shape for found in source.tensors.values()] == [
        *[transposed[1:]] * EXPERTS,
        *[(INNER, HIDDEN)] * EXPERTS,
    ]


@pytest.mark.parametrize(
    ("left_out", "odd", "of_odd", "expected"),
    [
        ("", "", {}, {"gate_up_proj", "down_proj"}),
        ("1.down", "", {}, {"gate_up_proj"}),
        ("2.up", "", {}, {"down_proj"}),
        ("1.", "", {}, set()),
        ("0.", "", {}, set()),
        ("", "1.up", {"shape": (INNER + 1, HIDDEN)}, {"down_proj"}),
        ("", "2.gate", {"dtype": "BF16"}, {"down_proj"}),
        ("", "0.down", {"dtype": "BF16"}, {"gate_up_proj"}),
    ],
)
def test_only_experts_that_are_complete_and_alike_are_packed(
    left_out: str, odd: str, of_odd: dict[str, object], expected: set[str]
) -> None:
    source = separate(left_out=left_out, odd=odd, **of_odd)
    found, written = with_packed_experts(source)
    together = {name for name in found.tensors if name not in source.tensors}
    assert together == {f"{HEAD}.{name}" for name in expected}
    assert len(written) == len(expected)
    stay = found.tensors.keys() & source.tensors.keys()
    assert len(stay) == len(source.tensors) - sum(
        EXPERTS * (2 if name == "gate_up_proj" else 1) for name in expected
    )


def test_experts_are_packed_in_the_order_of_their_numbers_whatever_the_files() -> None:
    """Files have them in the order of their names, of which 10 is before 2."""
    source = separate()
    mixed = model(dict(reversed(source.tensors.items())))
    packed_, written = with_packed_experts(mixed)
    expected, expected_written = with_packed_experts(source)
    assert packed_.tensors == expected.tensors and written == expected_written
    [down] = [t for name, t in packed_.tensors.items() if name.endswith("down_proj")]
    assert [part.name for part in down.children()] == [
        f"{HEAD}.{expert}.down_proj.weight" for expert in range(EXPERTS)
    ]


def test_a_tensor_that_the_reference_lacks_keeps_its_name() -> None:
    further = tensor("model.layers.0.mlp.router.scale", (EXPERTS,))
    recipe = parse_recipe(
        "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"
    )
    one, other = recipe.models
    more = model({**separate().tensors, further.name: further})
    views = MixtureViews.of(recipe, {one: separate(), other: more}, one)
    assert views.sources[other].tensors[further.name] == further


def test_a_packed_tensor_is_another_name_of_the_references_matrices() -> None:
    """A filter may name either, whatever the reference calls them."""
    names = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2", "mlp": "block_sparse_moe"}
    published = {}
    for name, found in separate().tensors.items():
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        published[name] = replace(found, name=name)
    recipe = parse_recipe(
        "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"
    )
    one, other = recipe.models
    views = MixtureViews.of(recipe, {one: model(published), other: packed()}, one)
    assert views.sources[other].tensors.keys() == published.keys()
    for matrix, tensor_ in (("w1", "gate_up_proj"), ("w3", "gate_up_proj"), ("w2", "down_proj")):
        own = views.aliases[other][f"block_sparse_moe.experts.{{n}}.{matrix}.weight"]
        assert f"mlp.experts.{tensor_}" in own


@pytest.mark.parametrize("layer", ["model.layers.3.", ""])
def test_experts_are_told_apart_in_a_layer_and_in_none(layer: str) -> None:
    """Their own number is no layer's."""
    found = Template.of(f"{layer}mlp.experts.12.up_proj.weight")
    assert found == Template(layer, "mlp.experts.{n}.up_proj.weight", 12)
    assert Template.of(f"{layer}mlp.gate.weight") == Template(layer, "mlp.gate.weight", None)
    assert found.named("mlp.experts.gate_up_proj") == f"{layer}mlp.experts.gate_up_proj"
