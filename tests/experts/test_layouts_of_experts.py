"""Promise: experts are separated or packed by reading files in place, if nothing is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from made_up_plans import llama, plan, tensor

from resumerge.experts.packed_experts import with_packed_experts
from resumerge.experts.separate_experts import Place, with_separate_experts
from resumerge.experts.views import MixtureViews
from resumerge.experts.written_experts import as_reference
from resumerge.layout.expert_names import Template
from resumerge.methods import METHODS
from resumerge.planning import Plan
from resumerge.recipe import ModelRef, parse_recipe
from resumerge.sources.types import Source
from resumerge.tensors import Stored
from resumerge.tensors.target import Target

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
    """Return a model whose experts have matrices of their own.

    Args:
        left_out: the beginning of the names, after the head, of matrices that are left out.
        odd: such a beginning for matrices that differ from the others.
        of_odd: the fields in which they differ.
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
    """The model has one of the two tensors too many, which is reported later."""
    twice = f"{HEAD}.1.down_proj.weight"
    both = model({**packed().tensors, twice: separate().tensors[twice]})
    found, places = with_separate_experts(both)
    for name in (f"{HEAD}.down_proj", twice):
        assert found.tensors[name] is both.tensors[name]
    assert len(found.tensors) == 2 + 2 * EXPERTS and len(places) == 2


def test_outputs_along_the_last_axis_stay_one_matrix_of_each_expert() -> None:
    """gpt-oss stores gates and ups interleaved along the last axis."""
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
    """Files may list experts in the order of their names, in which 10 precedes 2."""
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
    """A filter may name the packed tensor or the reference's matrices, under any names."""
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
    """The number of an expert is not read as the number of a layer."""
    found = Template.of(f"{layer}mlp.experts.12.up_proj.weight")
    assert found == Template(layer, "mlp.experts.{n}.up_proj.weight", 12)
    assert Template.of(f"{layer}mlp.gate.weight") == Template(layer, "mlp.gate.weight", None)
    assert found.named("mlp.experts.gate_up_proj") == f"{layer}mlp.experts.gate_up_proj"


RECIPE = "merge_method: {}\nparameters: {{weight: 1}}\nmodels: [{{model: a}}, {{model: b}}]\n"
TOGETHER = "experts: together\n"


def views_of(recipe: str, first: Source, second: Source, **named: bool) -> MixtureViews:
    parsed = parse_recipe(recipe)
    one, other = parsed.models
    return MixtureViews.of(parsed, {one: first, other: second}, one, **named)


def planned(recipe: str, first: Source, second: Source) -> Plan:
    return plan(recipe, replace(first, ref=ModelRef("a", "a")), replace(second, ref=B))


B = ModelRef("b", "b")
BY_NUMBER = "experts are merged by number, and routers like any tensor"


@pytest.mark.parametrize(
    ("recipe", "first", "notes"),
    [
        (RECIPE.format("linear"), "experts", [BY_NUMBER]),
        (TOGETHER + RECIPE.format("linear"), "experts", [BY_NUMBER]),
        (TOGETHER + RECIPE.format("linear"), "none", ["experts has no effect: no layer has"]),
        (RECIPE.format("linear"), "none", []),
    ],
)
def test_what_has_no_effect_or_a_surprising_one_is_noted(
    recipe: str, first: str, notes: list[str]
) -> None:
    dense = model({t.name: t for t in [tensor("model.layers.0.mlp.up_proj.weight", (5, 4))]})
    both = (separate(), packed()) if first == "experts" else (dense, dense)
    found = views_of(recipe, *both).notes
    assert len(found) == len(notes)
    assert all(note.startswith(begin) for note, begin in zip(found, notes))
    one = views_of(RECIPE.format("linear"), separate(), dense)
    assert one.notes == [], "one mixture is merged with no other"


def test_tensors_that_are_known_by_their_own_names_stay_unless_they_are_to_be_packed() -> None:
    whole, apart = packed(), separate()
    flat = views_of(RECIPE.format("linear"), whole, apart, flat=True)
    assert [*flat.sources.values()] == [whole, apart] and flat.notes == []
    together = views_of(TOGETHER + RECIPE.format("linear"), whole, apart, flat=True)
    names = [source.tensors.keys() for source in together.sources.values()]
    assert names[0] == names[1] == whole.tensors.keys()


def test_a_method_that_takes_one_matrix_at_a_time_takes_experts_apart() -> None:
    [name] = [method.name for method in METHODS.values() if method.whole_tensor][:1]
    views = views_of(TOGETHER + RECIPE.format(name), packed(), separate())
    assert views.notes[0] == f"experts has no effect: {name} takes one matrix at a time"
    assert all(s.tensors.keys() == separate().tensors.keys() for s in views.sources.values())


def test_the_output_has_the_form_of_its_reference() -> None:
    """Packed tensors are written whole, with their experts in order; matrices as matrices."""
    of_packed = planned(RECIPE.format("linear"), packed(), separate())
    written = {name: shape for unit in of_packed.units for name, shape in unit.tensors.items()}
    assert written == {f"{HEAD}.gate_up_proj": GATE_UP, f"{HEAD}.down_proj": DOWN}
    assert [unit.name for unit in of_packed.units] == [
        *(f"{HEAD}.{n}.{p}_proj.weight" for n in range(EXPERTS) for p in ("gate", "up")),
        *(f"{HEAD}.{n}.down_proj.weight" for n in range(EXPERTS)),
    ]
    assert [bool(unit.tensors) for unit in of_packed.units] == [
        number in (0, 2 * EXPERTS) for number in range(3 * EXPERTS)
    ]
    of_separate = planned(RECIPE.format("linear"), separate(), packed())
    assert {n: s for unit in of_separate.units for n, s in unit.tensors.items()} == {
        name: tensor_.shape for name, tensor_ in separate().tensors.items()
    }


def test_tensors_that_are_merged_together_are_written_as_the_reference_has_them() -> None:
    ties = f"{TOGETHER}{RECIPE.format('linear')}"
    apart = planned(ties, separate(), packed())
    by_name = {unit.name: unit for unit in apart.units}
    assert by_name.keys() == {f"{HEAD}.gate_up_proj", f"{HEAD}.down_proj"}
    assert list(by_name[f"{HEAD}.gate_up_proj"].tensors.items()) == [
        (f"{HEAD}.{n}.{p}_proj.weight", (INNER, HIDDEN))
        for n in range(EXPERTS)
        for p in ("gate", "up")
    ]
    assert list(by_name[f"{HEAD}.down_proj"].tensors.items()) == [
        (f"{HEAD}.{n}.down_proj.weight", DOWN[1:]) for n in range(EXPERTS)
    ]
    whole = planned(ties, packed(), separate())
    assert {unit.name: dict(unit.tensors) for unit in whole.units} == {
        f"{HEAD}.{name}": {f"{HEAD}.{name}": shape}
        for name, shape in (("gate_up_proj", GATE_UP), ("down_proj", DOWN))
    }


def test_one_tensor_has_one_dtype_or_is_refused() -> None:
    odd = f"{HEAD}.1.up_proj.weight"
    other = model({**separate().tensors, odd: replace(separate().tensors[odd], dtype="BF16")})
    mixed = "merge_method: passthrough\nmodels: [{model: b}]\nbase_model: a\n"
    views = views_of(RECIPE.format("linear"), packed(), other)
    targets = [
        Target(name, found.dtype, found.shape, 1, found, {name: found.shape})
        for name, found in other.tensors.items()
    ]
    written, [problem] = as_reference(parse_recipe(mixed), targets, views)
    assert problem.what == f"The experts in tensor {HEAD}.gate_up_proj have different dtypes"
    assert problem.found == "BF16 and F32" and len(written) == len(targets)
    alike = [replace(target, dtype="BF16") for target in targets]
    assert as_reference(parse_recipe(mixed), alike, views)[1] == []


def test_a_selection_among_numbers_of_packed_files_is_noted() -> None:
    """A method that selects elements selects in each expert, although the files have one tensor."""
    ties = "merge_method: ties\nbase_model: a\nmodels: [{model: b}]\n"
    ties += "parameters: {weight: 1, density: 0.5}\n"
    begin = "the files of a have packed experts: each expert is merged by itself"
    for first, recipe, noted in (
        (packed(), ties, True),
        (separate(), ties, False),
        (packed(), ties + TOGETHER, False),
        (packed(), RECIPE.format("linear"), False),
    ):
        notes = planned(recipe, first, separate()).notes
        assert any(note.startswith(begin) for note in notes) is noted


def test_ups_without_gates_are_packed_under_their_own_name() -> None:
    found, written = with_packed_experts(
        model({name: t for name, t in separate().tensors.items() if "gate" not in name})
    )
    assert found.tensors[f"{HEAD}.up_proj"].shape == (EXPERTS, INNER, HIDDEN)
    assert written["mlp.experts.up_proj"] == ("mlp.experts.{n}.up_proj.weight",)
    again, places = with_separate_experts(
        model({t.name: tensor(t.name, t.shape) for t in found.tensors.values()})
    )
    assert again.tensors.keys() == {n for n in separate().tensors if "gate" not in n}
    assert {(p.number, p.count) for p in places.values()} == {(0, 1)}


def test_a_packed_tensor_has_the_place_of_its_first_matrix() -> None:
    first, last = (tensor(f"model.{name}.weight", (2,)) for name in ("embed", "norm"))
    source = model({first.name: first, **separate().tensors, last.name: last})
    assert [*with_packed_experts(source)[0].tensors] == [
        first.name,
        f"{HEAD}.gate_up_proj",
        f"{HEAD}.down_proj",
        last.name,
    ]


@pytest.mark.parametrize(
    ("name", "shape", "dtype"),
    [
        (f"{HEAD}.gate_up_proj", GATE_UP[:2], "F32"),
        (f"{HEAD}.gate_up_proj", GATE_UP, "U8"),
        (f"{HEAD}.0.gate_up_proj", GATE_UP, "F32"),
        ("model.layers.0.mlp.gate_up_proj", GATE_UP, "F32"),
    ],
)
def test_what_is_no_packed_tensor_stays(name: str, shape: tuple[int, ...], dtype: str) -> None:
    source = model({name: tensor(name, shape, dtype)})
    assert with_separate_experts(source) == (source, {})


def test_granites_packed_tensors_and_packed_biases_are_taken_apart() -> None:
    at = "model.layers.0.block_sparse_moe"
    names = {
        f"{at}.input_linear.weight": GATE_UP,
        f"{at}.output_linear.weight": DOWN,
    }
    found, places = with_separate_experts(model({n: tensor(n, s) for n, s in names.items()}))
    assert [*found.tensors][:2] == [f"{at}.experts.0.{p}_proj.weight" for p in ("gate", "up")]
    inside = "block_sparse_moe.experts.{n}.up_proj.weight"
    assert places[inside] == Place("block_sparse_moe.input_linear.weight", 1, 2)
    biases = {f"{HEAD}.gate_up_proj_bias": (EXPERTS, 2 * INNER), f"{HEAD}.down_proj_bias": DOWN[:2]}
    found, _ = with_separate_experts(model({n: tensor(n, s) for n, s in biases.items()}))
    assert [t.shape for t in found.tensors.values()] == [(2 * INNER,)] * 3 + [(HIDDEN,)] * 3


def test_a_tensor_that_was_packed_of_matrices_gives_them_back() -> None:
    source = separate()
    together, _ = with_packed_experts(source)
    apart, _ = with_separate_experts(together)
    assert dict(apart.tensors) == dict(source.tensors)
    assert all(apart.tensors[name] is found for name, found in source.tensors.items())
