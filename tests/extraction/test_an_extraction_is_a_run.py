"""An extraction is journaled, resumed to the same bytes, verified, reproduced and told of."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from adapter_runs import check_a_kill, run
from merging import Told, shards_of, working_in
from safetensors.torch import load_file
from stage_recipes import write_adapter
from tiny_models import LLAMA, write_family

import resumerge
from resumerge.errors import InputError
from resumerge.recipe import parse_recipe
from resumerge.tensors import Factors

RECIPE = "extract_lora: {model: math, max_rank: 4}\nbase_model: base\n"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    write_family(tmp_path, LLAMA)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return tmp_path


@pytest.mark.parametrize("computed", [1, 9, 27])
def test_killed_anywhere_and_resumed_it_has_the_same_bytes(
    computed: int, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_a_kill(models, Factors, computed, monkeypatch)


def test_the_number_of_threads_changes_no_bit(models: Path) -> None:
    assert shards_of(run(models, "one", threads=1)) == shards_of(run(models, "two", threads=3))


def test_what_is_kept_is_told_of_each_module(models: Path) -> None:
    out = run(models, "out")
    with working_in(models):
        [told] = resumerge.status("out", state_dir="out.state")["runs"]
        found = told["extraction"]
        assert told["accounts"]["numbers"] is None
        assert resumerge.verify("out", state_dir="out.state").damaged == {}
    modules = {each["module"]: each["kept"] for each in found["modules"]}
    assert len(modules) == 28
    assert all(0.1 < kept < 1.0 for kept in modules.values())
    assert min(modules.values()) < found["kept"] < max(modules.values())
    card = (out / "README.md").read_text()
    for name, kept in modules.items():
        escaped = name.replace("_proj", r"\_proj") if "_proj" not in card else name
        assert f"| {escaped} | 4 | {100 * kept:.2f} % |" in card


def test_it_is_made_again_from_its_card(models: Path) -> None:
    out = run(models, "out")
    with working_in(models):
        made = resumerge.reproduce("out", "again", state_dir="out.state")
    assert made.identical
    assert shards_of(models / "again") == shards_of(out)


def test_a_plan_says_what_will_be_saved_whole(models: Path) -> None:
    with working_in(models):
        told = resumerge.plan("recipe.yaml")
    assert told["problems"] == [] and told["shards"] == 1
    assert any("saved whole" in note for note in told["notes"])


def test_it_is_explained(models: Path) -> None:
    with working_in(models):
        told = resumerge.explain("recipe.yaml")
    assert "extract_lora" in str(told)


def test_models_of_other_sizes_are_refused_in_a_few_lines(models: Path) -> None:
    wide = {**LLAMA, "hidden_size": 32, "num_attention_heads": 4}
    write_family(models / "wide", wide)
    with working_in(models), pytest.raises(InputError) as refused:
        resumerge.extract_lora("wide/math", "base", "out")
    problems = refused.value.problems
    assert len(problems) == 5
    assert all("has another shape in the base model" in problem.what for problem in problems)


def test_models_that_are_equal_are_refused(models: Path) -> None:
    shutil.copytree(models / "base", models / "copy")
    with working_in(models), pytest.raises(InputError, match="copy equals base"):
        resumerge.extract_lora("copy", "base", "out")
    assert not (models / "out").exists()


def test_a_tensor_of_one_model_alone_is_refused_by_name(models: Path) -> None:
    more = {**LLAMA, "num_hidden_layers": 5}
    write_family(models / "larger", more)
    with working_in(models), pytest.raises(InputError) as refused:
        resumerge.extract_lora("larger/math", "base", "out")
    [problem] = refused.value.problems
    assert "model.layers.4." in problem.found and "larger/math" in problem.what


def test_other_shapes_are_refused_by_name(models: Path) -> None:
    write_family(models / "wider", {**LLAMA, "intermediate_size": 48})
    with working_in(models), pytest.raises(InputError) as refused:
        resumerge.extract_lora("wider/math", "base", "out")
    assert any("mlp.gate_proj" in problem.what for problem in refused.value.problems)


@pytest.mark.parametrize("name", ["out.safetensors", "out.gguf"])
def test_an_adapter_is_a_folder(name: str, models: Path) -> None:
    with working_in(models), pytest.raises(InputError, match="An adapter is a folder"):
        resumerge.extract_lora("math", "base", name)
    assert not (models / name).exists()


def test_an_adapter_is_not_quantised() -> None:
    with pytest.raises(InputError, match="An adapter is not quantised"):
        parse_recipe(RECIPE + "out_dtype: fp8_block\n")


def test_a_quantised_model_counts_as_what_its_numbers_stand_for(models: Path) -> None:
    """`quantised` is in float8, and `plain` the same numbers in float32."""
    copy = "merge_method: passthrough\nmodels: [{model: MODEL}]\n"
    extracted = {}
    for name, model, more in (
        ("quantised", "math", "out_dtype: fp8_channel\n"),
        ("plain", "quantised", "dtype: float32\n"),
    ):
        (models / "recipe.yaml").write_text(copy.replace("MODEL", model) + more)
        run(models, name)
    for name in ("quantised", "plain"):
        text = RECIPE.replace("math", name) + "out_dtype: float32\n"
        (models / "recipe.yaml").write_text(text)
        extracted[name] = load_file(run(models, f"of-{name}") / "adapter_model.safetensors")
    stored = load_file(models / "quantised" / "model.safetensors")
    assert any("scale" in name for name in stored)
    assert extracted["quantised"].keys() == extracted["plain"].keys()
    for name, tensor in extracted["plain"].items():
        if "lora" in name:
            assert torch.equal(tensor, extracted["quantised"][name]), name


def test_what_an_adapter_changed_is_extracted_again(models: Path) -> None:
    adapter = write_adapter(models / "adapter")
    recipe = RECIPE.replace("max_rank: 4", "max_rank: 2").replace("math", f"base+{adapter}")
    (models / "recipe.yaml").write_text(recipe + "out_dtype: float32\n")
    out = run(models, "out")
    [told] = resumerge.status(out, state_dir=models / "out.state")["runs"]
    kept = {row["module"]: row["kept"] for row in told["extraction"]["modules"]}
    assert kept.keys() == {"model.layers.1.mlp.up_proj", "model.layers.3.self_attn.q_proj"}
    assert all(share > 0.9999 for share in kept.values())


def test_keys_of_merges_are_refused() -> None:
    with pytest.raises(InputError, match="either 'extract_lora'"):
        parse_recipe(RECIPE + "merge_method: linear\n")


def test_a_misspelt_key_is_that_of_an_extraction() -> None:
    with pytest.raises(InputError) as refused:
        parse_recipe(RECIPE.replace("extract_lora", "extract_lorra"))
    [problem] = refused.value.problems
    assert problem.path == "extract_lorra"
    assert "Did you mean 'extract_lora'?" in problem.fix


@pytest.mark.parametrize(
    "wrong", ["max_rank: 0", "sv_epsilon: -1", "embed_lora: 1", "include: ['(']", "save_modules: 3"]
)
def test_values_of_other_kinds_are_refused(wrong: str) -> None:
    text = f"extract_lora: {{model: math, {wrong}}}\nbase_model: base\n"
    with pytest.raises(InputError) as refused:
        parse_recipe(text)
    [problem] = refused.value.problems
    assert problem.path.startswith(f"extract_lora.{wrong.partition(':')[0]}")


def test_numbers_that_are_not_finite_stop_the_run(models: Path) -> None:
    from safetensors.numpy import load_file, save_file

    file = models / "math/model.safetensors"
    tensors = load_file(file)
    tensors["model.layers.2.self_attn.q_proj.weight"][3, 3] = float("nan")
    save_file(tensors, file, metadata={"format": "pt"})
    told = Told()
    with (
        working_in(models),
        pytest.raises(resumerge.Resumable, match=r"layers\.2\.self_attn\.q_proj"),
    ):
        resumerge.extract_lora("math", "base", "out", max_rank=4, reporter=told)
    with working_in(models):
        resumerge.extract_lora(
            "math", "base", "other", max_rank=4, exclude=["layers.2.self_attn.q"], progress="none"
        )


def test_expressions_and_names_choose_modules(models: Path) -> None:
    with working_in(models):
        resumerge.extract_lora(
            "math",
            "base",
            "out",
            max_rank=4,
            include=[r"self_attn\.[qv]", "mlp"],
            exclude=["layers.3"],
            save_modules=["down_proj"],
            progress="none",
        )
    config = json.loads((models / "out/adapter_config.json").read_text())
    chosen = [f"model.layers.{n}.self_attn.{p}_proj" for n in range(3) for p in "qv"]
    chosen += [f"model.layers.{n}.mlp.{p}_proj" for n in range(3) for p in ("gate", "up")]
    assert config["target_modules"] == sorted(chosen)
    assert config["modules_to_save"] == ["down_proj", "embed_tokens", "lm_head"]
