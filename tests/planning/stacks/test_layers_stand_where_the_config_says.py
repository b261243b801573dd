"""Promise: layers of another kind, or of too few, are found out before anything is merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from made_up_plans import expressions, llama, plan, tensor

from resumerge.errors import InputError, Problem
from resumerge.planning.stacks.kinds import continued
from resumerge.sources.types import Source

Kind = frozenset[tuple[str, tuple[int, ...]]]
STACK = "merge_method: passthrough\nslices:\n"
EXPERT = "model.layers.{}.mlp.gate.weight"


def kinds(text: str) -> list[Kind]:
    return [frozenset({(letter, ())}) for letter in text]


@pytest.mark.parametrize(
    ("layers", "count", "expected"),
    [
        ("AAAA", 6, "AAAAAA"),
        ("ABAB", 7, "ABABABA"),
        ("BAAAA", 7, "BAAAAAA"),
        ("ABAABA", 9, "ABAABAABA"),
        ("BABAABAA", 11, "BABAABAAAAA"),
        ("AB", 5, "ABABA"),
        ("ABC", 5, "ABCAB"),
        ("AAB", 6, "AABAAB"),
        ("ABAB", 3, "ABA"),
        ("ABBAB", 8, "ABBABABB"),
    ],
)
def test_a_rule_goes_on(layers: str, count: int, expected: str) -> None:
    found = continued(kinds(layers), count)
    assert "".join(next(iter(kind))[0] for kind in found) == expected


def mixed(
    name: str, pattern: str, config: Mapping[str, Any] | None = None, also: Sequence[str] = ()
) -> Source:
    """Return a model whose layers of the kind B have one more tensor."""
    others = [tensor(EXPERT.format(n), (4, 4)) for n, letter in enumerate(pattern) if letter == "B"]
    others += [tensor(name, (4,)) for name in also]
    return llama(name, len(pattern), others=others, config=config)


def slices(*ranges: tuple[str, int, int]) -> str:
    return STACK + "".join(
        f"  - sources: [{{model: {name}, layer_range: [{first}, {stop}]}}]\n"
        for name, first, stop in ranges
    )


def problem(recipe: str, *models: Source) -> Problem:
    with pytest.raises(InputError) as refused:
        plan(recipe, *models)
    [found] = refused.value.problems
    return found


def test_layers_of_two_kinds_stay_in_their_order() -> None:
    model = mixed("a", "ABABAB")
    plan(slices(("a", 0, 4), ("a", 2, 6)), model)
    found = problem(slices(("a", 0, 4), ("a", 1, 3), ("a", 4, 6)), model)
    assert found.what == "config.json expects a different kind of layer at this position"
    assert found.path == "slices[1].sources[0].layer_range"
    assert found.found == "layer 1 of a as layer 4 of the output"
    assert "ABABAB (a letter for each kind)" in found.expected


def test_the_first_slice_that_is_wrong_is_told() -> None:
    found = problem(slices(("a", 1, 3), ("a", 2, 6)), mixed("a", "ABABAB"))
    assert found.path == "slices[0].sources[0].layer_range"
    assert found.found == "layer 1 of a as layer 0 of the output"


def test_layers_of_one_kind_go_anywhere() -> None:
    found = plan(slices(("a", 1, 3), ("a", 0, 2)), llama("a"))
    assert not any("selects layers by their number" in note for note in found.notes)


def test_a_list_in_the_config_that_tells_the_kinds_apart_is_cut_with_them() -> None:
    moved = slices(("a", 1, 3))
    told = mixed("a", "ABAB", {"layer_types": ["x", "y", "x", "y"]})
    plan(moved, told)
    same = mixed("a", "ABAB", {"layer_types": ["x", "x", "x", "x"]})
    assert "different kind" in problem(moved, same).what
    wrong = mixed("a", "ABAB", {"layer_types": ["x", "y", "y", "x"]})
    assert "different kind" in problem(moved, wrong).what


def test_a_buffer_makes_no_kind() -> None:
    buffer = "model.layers.1.self_attn.rotary_emb.inv_freq"
    plan(slices(("a", 1, 3)), mixed("a", "AAA", also=[buffer]))


def test_a_number_that_decides_what_a_layer_does_is_told_where_numbers_change() -> None:
    periodic = {"full_attention_interval": 2}
    moved, kept = slices(("a", 1, 3)), slices(("a", 0, 2))
    [note] = [n for n in plan(moved, llama("a", config=periodic)).notes if "by their number" in n]
    assert note.startswith(
        "config.json's full_attention_interval: 2 selects layers by their number"
    )

    def notes(recipe: str, config: Mapping[str, Any]) -> list[str]:
        found = plan(recipe, llama("a", config=config))
        return [note for note in found.notes if "by their number" in note]

    assert notes(kept, periodic) == []
    assert notes(moved, {"full_attention_interval": 1}) == []
    assert notes(moved, {"use_interval": True}) == []
    for name in ("layer_types", "block_types"):
        assert notes(moved, {**periodic, name: ["x", "y", "x"]}) == []
    nested = {"text_config": {"num_hidden_layers": 3, "moe_period": 3}, "num_hidden_layers": None}
    assert len(notes(moved, nested)) == 1


def test_another_models_layers_are_like_one_of_the_references() -> None:
    recipe = slices(("a", 0, 2), ("b", 2, 3))
    plan(recipe, llama("a"), llama("b"))
    wide = tensor("model.layers.2.mlp.up_proj.weight", (4, 5))
    found = problem(recipe, llama("a"), llama("b", others=[wide]))
    assert found.what == "Shapes do not match in tensor model.layers.2.mlp.up_proj.weight"
    lacking = llama("b", without=["model.layers.2.mlp.up_proj.weight"])
    assert problem(recipe, llama("a"), lacking).what == "A tensor is missing from b"
    more = llama("b", others=[tensor(EXPERT.format(2), (4, 4))])
    assert problem(recipe, llama("a"), more).what == "A tensor of b would be lost"
    elsewhere = llama("b", others=[tensor(EXPERT.format(1), (4, 4))])
    plan(recipe, llama("a"), elsewhere)


def test_the_nearest_kind_is_what_a_layer_is_compared_with() -> None:
    """The nearest of the reference's kinds has the fewest other names, then fewest other shapes."""
    a = mixed("a", "ABAB")
    names = EXPERT.format(0), "model.layers.0.mlp.up_proj.weight"
    b = llama("b", 4, others=[tensor(names[0], (4, 4)), tensor(names[1], (4, 5))])
    found = problem(slices(("a", 0, 1), ("b", 0, 1), ("a", 2, 4)), a, b)
    assert found.what == f"Shapes do not match in tensor {names[1]}"


# How many layers


def test_a_range_ends_where_the_model_does() -> None:
    plan(slices(("a", 0, 3)), llama("a"))
    found = problem(slices(("a", 1, 4)), llama("a"))
    assert found.what == "The layer range goes past the end of a"
    assert found.expected == "at most [0, 3]: it has 3 layers"
    assert found.found == "[1, 4]"


def test_models_that_are_merged_whole_have_as_many_layers() -> None:
    recipe = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"
    for ours, theirs in ((3, 4), (4, 3)):
        found = problem(recipe, llama("a", ours), llama("b", theirs))
        assert found.what == "b and a have different numbers of layers"
        assert f"{ours} layers model.layers.*" in found.expected
        assert found.found == f"{theirs} in b"
        assert "the first 3 layers of each" in found.fix
        _, stacked = found.paste.split("# stacked:")
        assert f"- model: a\n    layer_range: [0, {ours}]\n" in stacked
        assert f"- model: b\n    layer_range: [0, {theirs}]\n" in stacked


def test_a_model_without_a_list_of_layers_cannot_be_sliced() -> None:
    bare = llama("a", 0)
    found = problem(slices(("a", 0, 1)), bare)
    assert found.what == "The layers of a cannot be sliced"
    assert (found.found, found.path) == ("none", "slices[0].sources[0].layer_range")
    assert found.fix == "Merge whole models with `models:` instead of `slices:`"


def test_a_layer_that_predicts_further_tokens_stays_the_last() -> None:
    rest = ("self_attn.q_proj.weight", "mlp.up_proj.weight", "input_layernorm.weight")
    extra = [tensor(f"model.layers.3.{r}", (4,) if "norm" in r else (4, 4)) for r in rest]
    model = llama("a", 3, others=extra, config={"num_nextn_predict_layers": 1})
    found = plan(slices(("a", 0, 2), ("a", 1, 3), ("a", 2, 3)), model)
    last = expressions(found)["model.layers.5.mlp.up_proj.weight"]
    assert last.operands[0].tensor.name == "model.layers.3.mlp.up_proj.weight"
    assert "model.layers.6.mlp.up_proj.weight" not in expressions(found)
    assert sum(unit.name == "model.layers.5.mlp.up_proj.weight" for unit in found.units) == 1


# How many models


@pytest.mark.parametrize(
    ("method", "models", "told"),
    [
        ("slerp", "ab", None),
        ("slerp", "abc", "slerp takes exactly 2 models"),
        ("slerp", "a", "slerp takes exactly 2 models"),
        ("nuslerp", "abc", None),
        ("nuslerp", "ab", "nuslerp takes exactly 2 models"),
        ("model_stock", "abc", None),
        ("model_stock", "ab", "model_stock takes at least 3 models"),
        ("linear", "a", None),
    ],
)
def test_a_method_takes_so_many_models(method: str, models: str, told: str | None) -> None:
    inputs = ", ".join(f"{{model: {name}}}" for name in models)
    recipe = f"merge_method: {method}\nbase_model: a\nmodels: [{inputs}]\n"
    recipe += "parameters: {weight: 1, t: 0.5}\n"
    sources = [llama(name) for name in models]
    if told is None:
        plan(recipe, *sources)
    else:
        assert problem(recipe, *sources).what == told


def test_a_method_that_reads_a_base_needs_one() -> None:
    recipe = "merge_method: {}\nmodels: [{{model: a}}, {{model: b}}]\nparameters: {{weight: 1}}\n"
    found = problem(recipe.format("task_arithmetic"), llama("a"), llama("b"))
    assert found.what == "task_arithmetic needs a base model"
    plan(recipe.format("nuslerp"), llama("a"), llama("b"))
