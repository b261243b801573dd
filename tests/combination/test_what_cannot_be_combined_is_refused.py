"""What cannot be combined without the base model is refused by name, and nothing is written."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lora_files import changes_in, write_lora_files
from merging import merge, tensors_of, working_in
from tiny_models import write_family

import resumerge
from resumerge.errors import InputError, Problem
from resumerge.methods import METHODS
from resumerge.recipe import parse_recipe

MODULES = {"model.layers.0.self_attn.q_proj": (16, 16), "model.layers.1.mlp.up_proj": (40, 16)}
ENTRIES = """models:
- {model: one, parameters: {weight: 0.5}}
- {model: two, parameters: {weight: 0.5}}
"""
LINEAR = "merge_method: linear\n" + ENTRIES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_lora_files(tmp_path / "one", MODULES, 1)
    return tmp_path


def refused(folder: Path, recipe: str = LINEAR) -> Problem:
    """Return a recipe's first problem; check that nothing is written, and a plan has problems."""
    with pytest.raises(InputError) as error:
        merge(folder, recipe, folder / "out")
    assert not (folder / "out").exists()
    with working_in(folder):
        assert resumerge.plan("out.yaml")["problems"]
    problem = error.value.problems[0]
    assert problem.what and problem.where and problem.expected and problem.found and problem.fix
    return problem


def second(folder: Path, *, modules: Any = MODULES, more: Any = None, **config: Any) -> None:
    write_lora_files(folder / "two", modules, 2, more=more, **config)


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"use_dora": True}, "DoRA"),
        ({"peft_type": "VERA"}, "VERA"),
        ({"peft_type": "IA3"}, "IA3"),
        ({"lora_bias": True}, "lora_bias|biases"),
        ({"init_lora_weights": "pissa"}, "changed copy"),
        ({"r": 5}, "another rank"),
        ({"peft_type": None}, "config is invalid"),
    ],
)
def test_other_kinds(config: dict[str, Any], what: str, folder: Path) -> None:
    second(folder, **config)
    problem = refused(folder)
    import re

    assert re.search(what, f"{problem.what} {problem.found}"), problem
    assert "two" in f"{problem.what} {problem.where}"


def test_magnitudes_and_rows_of_tokens_by_their_module(folder: Path) -> None:
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector"
    second(folder, more={name: torch.ones(16)})
    problem = refused(folder)
    assert "DoRA" in problem.what and "layers.0.self_attn.q_proj" in problem.found


def test_rows_of_tokens(folder: Path) -> None:
    name = "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta"
    second(folder, more={name: torch.ones(2, 16)}, trainable_token_indices=[1, 2])
    assert "rows of tokens" in refused(folder).what


def test_a_tensor_of_an_unknown_kind(folder: Path) -> None:
    second(folder, more={"base_model.model.model.layers.0.mlp.lora_C.weight": torch.ones(2)})
    assert "lora_C" in refused(folder).found


def test_one_matrix_without_the_other(folder: Path) -> None:
    second(folder, more={"base_model.model.lm_head.lora_A.weight": torch.ones(4, 16)})
    assert "lm_head" in refused(folder).found


def test_other_shapes(folder: Path) -> None:
    second(folder, modules={**MODULES, "model.layers.1.mlp.up_proj": (48, 16)})
    problem = refused(folder)
    assert "up_proj has another shape in two" in problem.what
    assert "[40]" in problem.expected and "[48]" in problem.found


HEAD = {"base_model.model.lm_head.weight": torch.ones(48, 16)}


def test_what_one_has_whole_and_another_lacks(folder: Path) -> None:
    second(folder, more=HEAD, modules_to_save=["lm_head"])
    problem = refused(folder)
    assert "lm_head.weight of two: one lacks it" in problem.found


@pytest.mark.parametrize(
    ("method", "found"),
    [("ties", "ties is no weighted sum"), ("task_arithmetic", "the factors add up to 1.2")],
)
def test_what_all_have_whole_but_is_not_averaged(method: str, found: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_lora_files(tmp_path / name, MODULES, 0, more=HEAD, modules_to_save=["lm_head"])
    recipe = LINEAR.replace("linear", method).replace("0.5", "0.6")
    with pytest.raises(InputError) as error:
        merge(tmp_path, recipe, tmp_path / "out")
    assert all(found in problem.found for problem in error.value.problems)


def test_other_copies_of_the_base_model(tmp_path: Path) -> None:
    """peft saves embeddings beside their matrices: they are those of the base model."""
    name = "base_model.model.lm_head.base_layer.weight"
    modules = {"lm_head": (48, 16)}
    for number, folder in enumerate(("one", "two", "three")):
        copy = torch.ones(48, 16) + (number == 2)
        write_lora_files(tmp_path / folder, modules, number, more={name: copy})
    out = merge(tmp_path, LINEAR, tmp_path / "out")
    assert torch.equal(tensors_of(out)[name], torch.ones(48, 16))
    (tmp_path / "out.yaml").unlink()
    with pytest.raises(InputError, match="different copies") as error:
        merge(tmp_path, LINEAR.replace("two", "three"), tmp_path / "other")
    assert "lm_head.weight" in error.value.problems[0].found


def test_methods_that_need_the_weights_themselves(folder: Path) -> None:
    second(folder)
    others = [name for name, method in METHODS.items() if not method.combines_changes]
    assert {"slerp", "karcher", "nearswap", "arcee_fusion"} <= {*others}
    for name in others:
        recipe = f"merge_method: {name}\nparameters: {{t: 0.5}}\n{ENTRIES}"
        with pytest.raises(InputError) as error:
            merge(folder, recipe, folder / "out")
        assert not (folder / "out").exists()
        assert str(error.value)


def test_models_beside_adapters(folder: Path) -> None:
    write_family(folder)
    problem = refused(folder, LINEAR.replace("two", "math"))
    assert "one is an adapter, and math is none" in problem.what
    assert "write it after the model" in problem.fix
    problem = refused(folder, "merge_method: ties\nbase_model: base\nmodels: [{model: one, "
                      "parameters: {weight: 1, density: 1}}]\n")  # fmt: skip
    assert "base+one" in problem.fix


@pytest.mark.parametrize(
    "line", ["tokenizer_source: base", "chat_template: chatml", "out_dtype: fp8_block",
             "experts: together", "extract_expert: 1"]
)  # fmt: skip
def test_keys_of_models(line: str, folder: Path) -> None:
    second(folder)
    with pytest.raises(InputError) as error:
        merge(folder, LINEAR + line.replace("base", "one") + "\n", folder / "out")
    assert not (folder / "out").exists()
    assert line.partition(":")[0].replace("_source", "") in str(error.value)


def test_slices(folder: Path) -> None:
    second(folder)
    recipe = "merge_method: linear\nslices:\n- sources:\n"
    recipe += "  - {model: one, layer_range: [0, 1], parameters: {weight: 1}}\n"
    assert "combined whole" in refused(folder, recipe).what


@pytest.mark.parametrize("name", ["out.safetensors", "out.gguf"])
def test_an_output_that_is_no_folder(name: str, folder: Path) -> None:
    second(folder)
    with pytest.raises(InputError, match="An adapter is a folder"):
        merge(folder, LINEAR, folder / name)
    assert not (folder / name).exists()


def test_a_stage(folder: Path) -> None:
    second(folder)
    write_family(folder)
    recipe = f"name: both\n{LINEAR}---\nmerge_method: linear\nmodels:\n"
    recipe += "- {model: both, parameters: {weight: 1}}\n"
    with pytest.raises(InputError):
        merge(folder, recipe, folder / "out")
    assert not (folder / "out").exists()


def test_a_sweep(folder: Path) -> None:
    second(folder)
    sweep = "sweep: {'models[0].parameters.weight': [0.2, 0.6]}\n"
    with pytest.raises(InputError) as error:
        merge(folder, LINEAR + sweep, folder / "out")
    assert not (folder / "out").exists()
    assert "sweep" in str(error.value)


@pytest.mark.parametrize("rank", ["0", "-1", "1.5", "high", "true"])
def test_ranks_that_are_none(rank: str) -> None:
    with pytest.raises(InputError, match="not a rank"):
        parse_recipe(f"{LINEAR}rank: {rank}\n")


def test_a_rank_of_models(folder: Path) -> None:
    write_family(folder)
    recipe = LINEAR.replace("one", "math").replace("two", "code")
    assert "rank" in refused(folder, recipe + "rank: 4\n").what


def test_parameters_that_contradict_each_other(folder: Path) -> None:
    second(folder)
    recipe = LINEAR.replace("0.5}}\n- ", "-0.5}}\n- ")
    problem = refused(folder, recipe)
    assert "contradict" in problem.what and "normalize: false" in problem.expected


def test_a_missing_parameter_is_the_only_problem(folder: Path) -> None:
    second(folder)
    recipe = "merge_method: linear\nmodels: [{model: one}, {model: two}]\n"
    with pytest.raises(InputError) as error:
        merge(folder, recipe, folder / "out")
    said = [problem.what for problem in error.value.problems]
    assert [what for what in said if "is missing" in what] == said != []


def test_a_method_of_models_is_not_asked_for_its_base(folder: Path) -> None:
    second(folder)
    recipe = "merge_method: slerp\nparameters: {t: 0.5}\nmodels: [{model: one}, {model: two}]\n"
    with pytest.raises(InputError) as error:
        merge(folder, recipe, folder / "out")
    [problem] = error.value.problems
    assert "slerp does not combine adapters" in problem.what


def test_a_misspelt_adapter_is_the_only_problem(folder: Path) -> None:
    with pytest.raises(InputError) as error:
        merge(folder, LINEAR.replace("linear", "ties").replace("two", "./tow"), folder / "out")
    [problem] = error.value.problems
    assert "does not exist" in problem.what


def test_files_of_matrices_alone_are_told_to_be_adapters(folder: Path) -> None:
    second(folder)
    for name in ("one", "two"):
        (folder / name / "adapter_model.safetensors").rename(folder / f"{name}.safetensors")
    files = LINEAR.replace("one", "./one.safetensors").replace("two", "./two.safetensors")
    with working_in(folder):
        (folder / "files.yaml").write_text(files)
        told = [note for note in resumerge.plan("files.yaml")["notes"] if "A times B" in note]
        assert told and told[0] in resumerge.run("files.yaml", "merged.safetensors").notes
    (folder / "two.safetensors").rename(folder / "two" / "adapter_model.safetensors")
    problem = refused(folder, LINEAR.replace("one", "./one.safetensors"))
    assert "is an adapter without an adapter_config.json" in problem.what


def test_too_few(folder: Path) -> None:
    assert (
        "exactly 2"
        in refused(
            folder, "merge_method: nuslerp\nmodels: [{model: one, parameters: {weight: 1}}]\n"
        ).expected
    )


def test_names_of_other_versions_are_matched_by_meaning(folder: Path) -> None:
    spelled = {name.replace("model.", "language_model.model.", 1): s for name, s in MODULES.items()}
    second(folder, modules=spelled)
    found = changes_in(merge(folder, LINEAR, folder / "out"))
    assert found.keys() == MODULES.keys()
    config = json.loads((folder / "out/adapter_config.json").read_text())
    assert config["r"] == 8
