"""Promise: each tensor of the plan has the parameters, inputs and dtype that the recipe says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_up_plans import expression, expressions, llama, plan, tensor, units

from resumerge.errors import InputError
from resumerge.planning.plan import LayerOrigin
from resumerge.sources.types import Source
from resumerge.tensors import Merged, Stored

TWO = "models: [{model: a}, {model: b}]\n"
BACKWARDS = "models: [{model: b}, {model: a}]\n"
UP = "model.layers.{}.mlp.up_proj.weight"
EMBEDDING, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"


def merge_values(recipe: str, name: str, *, layers: int = 5) -> dict[str, object]:
    """Return a parameter of the merge by tensor, with one tensor for each layer."""
    found = expressions(plan(recipe, llama("a", layers), llama("b", layers)))
    every = [EMBEDDING, *(UP.format(layer) for layer in range(layers)), NORM, HEAD]
    return {tensor: found[tensor].params[name] for tensor in every}


def test_a_gradient_of_truths_has_steps() -> None:
    recipe = f"merge_method: linear\n{TWO}parameters: {{weight: 1, normalize: [true, false, true]}}"
    values = list(merge_values(recipe, "normalize").values())
    assert values == [True, True, True, False, False, True, True, True]
    assert all(type(value) is bool for value in values)


def test_a_gradient_of_numbers_has_none() -> None:
    recipe = f"merge_method: slerp\nbase_model: a\n{TWO}parameters: {{t: [0, 1, 0]}}"
    assert list(merge_values(recipe, "t").values()) == [0, 0, 0.5, 1, 0.5, 0, 0, 0]


def test_a_gradient_begins_anew_in_every_slice() -> None:
    recipe = (
        "merge_method: slerp\nbase_model: a\nparameters: {t: [0, 1]}\nslices:\n"
        "  - sources: [{model: a, layer_range: [0, 3]}, {model: b, layer_range: [0, 3]}]\n"
        "  - sources: [{model: a, layer_range: [2, 3]}, {model: b, layer_range: [2, 3]}]\n"
        "  - sources: [{model: a, layer_range: [3, 5]}, {model: b, layer_range: [3, 5]}]\n"
        "    parameters: {t: [0.5, 0.75]}\n"
    )
    found = expressions(plan(recipe, llama("a", 5), llama("b", 5)))
    values = [found[UP.format(layer)].params["t"] for layer in range(6)]
    assert values == [0, 0.5, 1, 1, 0.5, 0.75]
    assert found[EMBEDDING].params["t"] == 0, "of the first slice"
    assert found[NORM].params["t"] == found[HEAD].params["t"] == 0.5, "of the last"


def test_the_innermost_scope_that_says_something_counts() -> None:
    recipe = (
        "merge_method: linear\nparameters: {weight: 1, normalize: false}\nmodels:\n"
        "  - model: a\n"
        "    parameters: {weight: [{filter: mlp, value: 2}, {filter: norm, value: [3, 4]}]}\n"
        "  - {model: b, parameters: {normalize: true}}\n"
    )
    found = expressions(plan(recipe, llama("a", 2), llama("b", 2)))

    def weights(name: str) -> list[object]:
        return [operand.params["weight"] for operand in found[name].operands]

    assert weights(UP.format(1)) == [2, 1]
    assert weights("model.layers.1.input_layernorm.weight") == [4, 1]
    assert weights(NORM) == [3, 1]
    assert weights(HEAD) == [1, 1]
    assert {e.params["normalize"] for e in found.values()} == {False}, "it is the merge's"
    assert all(
        operand.params.keys() == {"weight"} for e in found.values() for operand in e.operands
    )


def test_a_module_is_a_scope() -> None:
    recipe = (
        "merge_method: linear\nparameters: {weight: 1}\nmodules:\n  default:\n"
        "    parameters: {weight: 5}\n    models: [{model: a}, {model: b}]\n"
    )
    found = expressions(plan(recipe, llama("a"), llama("b")))
    assert found[NORM].operands[0].params == {"weight": 5}


def test_the_base_of_task_vectors_has_no_parameters() -> None:
    recipe = "merge_method: ties\nbase_model: a\nparameters: {weight: 1, density: 0.5}\n" + TWO
    merged = expressions(plan(recipe, llama("a"), llama("b")))[NORM]
    assert merged.base == 0
    assert merged.operands[0].params == {}
    assert {"weight": 1, "density": 0.5}.items() <= merged.operands[1].params.items()
    merged = expressions(
        plan(
            "merge_method: linear\nbase_model: a\nparameters: {weight: 1}\n" + TWO,
            llama("a"),
            llama("b"),
        )
    )[NORM]
    assert merged.operands[0].params == {"weight": 1}, "where the base is a model like any"


def test_the_base_is_found_wherever_it_stands() -> None:
    recipe = "merge_method: task_arithmetic\nbase_model: X\nparameters: {weight: 1}\n" + TWO
    models = llama("a"), llama("b"), llama("c")
    for base, inputs, place in (("a", "ab", 0), ("b", "ab", 1), ("c", "abc", 2)):
        found = plan(recipe.replace("X", base), *models)
        merged = expressions(found)[NORM]
        assert merged.base == place
        names = [found.sources[operand.source].ref.name for operand in merged.operands]
        assert names == list(inputs)
        assert found.sources[found.reference].ref.name == base


def test_more_than_everything_is_everything() -> None:
    recipe = (
        "merge_method: ties\nbase_model: a\nmodels:\n"
        "  - {model: b, parameters: {weight: 3, density: 1.5}}\n"
    )
    merged = expressions(plan(recipe, llama("a"), llama("b")))[NORM]
    [params] = [operand.params for operand in merged.operands if operand.params]
    assert (params["density"], params["weight"]) == (1, 3)


@pytest.mark.parametrize(
    ("gradient", "fits"), [("[1, 3, 5]", True), ("[1, 2]", False), ("[2, 2]", True)]
)
def test_a_gradient_of_counts_has_whole_numbers_at_every_tensor(gradient: str, fits: bool) -> None:
    recipe = f"merge_method: karcher\n{TWO}parameters: {{max_iter: {gradient}}}"
    if fits:
        values = merge_values(recipe, "max_iter", layers=3)
        assert list(values.values())[1:4] == ([1, 3, 5] if "3" in gradient else [2, 2, 2])
        return
    with pytest.raises(InputError) as refused:
        merge_values(recipe, "max_iter", layers=3)
    [problem] = refused.value.problems
    assert problem.path == "parameters.max_iter"
    assert problem.found == "1.5 for tensor model.layers.1.self_attn.q_proj.weight"


# Which inputs


def test_each_layer_comes_from_its_layers() -> None:
    recipe = (
        "merge_method: linear\nparameters: {weight: 1}\nslices:\n"
        "  - sources: [{model: a, layer_range: [1, 3]}, {model: b, layer_range: [0, 2]}]\n"
        "  - sources: [{model: b, layer_range: [2, 3]}, {model: a, layer_range: [0, 1]}]\n"
    )
    found = plan(recipe, llama("a"), llama("b"))
    inputs = {
        name: [(found.sources[o.source].ref.name, o.tensor.name) for o in merged.operands]
        for name, merged in expressions(found).items()
    }
    assert [inputs[UP.format(layer)] for layer in range(3)] == [
        [("a", UP.format(1)), ("b", UP.format(0))],
        [("a", UP.format(2)), ("b", UP.format(1))],
        [("b", UP.format(2)), ("a", UP.format(0))],
    ]
    assert inputs[EMBEDDING] == [("a", EMBEDDING), ("b", EMBEDDING)]
    assert inputs[NORM] == [("b", NORM), ("a", NORM)], "after the layers, as in the last slice"
    [layers] = found.layer_maps
    assert (layers.stack, layers.keys) == ("model.layers", ("num_hidden_layers",))
    assert layers.origins == (
        LayerOrigin(((0, 1), (1, 0))),
        LayerOrigin(((0, 2), (1, 1))),
        LayerOrigin(((1, 2), (0, 0))),
    )


def test_a_base_joins_the_slices_that_lack_it() -> None:
    recipe = (
        "merge_method: task_arithmetic\nbase_model: c\nparameters: {weight: 1}\nslices:\n"
        "  - sources: [{model: a, layer_range: [1, 2]}, {model: b, layer_range: [1, 2]}]\n"
    )
    models = llama("a"), llama("b"), llama("c")
    merged = expressions(plan(recipe, *models))[UP.format(0)]
    assert [o.tensor.name for o in merged.operands] == [UP.format(1)] * 3
    assert merged.base == 2
    if_there = expressions(plan(recipe.replace("task_arithmetic", "nuslerp"), *models))
    assert if_there[UP.format(0)].base == 2, "a base that is not needed is read as well"
    passing = recipe.replace("task_arithmetic", "linear")
    assert len(expressions(plan(passing, *models))[UP.format(0)].operands) == 2
    with pytest.raises(InputError, match="which layers of the base model this slice uses"):
        plan(recipe.replace("b, layer_range: [1, 2]", "b, layer_range: [0, 1]"), *models)


# Its dtype


@pytest.mark.parametrize(
    ("dtypes", "said", "expected"),
    [
        (("BF16", "BF16"), "", "BF16"),
        (("BF16", "F16"), "", "F32"),
        (("F16", "F32"), "", "F32"),
        (("F16", "F64"), "", "F64"),
        (("F64", "F64"), "", "F64"),
        (("F32", "F32"), "dtype: bfloat16", "BF16"),
        (("F32", "F32"), "dtype: bfloat16\nout_dtype: float16", "F16"),
        (("BF16", "F16"), "out_dtype: float64", "F64"),
    ],
)
def test_the_output_is_what_is_asked_for_or_what_holds_all_inputs(
    dtypes: tuple[str, str], said: str, expected: str
) -> None:
    recipe = f"merge_method: linear\nparameters: {{weight: 1}}\n{TWO}{said}\n"
    found = plan(recipe, llama("a", dtype=dtypes[0]), llama("b", dtype=dtypes[1]))
    assert {unit.dtype for unit in found.units} == {expected}
    cast = "bfloat16" if "\ndtype: " in f"\n{said}" else None
    assert {expression(unit).cast for unit in found.units} == {cast}


@pytest.mark.parametrize(
    ("said", "method"),
    [
        ("", "copy"),
        ("dtype: float32", "copy"),
        ("out_dtype: float32", "copy"),
        ("dtype: bfloat16", "passthrough"),
        ("out_dtype: bfloat16", "passthrough"),
        ("dtype: bfloat16\nout_dtype: float32", "passthrough"),
        ("parameters: {scale: 2}", "passthrough"),
        ("parameters: {scale: 1}", "copy"),
    ],
)
def test_what_changes_nothing_is_copied(said: str, method: str) -> None:
    recipe = f"merge_method: passthrough\nmodels: [{{model: a}}]\n{said}\n"
    found = expressions(plan(recipe, llama("a")))
    assert {e.method for e in found.values()} == {method}
    if method == "copy":
        assert all(not e.params and not e.operands[0].params for e in found.values())


def test_whole_numbers_are_copied_from_the_base_or_the_first() -> None:
    position = tensor("model.position_ids", (1, 8), "I64")
    models = [llama(name, others=[position]) for name in "ab"]
    recipe = "merge_method: linear\nparameters: {weight: 1}\ndtype: bfloat16\n"
    for said, source in ((TWO, "a"), (TWO + "base_model: b", "b")):
        found = plan(recipe + said, *models)
        unit = units(found)["model.position_ids"]
        assert (unit.dtype, unit.shape, expression(unit).method) == ("I64", (1, 8), "copy")
        [operand] = expression(unit).operands
        assert found.sources[operand.source].ref.name == source
        assert unit.block_elements == 1 << 18


def test_a_part_that_no_module_names_is_copied() -> None:
    vision = [tensor(f"visual.blocks.{n}.w.weight", (4, 4)) for n in range(2)]
    models = [llama(name, others=vision, config={"vision_config": {"depth": 2}}) for name in "ab"]
    recipe = (
        "merge_method: linear\nparameters: {weight: 1}\ndtype: bfloat16\nmodules:\n"
        "  text_decoder: {models: [{model: a}, {model: b}]}\n"
    )
    found = plan(recipe, *models)
    merged = expressions(found)["visual.blocks.1.w.weight"]
    assert (merged.method, len(merged.operands), merged.cast) == (
        "passthrough", 1, "bfloat16"
    )  # fmt: skip
    assert found.sources[merged.operands[0].source].ref.name == "a"
    assert any("not among the modules: it is copied from a" in note for note in found.notes)


# What is missing, or does not fit


def problem(
    *models: object, recipe: str = "merge_method: linear\nparameters: {weight: 1}\n" + TWO
) -> str:
    with pytest.raises(InputError) as refused:
        plan(recipe, *models)  # type: ignore[arg-type]
    return "\n".join(str(found) for found in refused.value.problems)


def test_a_tensor_that_one_lacks_is_named() -> None:
    name = UP.format(1)
    said = problem(llama("a"), llama("b", without=[name]))
    assert "A tensor is missing from b" in said and name in said
    said = problem(llama("a", without=[name]), llama("b"))
    assert "A tensor of b would be lost" in said and name in said


def test_a_tensor_of_another_shape_is_named() -> None:
    said = problem(llama("a"), llama("b", others=[tensor(NORM, (5,))]))
    assert f"Shapes do not match in tensor {NORM}" in said
    assert "F32 [4], as in a" in said and "F32 [5] in b" in said
    said = problem(llama("a"), llama("b", others=[tensor(NORM, (4,), "I32")]))
    assert "I32 [4] in b" in said


def test_a_model_without_a_head_of_its_own_is_merged_with_its_embedding() -> None:
    tied = llama("b", without=[HEAD], config={"tie_word_embeddings": True})
    recipe = "merge_method: linear\nparameters: {weight: 1}\n" + TWO
    for models in ((llama("a"), tied), (tied, llama("a"))):
        found = plan(recipe.replace(TWO, TWO if models[1] is tied else BACKWARDS), *models)
        names = [operand.tensor.name for operand in expressions(found)[HEAD].operands]
        assert sorted(names) == sorted([HEAD, EMBEDDING])
    both = plan(recipe, llama("a", without=[HEAD], config={"tie_word_embeddings": True}), tied)
    assert HEAD not in expressions(both)


def test_a_slice_with_a_base_of_its_own_is_merged_from_that() -> None:
    """A tensor of whole numbers is copied from the base of its slice, too."""
    recipe = (
        "merge_method: task_arithmetic\nbase_model: a\nparameters: {weight: 1}\nslices:\n"
        "  - sources: [{model: a, layer_range: [0, 1]}, {model: b, layer_range: [0, 1]}]\n"
        "  - sources: [{model: a, layer_range: [1, 2]}, {model: b, layer_range: [1, 2]}]\n"
        "    base_model: b\n"
    )
    order = [tensor("model.layers.1.mlp.order", (4,), "I64")]
    found = expressions(plan(recipe, *(away(llama(name, 2, others=order)) for name in "ab")))
    for name, base in ((UP.format(0), 0), (UP.format(1), 1), (EMBEDDING, 0), (HEAD, 1)):
        assert found[name].base == base
        assert [bool(o.params) for o in found[name].operands] == [base == 1, base == 0]
    assert found[order[0].name].operands[0].source == 1


def test_the_models_of_a_tensor_are_told_with_it() -> None:
    """The models have the order of the inputs, which is the recipe's."""
    recipe = "merge_method: linear\nparameters: {weight: 1}\n" + BACKWARDS
    for unit in plan(recipe, llama("a"), llama("b")).units:
        assert isinstance(unit.expression, Merged) and unit.expression.models == ("b", "a")
    part = "merge_method: linear\nparameters: {weight: 1}\nout_dtype: float16\nbase_model: a\n" + (
        "modules:\n  text_decoder: {models: [{model: b}]}\n"
    )
    tower = [tensor(f"visual.blocks.{n}.w.weight", (4, 4)) for n in range(2)]
    config = {"vision_config": {"depth": 2}}
    models = [llama(name, others=tower, config=config) for name in "ab"]
    found = units(plan(part, *models))[tower[0].name].expression
    assert isinstance(found, Merged) and found.models == ("a",)
    assert found.method == "passthrough"


def test_random_masks_are_those_of_the_published_names() -> None:
    """A mask depends on the published name, whichever name a version of transformers wrote."""
    recipe = (
        "merge_method: dare_linear\nbase_model: a\nparameters: {weight: 1, density: 0.5}\n"
        "models: [{model: b}]\n"
    )
    config = {"model_type": "mixtral", "num_local_experts": 2}
    own, published = "model.layers.0.mlp.gate.weight", "model.layers.0.block_sparse_moe.gate.weight"
    models = [llama(n, others=[tensor(own, (2, 4))], config=config) for n in "ab"]
    found = units(plan(recipe, *models, seed=7))
    assert all(isinstance(u.expression, Merged) and u.expression.seed == 7 for u in found.values())
    masked = found[own].expression
    assert isinstance(masked, Merged) and masked.name == published
    assert dict(found[own].tensors) == {own: (2, 4)}


def test_counters_and_positions_keep_their_dtype() -> None:
    names = ("model.steps", "model.position_ids")
    others = [tensor(names[0], (1,), "I64"), tensor(names[1], (1, 4))]
    models = [away(llama(name, others=others)) for name in "ab"]
    found = units(
        plan(f"merge_method: linear\nparameters: {{weight: 1}}\nout_dtype: float16\n{TWO}", *models)
    )
    assert [found[name].dtype for name in (*names, NORM)] == ["I64", "F32", "F16"]
    assert all(isinstance(found[name].expression, Stored) for name in names)


def away(source: Source) -> Source:
    """Return the model with files that are not on this disk: the plan compares no numbers."""
    files = {n: replace(file, present=False) for n, file in source.files.items()}
    return replace(source, files=files)
