"""Promise: out_dtype quantises the weights of linear layers that fit, and no other tensor; `same`
copies what does not change, and writes what does as the reference model has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from made_up_plans import llama, plan, staged, tensor, units

from resumerge.errors import InputError, Problem
from resumerge.planning import Plan
from resumerge.quantisation import OUTPUTS
from resumerge.sources.types import Source, StoredForm, StoredWeight
from resumerge.tensors import Adapted, Merged, Quantised, Stored

LINEAR = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"
COPY = "merge_method: passthrough\nmodels: [{model: a}]\n"
FP8 = "out_dtype: fp8_block\n"
SAME = "out_dtype: same\n"
AT = "model.layers.{}.{}"
Q, K, V = (AT.format(0, f"self_attn.{name}_proj.weight") for name in "qkv")
GATE, UP, DOWN = (AT.format(0, f"mlp.{name}_proj.weight") for name in ("gate", "up", "down"))
NORM, HEAD, EMBEDDING = "model.norm.weight", "lm_head.weight", "model.embed_tokens.weight"


def model(
    name: str, shapes: Mapping[str, tuple[int, ...]], dtype: str = "BF16", **more: Any
) -> Source:
    """Return a model of one layer, which has these tensors and no others."""
    own = [tensor(n, shape, dtype) for n, shape in shapes.items()]
    lacks = [n for n in llama(name, 1).tensors if ".layers." in n and n not in shapes]
    return llama(name, 1, dtype, others=own, without=lacks, **more)


SQUARE = (128, 128)


def quantised(found: Plan) -> set[str]:
    """Return the names of the weights that the plan quantises."""
    return {unit.name for unit in found.units if isinstance(unit.expression, Quantised)}


def problem(recipe: str, *models: Source) -> Problem:
    with pytest.raises(InputError) as refused:
        plan(recipe, *models)
    [found] = refused.value.problems
    assert found.path == "out_dtype"
    return found


def test_the_weights_of_linear_layers_are() -> None:
    shapes = dict.fromkeys((Q, K, V, GATE, UP, DOWN), SQUARE)
    plain = {
        AT.format(0, "mlp.router.weight"): SQUARE,
        AT.format(0, "mlp.gate.weight"): SQUARE,
        AT.format(0, "mlp.shared_expert_gate.weight"): SQUARE,
        AT.format(0, "input_layernorm.weight"): (128,),
        AT.format(0, "self_attn.q_proj.bias"): (128,),
        AT.format(0, "mlp.experts.gate_up_proj"): (2, 128, 128),
        AT.format(0, "mlp.odd"): SQUARE,
        AT.format(0, "mlp.conv.weight"): (128, 128, 3),
        "vision_tower.layers.0.fc.weight": SQUARE,
        "model.outside.weight": SQUARE,
    }
    found = plan(COPY + FP8, model("a", {**shapes, **plain}))
    assert quantised(found) == set(shapes)
    assert found.quantised is not None
    assert found.quantised.name == "fp8_block"
    assert found.quantised.tensors == {
        part for name in shapes for part in (name, f"{name}_scale_inv")
    }
    assert found.quantised.config["modules_to_not_convert"] == sorted(
        n.removesuffix(".weight") for n in (HEAD, *plain) if len({**plain, HEAD: SQUARE}[n]) > 1
    )
    weights, packed = (n for n in found.notes if "stay plain" in n)
    assert weights.startswith("6 weights of linear layers are written as float8")
    assert packed == "packed experts stay plain: model.layers.0.mlp.experts.gate_up_proj"


def test_a_head_is_named_as_plain_where_it_is_tied_too() -> None:
    """The loader makes a linear layer of a tied head, too."""
    one = model("a", {Q: SQUARE}, config={"tie_word_embeddings": True})
    tensors = {name: t for name, t in one.tensors.items() if name != HEAD}
    found = plan(COPY + FP8, replace(one, tensors=tensors))
    assert found.quantised is not None
    assert found.quantised.config["modules_to_not_convert"] == ["lm_head"]


def test_whole_numbers_stay_what_they_are() -> None:
    codes = AT.format(0, "mlp.codes.weight")
    one = model("a", {Q: SQUARE})
    one = replace(one, tensors={**one.tensors, codes: tensor(codes, SQUARE, "I64")})
    found = plan(COPY + FP8, one)
    assert quantised(found) == {Q}
    assert found.quantised is not None
    assert found.quantised.config["modules_to_not_convert"] == ["lm_head"]


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ({Q: SQUARE, K: (64, 128), V: SQUARE, DOWN: SQUARE}, {DOWN}),
        ({GATE: SQUARE, UP: (128, 100), Q: SQUARE, K: SQUARE}, {Q, K}),
        ({DOWN: (100, 128), UP: SQUARE, GATE: SQUARE}, {UP, GATE}),
        (
            {Q: (64, 128), AT.format(1, "self_attn.k_proj.weight"): SQUARE},
            {AT.format(1, "self_attn.k_proj.weight")},
        ),
    ],
)
def test_one_that_does_not_fit_keeps_those_beside_it_plain(
    shapes: dict[str, tuple[int, ...]], expected: set[str]
) -> None:
    """Servers make one module of the weights beside each other (q, k and v; gate and up)."""
    config = {"num_hidden_layers": 1 + any(".1." in name for name in shapes)}
    found = plan(COPY + FP8, model("a", shapes, config=config))
    assert quantised(found) == expected
    stay = [note for note in found.notes if "do not fit" in note]
    assert stay[0].startswith(f"{len(shapes) - len(expected)} weight")
    assert "no multiple of 128 x 128" in stay[0]


def test_at_least_one_has_to_be() -> None:
    found = problem(COPY + FP8, model("a", {Q: (64, 128), UP: (100, 128)}))
    assert found.what == "No weight of the output can be written as fp8_block"
    assert found.found == f"no multiple of 128 x 128: {UP}"
    found = problem(COPY + FP8, model("a", {AT.format(0, "input_layernorm.weight"): (128,)}))
    assert found.found == "none in the layers"


def test_a_merge_is_quantised_before_it_is_rounded() -> None:
    one, other = (model(name, {Q: SQUARE}) for name in "ab")
    unit = units(plan(LINEAR + FP8, one, other))[Q]
    assert isinstance(unit.expression, Quantised)
    assert isinstance(unit.expression.weight, Merged)
    stored, *matrices = (
        tensor(n, s, "BF16") for n, s in ((Q, SQUARE), ("a", (1, 128)), ("b", (128, 1)))
    )
    changed = Adapted.of(Q, stored, *matrices, 1.0, False, None)
    adapted = replace(one, tensors={**one.tensors, Q: changed})
    [exact] = units(plan(COPY + FP8, adapted))[Q].expression.children()
    assert exact.dtype == "F32", "what an adapter makes is not rounded first"


def test_what_cannot_be_quantised_is_refused() -> None:
    one = model("a", {Q: SQUARE})
    stage = f"name: s\n{COPY}{FP8}---\nmerge_method: passthrough\nmodels: [{{model: s}}]\n"
    with pytest.raises(InputError, match="A stage cannot be written as fp8_block"):
        staged(stage, one)
    flat = replace(one, config={})
    assert (
        problem(COPY + FP8, flat).what
        == "Without a config.json no weights are written as fp8_block"
    )
    parts = replace(one, components={"unet": ""})
    assert problem(COPY + FP8, parts).what == "A model of several parts is not written as fp8_block"
    conv = AT.format(0, "attn.c_attn.weight")
    bias = AT.format(0, "attn.c_attn.bias")
    transposed = model("a", {conv: (128, 384), bias: (384,)})
    found = problem(COPY + FP8, transposed)
    assert found.found == f"{conv} of a, which is a Conv1D"
    outside = model("a", {Q: SQUARE, "projector.weight": (128, 384), "projector.bias": (384,)})
    assert quantised(plan(COPY + FP8, outside)) == {Q}, "it stays plain anyway"
    straight = model("a", {conv: (384, 128), bias: (384,)})
    assert quantised(plan(COPY + FP8, straight)) == {conv}
    last = f"name: s\n{COPY}---\nmerge_method: passthrough\nmodels: [{{model: s}}]\n{FP8}"
    assert quantised(staged(last, one)) == {Q}


# As the reference has them


SCALE = "{}_scale_inv".format


def coded(
    name: str,
    *weights: str,
    written: bool = True,
    more: Mapping[str, str] | None = None,
    beside: str = "",
) -> Source:
    """Return a model with weights in float8, computed from codes and scales in its file.

    Args:
        weights: the weights that are quantised.
        written: whether a changed weight can be written.
        more: the name of a further part, by weight.
        beside: a tensor of activations.
    """
    found = model(name, dict.fromkeys(weights or (Q, UP), SQUARE))
    stored: dict[str, Stored] = {}
    stored_weights = {}
    for weight in weights or (Q, UP):
        parts = [
            tensor(weight, SQUARE, "F8_E4M3"),
            tensor(SCALE(weight), (1, 1), "F32"),
            *(tensor(part, (1,), "F32") for own, part in (more or {}).items() if own == weight),
        ]
        stored |= {part.name: replace(part, file="codes") for part in parts}
        layout = OUTPUTS["fp8_block"].layout if written else None
        stored_weights[weight] = StoredWeight(
            tuple(part.name for part in parts), "float8 of a kind", layout
        )
    if beside:
        stored[beside] = tensor(beside, (1,), "F32")
    stored[NORM] = tensor(NORM, (4,), "BF16")
    stated = {"quant_method": "fp8"}
    return replace(found, stored=StoredForm(stored, "2 in float8", stated, stored_weights))


def other(name: str = "b") -> Source:
    return model(name, dict.fromkeys((Q, UP), SQUARE))


def test_what_changes_is_written_as_it_was_stored() -> None:
    found = plan(LINEAR + SAME, coded("a", more={Q: "q.input_scale"}, beside="k.scale"), other())
    made = units(found)
    assert quantised(found) == {Q, UP}
    assert dict(made[Q].tensors) == {Q: SQUARE, SCALE(Q): (1, 1)}
    assert dict(made[Q].dtypes) == {Q: "F8_E4M3", SCALE(Q): "F32"}
    for name in ("q.input_scale", "k.scale"):
        expression = made[name].expression
        assert isinstance(expression, Stored) and expression.name == name, "copied"
    assert [*made].index("q.input_scale") and made["k.scale"].tensors == {"k.scale": (1,)}
    assert isinstance(made[NORM].expression, Merged), "merged like any other"
    assert found.quantised is not None
    assert found.quantised.tensors == {Q, UP, SCALE(Q), SCALE(UP), "q.input_scale", "k.scale"}
    assert found.quantised.config == {"quant_method": "fp8"}
    assert found.quantised.name == "same"
    [note] = [n for n in found.notes if "quantised as a has them" in n]
    assert note.startswith(
        "2 weights that change are quantised as a has them; the codes and scales"
    )
    assert "scales of 0 are copied, and so are 1 tensor on activations" in note


def test_what_does_not_change_is_copied_byte_by_byte() -> None:
    slerp = COPY.replace("passthrough", "multislerp") + "parameters: {weight: 1}\n"
    for recipe in (COPY + SAME, COPY + "dtype: float16\n" + SAME, slerp + SAME):
        found = plan(recipe, coded("a"))
        assert quantised(found) == set()
        for name in (Q, SCALE(Q), UP, SCALE(UP)):
            expression = units(found)[name].expression
            assert isinstance(expression, Stored)
            assert (expression.name, expression.file) == (name, "codes")
        [note] = [n for n in found.notes if "quantised as a has them" in n]
        assert note.startswith("0 weights that change are") and "scales of 2 are copied" in note
    base = coded("a")
    stored, *matrices = (
        tensor(n, s, "BF16") for n, s in ((UP, SQUARE), ("a", (1, 128)), ("b", (128, 1)))
    )
    changed = Adapted.of(UP, stored, *matrices, 1.0, False, None)
    found = plan(COPY + SAME, replace(base, tensors={**base.tensors, UP: changed}))
    assert quantised(found) == {UP}, "it is no longer what the codes are"
    [exact] = units(found)[UP].expression.children()
    assert exact.dtype == "F32"
    scaled = COPY + "parameters: {scale: [{filter: up_proj, value: 0.5}, {value: 1}]}\n"
    assert quantised(plan(scaled + SAME, coded("a"))) == {UP}


def test_codes_scales_and_the_factor_are_one_unit_in_the_shapes_of_the_reference() -> None:
    layout = OUTPUTS["nvfp4"].layout
    stem = Q.removesuffix("weight")
    parts = [
        tensor(stem + layout.codes, (128, 64), "U8"),
        tensor(stem + layout.scales, (128, 8), "F8_E4M3"),
        tensor(stem + layout.factor, (1, 1), "F32"),
    ]
    stored = {part.name: part for part in parts}
    weights = {Q: StoredWeight(tuple(stored), "nvfp4", layout)}
    reference = replace(coded("a", Q), stored=StoredForm(stored, "1 in nvfp4", weights=weights))
    second = model("b", {Q: SQUARE})
    unit = units(plan(LINEAR + SAME, reference, second))[Q]
    assert dict(unit.tensors) == {part.name: part.shape for part in parts}
    assert dict(unit.dtypes) == {part.name: part.dtype for part in parts}


def test_of_two_models_the_references_form_counts() -> None:
    """The number of the reference among the plan's sources does not matter."""
    arithmetic = (
        "merge_method: task_arithmetic\nbase_model: b\nparameters: {weight: 1}\n"
        f"models: [{{model: a}}]\n{SAME}"
    )
    found = plan(arithmetic, other("a"), coded("b", beside="k.scale"))
    expression = units(found)["k.scale"].expression
    assert isinstance(expression, Stored)
    assert found.sources[expression.source].ref.name == "b"
    assert quantised(found) == {Q, UP}


def test_a_change_of_what_is_read_and_not_written_is_refused() -> None:
    names = [AT.format(n, "self_attn.q_proj.weight") for n in range(5)]
    config = {"num_hidden_layers": 5}
    reference = replace(coded("a", *names, written=False), config=llama("a", 5).config)
    second = model("b", dict.fromkeys(names, SQUARE), config=config)
    found = problem(LINEAR + SAME, reference, second)
    assert found.what.startswith("Weights change that are stored in a way that is read, and not")
    listed = ", ".join(f"{name} in float8 of a kind" for name in names[:3])
    assert found.found == f"{listed}, and 2 more"
    assert quantised(plan(COPY + SAME, reference)) == set(), "copied, they need not be written"


def test_the_reference_has_to_be_quantised_and_keep_its_layers() -> None:
    assert problem(LINEAR + SAME, other("a"), coded("b")).what == (
        "The reference model is not quantised"
    )
    no_codes = replace(coded("a"), stored=None)
    assert problem(COPY + SAME, no_codes).what == "The reference model is not quantised"
    sliced = (
        "merge_method: passthrough\nslices:\n  - sources: [{model: a, layer_range: [0, 1]}]\n"
        f"  - sources: [{{model: a, layer_range: [0, 1]}}]\n{SAME}"
    )
    found = problem(sliced, coded("a"))
    assert (found.what, found.found) == (
        "With slices the output is not stored as a is",
        "slices, and out_dtype: same",
    )
