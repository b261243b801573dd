"""Promise: what one model lacks or has otherwise is copied, matched, or reported with its cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from made_up_plans import expression, expressions, llama, plan, tensor, units

from resumerge.errors import InputError, Problem
from resumerge.sources.types import Source
from resumerge.tensors import Stored

TWO = "models: [{model: a}, {model: b}]\n"
LINEAR = "merge_method: linear\nparameters: {weight: 1}\n"
UP = "model.layers.{}.mlp.up_proj.weight"
EMBEDDING, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
BUFFER = "model.layers.1.self_attn.rotary_emb.inv_freq"


def problems(recipe: str, *models: Source) -> list[Problem]:
    with pytest.raises(InputError) as refused:
        plan(recipe, *models)
    return list(refused.value.problems)


def problem(recipe: str, *models: Source) -> Problem:
    [found] = problems(recipe, *models)
    return found


# Buffers that a model computes


def test_a_buffer_that_one_lacks_is_copied_and_one_that_all_have_is_merged() -> None:
    buffer = tensor(BUFFER, (4,))
    having, lacking = (lambda n: llama(n, others=[buffer])), llama
    for models in ((having("a"), lacking("b")), (having("a"), having("b"))):
        merged = expressions(plan(LINEAR + TWO, *models))[BUFFER]
        both = BUFFER in models[1].tensors
        assert (merged.method, len(merged.operands)) == (("linear", 2) if both else ("copy", 1))
        assert merged.operands[0].source == 0
    assert BUFFER not in expressions(plan(LINEAR + TWO, lacking("a"), having("b")))


def test_a_module_of_one_other_model_has_to_fit_the_reference() -> None:
    """The output has the reference's config.json, also where a part comes from another model."""
    recipe = LINEAR + (
        "modules:\n  text_decoder: {models: [{model: a}]}\n  vision_tower: {models: [{model: b}]}\n"
    )

    def seeing(name: str, width: int, kind: str = "F32") -> Source:
        parts = [tensor(f"visual.blocks.{n}.w.weight", (4, width), kind) for n in range(2)]
        return llama(name, others=parts, config={"vision_config": {"depth": 2}})

    fitting = expressions(plan(recipe, seeing("a", 4), seeing("b", 4)))
    [operand] = fitting["visual.blocks.1.w.weight"].operands
    assert operand.source == 1
    found = problem(recipe, seeing("a", 4), seeing("b", 5))
    assert found.what == "Shapes do not match in tensor visual.blocks.0.w.weight"
    assert found.expected == "F32 [4, 4], as in a"
    assert found.found == "F32 [4, 5] in b; and 1 more"


def test_a_buffer_of_a_module_is_that_of_its_model() -> None:
    recipe = LINEAR + (
        "modules:\n  text_decoder: {models: [{model: a}]}\n  vision_tower: {models: [{model: b}]}\n"
    )
    buffer = "visual.blocks.0.rotary_emb.inv_freq"

    def seeing(name: str, length: int) -> Source:
        parts = [tensor(f"visual.blocks.{n}.w.weight", (4, 4)) for n in range(2)]
        parts.append(tensor(buffer, (length,)))
        return llama(name, others=parts, config={"vision_config": {"depth": 2}})

    assert units(plan(recipe, seeing("a", 4), seeing("b", 8)))[buffer].shape == (8,)


def test_a_whole_number_tensor_of_another_layer_is_copied_under_its_new_name() -> None:
    names = [f"model.layers.{n}.mlp.order" for n in range(3)]
    models = [llama(m, others=[tensor(name, (4,), "I64") for name in names]) for m in "ab"]
    # Not on this disk: the plan compares no numbers.
    models = [
        replace(m, files={n: replace(f, present=False) for n, f in m.files.items()}) for m in models
    ]
    recipe = LINEAR + (
        "slices:\n  - sources: [{model: a, layer_range: [1, 2]}, {model: b, layer_range: [2, 3]}]\n"
    )
    unit = units(plan(recipe, *models))[names[0]]
    assert expression(unit).operands[0].tensor.name == names[1]
    assert dict(unit.tensors) == {names[0]: (4,)}


def test_rows_that_must_not_be_split_are_whole_in_a_block() -> None:
    recipe = (
        "merge_method: della\nbase_model: a\nparameters: {weight: 1, density: 0.5, epsilon: 0.1}\n"
    )
    found = units(plan(recipe + TWO, *(llama(m, others=[tensor(HEAD, (9, 1000))]) for m in "ab")))
    assert found[HEAD].block_elements == 262 * 1000
    assert units(plan(LINEAR + TWO, llama("a"), llama("b")))[HEAD].block_elements == 1 << 18


# Names that filters are matched with


def values(recipe: str, *models: Source) -> dict[str, list[object]]:
    found = expressions(plan(recipe, *models))
    return {n: [o.params.get("weight") for o in e.operands] for n, e in found.items()}


def test_a_filter_knows_a_tensor_by_its_models_name_and_by_that_of_transformers() -> None:
    gate = "model.layers.0.block_sparse_moe.gate.weight"
    recipe = (
        "merge_method: linear\nparameters:\n  weight:\n"
        "    - {filter: mlp.gate, value: 7}\n    - {filter: text., value: 5}\n    - value: 1\n"
    )
    a = llama("a", others=[tensor(gate, (4, 4))])
    wrapped = {f"text.{n}": replace(t, name=f"text.{n}") for n, t in a.tensors.items()}
    b = replace(llama("b"), tensors=wrapped)
    found = values(recipe + TWO, a, b)
    assert found[gate] == [7, 7]
    assert found[UP.format(1)] == [1, 5], "each by the name in its own model"


def test_filters_for_the_merge_see_the_outputs_name_and_those_for_a_model_its_own() -> None:
    recipe = (
        "merge_method: {}\nbase_model: a\nparameters:\n  {}:\n"
        "    - {{filter: layers.0., value: 0.25}}\n    - {{filter: layers.2., value: 0.5}}\n"
        "    - value: 1\n"
        "slices:\n  - sources: [{{model: a, layer_range: [1, 3]}}, {{model: b, layer_range: "
        "[1, 3]}}]\n"
    )
    models = llama("a"), llama("b")
    merged = expressions(plan(recipe.format("slerp", "t"), *models))
    assert [merged[UP.format(n)].params["t"] for n in (0, 1)] == [0.25, 1]
    by_model = values(recipe.format("linear", "weight"), *models)
    assert by_model[UP.format(0)] == [1, 1] and by_model[UP.format(1)] == [0.5, 0.5]


# Heads that are tied


def test_the_output_gets_the_head_that_one_of_the_models_has_of_its_own() -> None:
    ties = {"tie_word_embeddings": True}
    tied = llama("a", without=[HEAD], config=ties)
    found = expressions(plan(LINEAR + TWO, tied, llama("b")))
    assert [o.tensor.name for o in found[HEAD].operands] == [EMBEDDING, HEAD]
    copied = llama("a", config=ties)  # a head that is stored though it is tied
    both = expressions(plan(LINEAR + TWO, copied, llama("b", without=[HEAD], config=ties)))
    assert [o.tensor.name for o in both[HEAD].operands] == [HEAD, EMBEDDING]


def test_a_tied_head_is_left_out_where_the_others_have_none_and_none_can_take_its_place() -> None:
    ties = {"tie_word_embeddings": True}
    stored = llama("a", config=ties)
    two_embeddings = [tensor("model.other.embed_tokens.weight", (3, 4))]
    lacking = llama("b", without=[HEAD], others=two_embeddings, config=ties)
    found = plan(LINEAR + TWO, stored, lacking)
    assert HEAD not in expressions(found)
    three = TWO.replace("}]", "}, {model: c}]")
    assert problem(LINEAR + three, stored, lacking, llama("c")).what == "A tensor is missing from b"


# Problems


def test_contradicting_parameters_are_told_once() -> None:
    recipe = "merge_method: linear\nmodels:\n  - {model: a, parameters: {weight: 1}}\n"
    recipe += "  - {model: b, parameters: {weight: -1}}\n"
    found = problem(recipe, llama("a"), llama("b"))
    assert found.what == "The parameters of linear contradict each other"
    assert found.found.startswith("weight 1 and -1, for tensor ")
    assert found.expected == "weights that do not sum to zero, or normalize: false"
    assert found.found.endswith(EMBEDDING)


def test_parameters_that_are_missing_are_not_said_to_contradict_each_other() -> None:
    found = problems("merge_method: linear\n" + TWO, llama("a"), llama("b"))
    assert {p.what for p in found} == {
        f"The parameter 'weight' of linear is missing for {name}" for name in "ab"
    }


def test_several_tensors_of_another_shape_are_one_problem() -> None:
    wide = [tensor(UP.format(n), (4, 5)) for n in range(3)]
    found = problem(LINEAR + TWO, llama("a"), llama("b", others=wide))
    assert found.what == f"Shapes do not match in tensor {UP.format(0)}"
    assert found.found == "F32 [4, 5] in b; and 2 more"


def vocabulary(name: str, tokens: int, **config: Any) -> Source:
    rows = [tensor(n, (tokens, 4)) for n in (EMBEDDING, HEAD)]
    return llama(name, others=rows, config={"vocab_size": tokens, **config})


def test_another_vocabulary_is_told_as_that_and_other_shapes_besides() -> None:
    models = vocabulary("a", 10), vocabulary("b", 12)
    found = problem(LINEAR + TWO, *models)
    assert found.what == "Vocabularies differ in size"
    assert found.expected.startswith("10 tokens, as in a;")
    assert found.found == "12 tokens in b, and no tokenizer option"
    wide = replace(models[1], tensors={**models[1].tensors, NORM: tensor(NORM, (5,))})
    told = [p.what for p in problems(LINEAR + TWO, models[0], wide)]
    assert sorted(told) == [
        f"Shapes do not match in tensor {NORM}",
        "Vocabularies differ in size",
    ]
    rows = {**models[1].tensors, HEAD: tensor(HEAD, (12, 5)), EMBEDDING: tensor(EMBEDDING, (12, 5))}
    hidden = replace(models[1], tensors=rows)
    assert "Shapes do not match" in problem(LINEAR + TWO, models[0], hidden).what


def experts(name: str, *tensors: Stored, **config: Any) -> Source:
    return llama(name, others=tensors, config=config)


def test_a_mismatch_says_its_likely_cause() -> None:
    single = tensor("model.layers.0.mlp.experts.0.gate_proj.weight", (4, 4))
    interleaved = tensor("model.layers.0.mlp.experts.gate_up_proj", (1, 4, 8))
    found = problem(LINEAR + TWO, experts("a", single), experts("b", interleaved))
    assert "gates and ups interleaved" in found.fix
    found = problem(LINEAR + TWO, experts("a", interleaved), experts("b", single))
    assert "gates and ups interleaved" in found.fix
    found = problem(LINEAR + TWO, experts("a", single), experts("b", model_type="bert"))
    assert found.fix.endswith("b has model_type bert, a has llama")
    found = problem(LINEAR + TWO, experts("a", single), experts("b"))
    assert found.fix.endswith("check that b was saved completely"), "which lacks a tensor"
    found = problem(LINEAR + TWO, experts("a"), experts("b", single))
    assert found.fix.endswith("check that a was saved completely")


def test_what_both_sides_have_more_is_one_problem() -> None:
    one, two = "model.layers.0.mlp.one.weight", "model.layers.0.mlp.two.weight"
    a, b = llama("a", others=[tensor(one, (4,))]), llama("b", others=[tensor(two, (4,))])
    found = problem(LINEAR + TWO, a, b)
    assert found.what == "A tensor is missing from b"
    assert found.expected == f"{one}, as in a"
    assert found.found == f"no such tensor; b has 1 that a lacks: {two}"


def test_a_long_list_of_names_is_cut() -> None:
    others = [tensor(f"model.layers.0.mlp.{c}.weight", (4,)) for c in "opqrstuv"]
    found = problem(LINEAR + TWO, llama("a", others=others), llama("b"))
    assert found.what == "8 tensors are missing from b"
    assert found.expected == (
        ", ".join(f"model.layers.0.mlp.{c}.weight" for c in "opqrst") + " and 2 more kinds, as in a"
    )


# config.json


def configured(name: str, config: Mapping[str, Any] | None) -> Source:
    model = llama(name)
    return model if config is None else replace(model, config=config)


def test_without_any_config_a_note_says_so() -> None:
    found = plan(LINEAR + TWO, configured("a", {}), configured("b", {}))
    assert any("no model has a config.json" in note for note in found.notes)


def test_the_reference_needs_a_config_where_another_has_one() -> None:
    found = problem(LINEAR + TWO, configured("a", {}), llama("b"))
    assert (found.what, found.path) == ("a has no config.json", "models[0]")
    assert found.found == "none; b has one"
    based = problem(LINEAR + TWO + "base_model: b\n", llama("a"), configured("b", {}))
    assert based.path == "base_model"


def test_another_models_config_is_assumed_to_be_the_references() -> None:
    found = plan(LINEAR + TWO, llama("a"), configured("b", {}))
    assert "b has no config.json: the one of a is assumed" in found.notes


# What the output lacks


def test_what_is_left_out_outside_the_layers_is_noted() -> None:
    extra = tensor("score.weight", (4, 4))
    found = plan(LINEAR + TWO, llama("a"), llama("b", others=[extra]))
    assert "score.weight" not in expressions(found)
    assert any(
        note.startswith("b has 1 tensor that a lacks") and note.endswith("score.weight")
        for note in found.notes
    )
    same = plan(LINEAR + TWO, llama("a"), llama("b"))
    assert not any("that a lacks" in note for note in same.notes)


def test_a_tied_head_that_is_stored_is_not_said_to_be_lost() -> None:
    ties = {"tie_word_embeddings": True}
    found = plan(LINEAR + TWO, llama("a", without=[HEAD], config=ties), llama("b", config=ties))
    assert not any("lacks" in note for note in found.notes)


def test_a_model_without_tensors_has_nothing_to_merge() -> None:
    nothing = replace(llama("a"), tensors={})
    found = problem("merge_method: passthrough\nmodels: [{model: a}]\n", nothing)
    assert found.what == "There are no tensors to merge"
