"""A Recipe has the values that are written in YAML, under mergekit's rules."""

import json

import pytest

from resumerge.recipe import Conditional, ModelRef, Setting, parse_recipe
from resumerge.recipe.normalized import normalized

HEAD = "merge_method: linear\nmodels:\n  - model: org/a\n  - model: org/b\n"


def weight(yaml: str) -> Setting:
    recipe = parse_recipe(f"merge_method: m\nmodels: [{{model: org/a}}]\nparameters: {{w: {yaml}}}")
    return recipe.parameters["w"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("1", 1),
        ("0.5", 0.5),
        ("1e-3", 0.001),  # text in YAML 1.1
        ("'2'", 2.0),
        ("true", True),
        ("sum", "sum"),
        (".inf", float("inf")),
        ("[0, 1, true, '2']", (0.0, 1.0, 1.0, 2.0)),
        ("[]", ()),
        ("[{filter: mlp, value: [0, 1]}, {value: 3}]", None),
        ("{filter: mlp, value: 1}", (Conditional("mlp", 1),)),
    ],
)
def test_values(written: str, meant: Setting | None) -> None:
    if meant is None:
        meant = (Conditional("mlp", (0.0, 1.0)), Conditional(None, 3))
    assert weight(written) == meant


def test_nan_is_taken_and_noted() -> None:
    recipe = parse_recipe(HEAD + "parameters: {weight: [{filter: mlp, value: [0, .nan]}]}")
    assert recipe.notes == (
        "parameters.weight is NaN: every tensor that it applies to becomes NaN",
    )


def test_models_are_one_slice_and_an_unlisted_base_is_its_last_input() -> None:
    recipe = parse_recipe(HEAD + "base_model: org/base")
    assert not recipe.modules[0].stacked
    [slice_] = recipe.slices
    assert [str(input_.model) for input_ in slice_.inputs] == ["org/a", "org/b", "org/base"]
    assert (slice_.inputs[2].parameters, slice_.inputs[2].path) == ({}, "base_model")


def test_a_listed_base_keeps_its_place() -> None:
    recipe = parse_recipe(HEAD + "base_model: org/a")
    assert [str(input_.model) for input_ in recipe.slices[0].inputs] == ["org/a", "org/b"]


def test_slices_keep_their_ranges_parameters_and_base() -> None:
    recipe = parse_recipe(
        "merge_method: slerp\n"
        "slices:\n"
        "  - sources:\n"
        "      - {model: org/a, layer_range: ['0', 2.0], parameters: {w: 1}}\n"
        "      - {model: org/b, layer_range: [3, 5]}\n"
        "    base_model: org/b\n"
        "    parameters: {t: [0, 1]}\n"
        "base_model: org/a\n"
    )
    [slice_] = recipe.slices
    assert recipe.modules[0].stacked
    assert [input_.layer_range for input_ in slice_.inputs] == [(0, 2), (3, 5)]
    assert slice_.inputs[0].parameters == {"w": 1}
    assert slice_.parameters == {"t": (0.0, 1.0)}
    assert slice_.base_model == ModelRef("org/b", "org/b")
    assert slice_.inputs[1].path == "slices[0].sources[1]"
    assert recipe.line(slice_.inputs[1].path) == 5


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_dtypes(name: str) -> None:
    assert parse_recipe(HEAD + f"dtype: {name}\nout_dtype: torch.{name}").dtype == name
    assert parse_recipe(HEAD + f"out_dtype: torch.{name}").out_dtype == name


def test_null_and_empty_stand_for_absent() -> None:
    recipe = parse_recipe(
        HEAD + "slices: []\nbase_model: null\nparameters:\ndtype: ''\nout_dtype:\ntokenizer: null"
    )
    assert (recipe.base_model, recipe.dtype, recipe.out_dtype) == (None, None, None)
    assert (recipe.parameters, recipe.notes, recipe.modules[0].stacked) == ({}, (), False)


@pytest.mark.parametrize("source", ["union", "base", "org/b"])
def test_tokenizer_source_is_short_for_tokenizer(source: str) -> None:
    short = parse_recipe(HEAD + f"tokenizer_source: {source}")
    long = parse_recipe(HEAD + f"tokenizer: {{source: {source}}}")
    assert normalized(short) == normalized(long) != normalized(parse_recipe(HEAD))


def test_options_of_the_command_line_are_noted_and_change_nothing() -> None:
    plain = parse_recipe(HEAD)
    recipe = parse_recipe(HEAD + "name: mine\nint8_mask: true\nout_shard_size: 2GB\n")
    assert len(recipe.notes) == 3
    assert normalized(recipe) == normalized(plain)


def test_a_weight_that_mergekit_reads_and_forgets_is_noted_wherever_it_stands() -> None:
    slices = "slices:\n  - sources: [{model: a, layer_range: [0, 2]}]\n    residual_weight: 0.5\n"
    note = "residual_weight has no effect: mergekit reads it and does nothing with it"
    assert parse_recipe("merge_method: m\n" + slices).notes == (note,)


def test_normalized_does_not_depend_on_order_comments_or_the_spelling_of_numbers() -> None:
    one = parse_recipe(HEAD + "parameters: {a: 1, b: [0, 1]}\ndtype: float16")
    two = parse_recipe(
        "# again\ndtype: torch.float16\nparameters: {b: [0.0, 1.0], a: 1.0}\n" + HEAD
    )
    assert json.dumps(normalized(one)) == json.dumps(normalized(two))
    assert normalized(one) != normalized(parse_recipe(HEAD + "parameters: {a: 2}"))


RICH = """
merge_method: slerp
base_model: a
dtype: float32
out_dtype: bfloat16
chat_template: chatml
tokenizer: {source: a, pad_to_multiple_of: 8, tokens: {x: {source: b, force: true}}}
parameters: {t: 0.5}
slices:
  - base_model: b
    parameters: {t: [0, 1]}
    sources:
      - {model: b, layer_range: [0, 2]}
      - {model: c, layer_range: [1, 3], parameters: {weight: {filter: mlp, value: 1}}}
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("method: slerp", "method: nuslerp"),
        ("\nbase_model: a", "\nbase_model: b"),
        ("\nbase_model: a", ""),
        ("dtype: float32", "dtype: float16"),
        ("out_dtype: bfloat16", "out_dtype: float16"),
        ("chatml", "alpaca"),
        ("{source: a,", "{source: union,"),
        ("pad_to_multiple_of: 8", "pad_to_multiple_of: 16"),
        ("tokens: {x:", "tokens: {y:"),
        ("{source: b,", "{source: c,"),
        ("force: true", "force: false"),
        ("{t: 0.5}", "{t: 0.4}"),
        ("- base_model: b\n    parameters", "- parameters"),
        ("- base_model: b", "- base_model: c"),
        ("{t: [0, 1]}", "{t: [1, 0]}"),
        ("{model: b, layer", "{model: a, layer"),
        ("[0, 2]", "[2, 4]"),
        ("[1, 3]", "[2, 4]"),
        ("filter: mlp", "filter: attn"),
        ("value: 1", "value: 2"),
    ],
)
def test_whatever_decides_the_result_makes_another_recipe(old: str, new: str) -> None:
    assert RICH.count(old) == 1
    changed = parse_recipe(RICH.replace(old, new))
    assert normalized(changed) != normalized(parse_recipe(RICH))


MODULES = """
merge_method: linear
base_model: base
experts: together
tokenizer:
  tokens:
    x: {source: {kind: model_token, model: only-its-token, token: y}}
    z: {source: {kind: model_token, model: a, token_id: 4}}
parameters: {weight: 1}
modules:
  text:
    parameters: {weight: 0.5}
    models: [{model: a, parameters: {weight: 2}}, {model: b}]
  audio:
    base_model: audio-base
    models: [{model: b}]
  vision:
    base_model: vision-base
    slices:
      - sources: [{model: c, layer_range: [0, 2]}]
      - sources: [{model: c, layer_range: [2, 4]}]
        base_model: slice-base
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\nexperts: together", ""),
        ("token: y", "token: x"),
        ("token_id: 4", "token_id: 5"),
        ("  text:", "  words:"),
        ("{weight: 0.5}", "{weight: 0.4}"),
        ("base_model: audio-base", "base_model: base"),
        ("    base_model: vision-base\n", ""),
        ("base_model: slice-base", "base_model: vision-base"),
        ("[2, 4]", "[4, 6]"),
    ],
)
def test_whatever_decides_a_module_makes_another_recipe(old: str, new: str) -> None:
    assert MODULES.count(old) == 1
    changed = parse_recipe(MODULES.replace(old, new))
    assert normalized(changed) != normalized(parse_recipe(MODULES))


def test_a_module_takes_its_own_base_model_before_the_recipes_and_a_slice_its_own_first() -> None:
    text, audio, vision = parse_recipe(MODULES).modules
    assert [(str(i.model), i.path) for i in text.slices[0].inputs[1:]] == [
        ("b", "modules.text.models[1]"),
        ("base", "base_model"),
    ]
    assert text.slices[0].base_model is None
    assert [(str(i.model), i.path) for i in audio.slices[0].inputs] == [
        ("b", "modules.audio.models[0]"),
        ("audio-base", "modules.audio.base_model"),
    ]
    assert str(audio.slices[0].base_model) == "audio-base"
    assert [str(slice_.base_model) for slice_ in vision.slices] == ["vision-base", "slice-base"]
    assert [len(slice_.inputs) for slice_ in vision.slices] == [1, 1]


def test_every_model_is_opened_once_and_those_of_tokens_are_not_merged() -> None:
    recipe = parse_recipe(MODULES)
    merged = ["a", "b", "base", "audio-base", "c", "vision-base", "slice-base"]
    assert [str(ref) for ref in recipe.merged_models] == merged
    assert [str(ref) for ref in recipe.models] == [*merged, "only-its-token"]


def test_every_level_of_parameters_has_its_place() -> None:
    assert parse_recipe(MODULES).parameter_scopes() == [
        ("parameters", {"weight": 1}),
        ("modules.text.parameters", {"weight": 0.5}),
        ("modules.text.models[0].parameters", {"weight": 2}),
    ]
    assert [path for path, _ in parse_recipe(RICH).parameter_scopes()] == [
        "parameters",
        "slices[0].parameters",
        "slices[0].sources[1].parameters",
    ]
