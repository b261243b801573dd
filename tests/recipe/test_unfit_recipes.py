"""Each file in unfit/ reads well, and does not fit the models or the method: every problem is
reported at its line, before anything is written.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from merging import working_in
from tiny_models import LLAMA, llama_shapes, random_tensors, write_family, write_model

from resumerge.cli.main import main

UNFIT = Path(__file__).parent / "unfit"
BROKEN = Path(__file__).parent / "broken"

# file: for each problem its line, YAML path, and words of the message in this order
FACTS: dict[str, list[tuple[int | None, str, str]]] = {
    "empty_weight": [(5, "models[0].parameters.weight", "empty list for math … `weight: 0.5`")],
    "true_weight": [
        (5, "models[0].parameters.weight", "invalid value … 'true' … Write a number"),
        (7, "models[1].parameters.weight[1]", "'no' … Write a number"),
    ],
    "word_for_a_number": [(4, "parameters.weight", "a number that float32 can hold … 'half'")],
    "density_in_a_gradient": [
        (11, "models[0].parameters.density[1].value[1]", "a number from 0 to 1 … -0.2")
    ],
    "negative_count": [(4, "parameters.max_iter", "a whole number of at least 0 … -1")],
    "fraction_for_a_count": [(4, "parameters.max_iter", "not a whole number … 2.5 for tensor")],
    "word_for_true": [(5, "parameters.normalize", "true or false … 'yse'")],
    "infinite_weight": [(4, "parameters.weight", "a number that float32 can hold … inf")],
    "misspelled_parameter": [(7, "models[0].parameters.densty", "densty … Write 'density'")],
    "missing_parameter": [(1, "parameters", "'t' of slerp is missing … Add `t:` under parameters")],
    "missing_for_some_tensors": [
        (4, "models[0].parameters", "'weight' of linear is missing for math … lm_head")
    ],
    "unknown_method": [(2, "merge_method", "'tie' … Did you mean 'ties'?")],
    "method_in_capitals": [(1, "merge_method", "'TIES' … Did you mean 'ties'?")],
    "method_of_ones_own": [(1, "merge_method", "'trust_region' … RESUMERGE_METHODS … entry point")],
    "dtype_and_what_is_below": [
        (3, "dtype", "Unknown dtype … 'bf17'"),
        (6, "models[0].layer_range", "layer_range"),
        (9, "models[0].parameters.density", "a number from 0 to 1 … -0.2"),
        (12, "models[1].parameters.wieght", "wieght … Write 'weight'"),
    ],
    "no_base": [(1, "merge_method", "needs a base model … Add `base_model:`")],
    "too_many_models": [(3, "models", "exactly 2 models … 3 … Add or remove")],
    "past_the_end": [
        (8, "slices[1].sources[0].layer_range", "past the end of code … at most [0, 4] … [2, 5]")
    ],
    "deeper_model": [
        (
            4,
            "models[1]",
            "deep and math have different numbers of layers … 4 layers model.layers.* … 6 in deep "
            "… - model: math … layer_range: [0, 4] … - model: deep … layer_range: [0, 4]"
            " … - model: math … layer_range: [0, 4] … - model: deep … layer_range: [0, 6]",
        )
    ],
    "wider_model": [
        (4, "models[1]", "lm_head.weight … [48, 16], as in math … [48, 32] in wide; and 38 more")
    ],
    "wider_layers": [
        (6, "slices[1].sources[0]", "model.layers.1.input_layernorm.weight … F32 [16], as in math")
    ],
    "stacked_vocabularies": [
        (6, "slices[1].sources[0]", "differ in size … 48 tokens … 64 tokens in wordy … union")
    ],
    "first_without_config": [
        (
            3,
            "models[0]",
            "bare has no config.json … none; math has one … copy that of another model",
        )
    ],
    "empty_and_without_config": [
        (3, "models[0]", "bare has no config.json … none"),
        (5, "models[1].model", "model.safetensors, or … found:    nothing"),
    ],
    "base_without_its_layers": [
        (5, "slices[0]", "which layers of the base model this slice uses … `- model: base`")
    ],
    "no_such_module": [(3, "modules.defalt", "has no module 'defalt' … Did you mean 'default'?")],
    "module_twice": [(5, "modules.text_decoder", "default is named twice … Delete one")],
    "slices_past_the_end_of_a_module": [
        (7, "modules.default.slices[1].sources[0].layer_range", "at most [0, 4] … [3, 9]")
    ],
    "weights_that_cancel": [(1, "parameters", "do not sum to zero, or normalize: false")],
    "parameter_outside_parameters": [
        (3, "models[0].parameters", "'weight' of linear is missing"),
        (4, "models[0].weight", "not below 'parameters:' … Move it under"),
    ],
    "neither_true_nor_false": [
        (4, "parameters.normalize", "true or false … 0.5"),
        (5, "parameters.weight", "a number that float32 can hold … nan"),
    ],
    "unreachable_and_misspelled": [
        (2, "merge_method", "'tise' … Did you mean 'ties'?"),
        (5, "models[0].parameters.wieght", "wieght … Write 'weight'"),
        (6, "models[1].model", "does not exist: ./gone"),
        (7, "models[2].model", "not a model that can be read: math/config.json … config.json"),
        (8, "chat_template", "'chatnl' … Did you mean 'chatml'?"),
    ],
    "word_and_deeper_model": [
        (4, "models[0].parameters.weight", "'half'"),
        (5, "models[1]", "different numbers of layers"),
    ],
    "template_without_a_tokenizer": [(4, "chat_template", "math has none … delete chat_template")],
    "no_such_model": [(4, "models[1].model", "folder does not exist … ./mth … check the path")],
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write models that recipes of unfit/ name.

    These are `base`, `math`, `code`, a `deep` model of six layers, a `wide` one, a `wordy` one of
    more tokens, `bare` without config.json, and `empty` without any file.
    """
    folder = write_family(tmp_path_factory.mktemp("models"))
    changes = {
        "deep": {"num_hidden_layers": 6},
        "wide": {"hidden_size": 32},
        "wordy": {"vocab_size": 64},
    }
    for name, change in changes.items():
        config = {**LLAMA, **change}
        write_model(folder / name, random_tensors(llama_shapes(config), seed=5), config)
    write_model(folder / "bare", random_tensors(llama_shapes(LLAMA), seed=6))
    (folder / "bare" / "config.json").unlink()
    (folder / "empty").mkdir()
    return folder


def refused(
    recipe: Path, models: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> str:
    """Run ``resumerge run``, check that it writes nothing, and return its message."""
    before = {path: path.stat().st_mtime_ns for path in models.rglob("*")}
    monkeypatch.setattr(sys, "argv", ["resumerge", "run", str(recipe), "out", "--no-supervise"])
    with working_in(models), pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert {path: path.stat().st_mtime_ns for path in models.rglob("*")} == before
    said = capsys.readouterr()
    assert said.out == ""
    assert "-inf" not in said.err
    return said.err


@pytest.mark.parametrize("name", FACTS)
def test_says_where_what_and_the_way_out(
    name: str,
    models: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe = UNFIT / f"{name}.yaml"
    rest = said = refused(recipe, models, capsys, monkeypatch)
    assert said.count("  where:") == len(FACTS[name]), said
    for line, path, words in FACTS[name]:
        assert f"{recipe}, line {line}, at {path}\n" in said, said
        for part in words.split(" … "):
            assert part in rest, (part, said)
            rest = rest[rest.index(part) + len(part) :]


def test_every_unfit_file_is_in_the_table() -> None:
    assert {path.stem for path in UNFIT.iterdir()} == {*FACTS}


@pytest.mark.parametrize("path", sorted(BROKEN.iterdir()), ids=lambda path: path.stem)
def test_a_recipe_that_does_not_read_exits_likewise(
    path: Path,
    models: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = refused(path, models, capsys, monkeypatch)
    assert f"where:    {path}" in said
    assert "  do:" in said
