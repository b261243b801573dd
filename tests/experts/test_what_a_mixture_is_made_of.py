"""Models that do not fit are reported before anything is written; a recipe may name any models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from dense_models import CONFIGS, SHARED, SIZES, mixture, write_dense
from merging import merge, shards_of, tensors_of, working_in
from safetensors.torch import load_file, save_file
from tiny_models import LLAMA, llama_shapes, random_tensors, write_model
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config

from resumerge.engine.lifecycle.session import Session
from resumerge.errors import InputError, Problem
from resumerge.options import Options
from resumerge.recipe import parse_recipe
from resumerge.tensors import Merged
from resumerge.tensors.generated import Drawn

RANDOM = """\
base_model: ./base
gate_mode: random
experts: [{source_model: ./a}, {source_model: ./b}]
"""


@pytest.fixture(scope="module")
def llamas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dense(tmp_path_factory.mktemp("llamas"), CONFIGS["llama"])


def refused(models: Path, recipe: str, out: Path) -> list[Problem]:
    with pytest.raises(InputError) as caught:
        merge(models, recipe, out)
    assert not out.exists()
    return caught.value.problems


def changed(folder: Path, **values: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


def test_each_architecture_says_why_it_does_not_fit(llamas: Path, tmp_path: Path) -> None:
    two_shared = f"{SHARED}  - source_model: ./b\n"
    [problem] = refused(llamas, RANDOM + two_shared, tmp_path / "out")
    for reason in (
        "Mixtral: it has no shared experts, and the recipe has 2",
        "DeepSeek MoE: it has 0 or 1 shared expert,",
        "Qwen MoE: it has 1 shared expert,",
        "Qwen3 MoE: it is made of qwen3, but ./base is llama, ./a is llama",
    ):
        assert reason in problem.found
    assert problem.path == "experts" and problem.line == 3


@pytest.mark.parametrize(
    "further, found",
    [
        ("architecture: qwen\n", "Qwen MoE: it has 1 shared expert,"),
        ("architecture: gpt\n", "Mixtral: it fits"),
        (f"architecture: deepseek\nexpert_layout: packed\n{SHARED}", "experts that are packed"),
        (f"architecture: deepseek\n{SHARED}    positive_prompts: [x]\n", "has no gate"),
    ],
)
def test_an_architecture_that_is_asked_for(
    llamas: Path, tmp_path: Path, further: str, found: str
) -> None:
    [problem] = refused(llamas, RANDOM + further, tmp_path / "out")
    assert problem.path == "architecture" and found in problem.found


def test_biases_without_a_place_are_refused(tmp_path: Path) -> None:
    """mergekit-moe 0.1.5 drops such biases."""
    config = LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True)
    models = write_dense(tmp_path / "models", config)
    [problem] = refused(models, RANDOM, tmp_path / "out")
    assert problem.found.count("mlp.gate_proj.bias") == 9  # three models, three architectures
    config = LlamaConfig(**SIZES, attention_bias=True)
    models = write_dense(tmp_path / "of attention", config)
    [problem] = refused(models, RANDOM + "architecture: mixtral\n", tmp_path / "out")
    assert "Mixtral: it has no place for model.layers" in problem.found


def test_what_an_expert_has_outside_its_mlp_is_not_asked_for_a_place(tmp_path: Path) -> None:
    """The mixture has only the MLP of an expert; the other tensors are the base's."""
    models = write_dense(tmp_path / "models", LlamaConfig(**SIZES))
    file = models / "a" / "model.safetensors"
    further = {"model.layers.0.self_attn.q_proj.bias": torch.zeros(SIZES["hidden_size"])}
    save_file(load_file(file) | further, file, metadata={"format": "pt"})
    out = merge(models, RANDOM + "architecture: mixtral\n", tmp_path / "out")
    assert not further.keys() & tensors_of(out).keys()


def test_biases_with_a_place_are_carried(tmp_path: Path) -> None:
    models = write_dense(tmp_path / "models", Qwen3Config(**SIZES, head_dim=8, attention_bias=True))
    out = merge(models, RANDOM, tmp_path / "out")
    own, made = tensors_of(models / "base"), tensors_of(out)
    biases = [name for name in own if name.endswith("bias")]
    assert len(biases) == 8 and all(made[name].equal(own[name]) for name in biases)
    _, info = AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not any(info.values()), info


def test_models_that_do_not_fit_are_problems_at_their_lines(tmp_path: Path) -> None:
    models = write_dense(tmp_path / "models", CONFIGS["llama"])
    tensors = load_file(models / "a" / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, models / "a" / "model.safetensors")
    wide = {**LLAMA, "num_hidden_layers": 2, "hidden_size": 32}
    write_model(models / "b", random_tensors(llama_shapes(wide), 1), wide)
    lacks, unlike = refused(models, RANDOM, tmp_path / "out")
    assert lacks.path == "experts[0].source_model" and "layers.1.mlp.up_proj" in lacks.expected
    assert unlike.path == "experts[1].source_model" and "[40, 32]" in unlike.found
    changed(models / "b", model_type="gpt2")
    [problem] = refused(models, RANDOM, tmp_path / "out")
    assert problem.found.count("./b is gpt2") == 4


@pytest.mark.parametrize(
    "field, value",
    [
        ("vocab_size", 261),
        ("hidden_size", 64),
        ("num_hidden_layers", None),
        ("num_hidden_layers", "two"),
        ("intermediate_size", 47),
        ("intermediate_size", None),
        ("num_attention_heads", 8),
        ("num_attention_heads", 0),
        ("num_key_value_heads", 4),
        ("head_dim", 16),
    ],
)
@pytest.mark.parametrize("gates", ["random", "uniform_random"])
def test_a_config_that_is_not_the_bases_is_refused(
    tmp_path: Path, field: str, value: Any, gates: str
) -> None:
    """transformers would open the mixture with other shapes than the tensors have."""
    models = write_dense(tmp_path / "models", CONFIGS["llama"])
    changed(models / "base", **{field: value})
    recipe = RANDOM.replace("random", gates)
    problems = refused(models, recipe, tmp_path / "out")
    assert {(problem.path, problem.line) for problem in problems} == {("base_model", 1)}
    assert any(field in problem.found for problem in problems)


def test_a_number_of_heads_that_is_null_is_that_of_the_queries(tmp_path: Path) -> None:
    """transformers reads null as the number of query heads, for every type of model.

    The tensors of this base have fewer heads of keys, so that the error names the number.
    """
    models = write_dense(tmp_path / "models", CONFIGS["llama"])
    changed(models / "base", num_key_value_heads=None)
    [problem] = refused(models, RANDOM, tmp_path / "out")
    heads = json.loads((models / "base/config.json").read_text())["num_attention_heads"]
    head = CONFIGS["llama"].hidden_size // heads
    assert problem.found == f"num_key_value_heads * head_dim: {heads * head}"


@pytest.mark.parametrize(
    "name", ["model.embed_tokens.weight", "model.layers.1.mlp.gate_proj.weight"]
)
@pytest.mark.parametrize("shape", [(-1,), (-1, 2, 2)])
def test_a_base_whose_matrices_are_none_is_refused(
    tmp_path: Path, name: str, shape: tuple[int, ...]
) -> None:
    models = write_dense(tmp_path / "models", CONFIGS["llama"])
    for file in models.glob("*/model.safetensors"):
        tensors = load_file(file)
        tensors[name] = tensors[name].reshape(shape)
        save_file(tensors, file, {"format": "pt"})
    problems = refused(models, RANDOM, tmp_path / "out")
    assert any(name in problem.expected for problem in problems)


def test_prompts_need_a_tokenizer(tmp_path: Path) -> None:
    models = write_dense(tmp_path / "models", CONFIGS["llama"])
    for file in (models / "base").glob("tokenizer*"):
        file.unlink()
    [problem] = refused(models, mixture("cheap_embed", "mixtral"), tmp_path / "out")
    assert problem.path == "base_model" and "tokenizer" in problem.what
    merge(models, mixture("random", "mixtral"), tmp_path / "out")


def test_tokens_that_the_embedding_lacks_are_refused(tmp_path: Path) -> None:
    models = write_dense(tmp_path / "models", CONFIGS["llama"])
    file = models / "base" / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["model"]["vocab"]["a"] = 300
    file.write_text(json.dumps(tokenizer))
    first, *_ = refused(models, mixture("cheap_embed", "mixtral"), tmp_path / "out")
    assert first.path == "experts[0].positive_prompts" and "300" in first.found


def test_prompts_without_a_token_are_refused(tmp_path: Path) -> None:
    models = write_dense(tmp_path / "models", CONFIGS["llama"])
    file = models / "base" / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    del tokenizer["model"]["vocab"]["n"]
    file.write_text(json.dumps(tokenizer))
    config = json.loads((models / "base" / "tokenizer_config.json").read_text())
    del config["bos_token"]
    (models / "base" / "tokenizer_config.json").write_text(json.dumps(config))
    recipe = mixture("cheap_embed", "mixtral").replace("def main", "nnn")
    [problem] = refused(models, recipe, tmp_path / "out")
    assert problem.path == "experts[1].positive_prompts"
    assert problem.what == "An expert's prompts are empty after tokenization"


def test_noise_and_scales(llamas: Path, tmp_path: Path) -> None:
    recipe = RANDOM.replace("./b}", "./b, noise_scale: 0.1, residual_scale: 0.5}")
    out = merge(llamas, recipe + "dtype: float32\n", tmp_path / "out")
    made, own = tensors_of(out), tensors_of(llamas / "b")
    at, mlp = "model.layers.0.block_sparse_moe.experts.1", "model.layers.0.mlp"
    for name, like, scale in (("w1", "gate_proj", 1.0), ("w2", "down_proj", 0.5)):
        noise = made[f"{at}.{name}.weight"] / scale - own[f"{mlp}.{like}.weight"].float()
        assert abs(float(noise.std()) - 0.1) < 5 * 0.1 / (2 * noise.numel()) ** 0.5
        assert abs(float(noise.mean())) < 5 * 0.1 / noise.numel() ** 0.5
    other = tensors_of(merge(llamas, recipe + "dtype: float32\n", tmp_path / "other", seed=1))
    drawn = [name for name in made if not made[name].equal(other[name])]
    assert len(drawn) == 2 * (1 + 3)  # of each layer the gates, and an expert's matrices


def test_each_matrix_has_noise_of_its_own(llamas: Path) -> None:
    with working_in(llamas):
        noisy = RANDOM.replace("./a}", "./a, noise_scale: 0.1}")
        noisy = noisy.replace("./b}", "./b, noise_scale: 0.1, residual_scale: 0.5}")
        plan = Session(Options()).plan(parse_recipe(noisy))
    drawn = [n for n in plan.nodes() if isinstance(n, Drawn) and n.name == "noise"]
    assert len({noise.key for noise in drawn}) == len(drawn) == 2 * 2 * 3
    weights = {
        (unit.name.rpartition("experts.")[2], *(given["weight"] for given in made.per_operand))
        for unit in plan.units
        if isinstance(made := unit.expression, Merged)
    }
    assert weights == {
        *((f"{expert}.{matrix}.weight", 1.0, 0.1) for expert in (0, 1) for matrix in ("w1", "w3")),
        ("0.w2.weight", 1.0, 0.1),
        ("1.w2.weight", 0.5, 0.05),
    }, "a matrix and its noise are scaled alike"


@pytest.mark.parametrize("mode", ["random", "uniform_random"])
def test_random_gates_are_each_layers_own(llamas: Path, tmp_path: Path, mode: str) -> None:
    recipe = RANDOM.replace("random", mode) + "dtype: float32\n"
    made = tensors_of(merge(llamas, recipe, tmp_path / "out"))
    first, second = (tensor for name, tensor in made.items() if "moe.gate" in name)
    assert first.shape == (2, SIZES["hidden_size"]) and not first.equal(second)
    both = torch.cat([first, second])
    if mode == "uniform_random":
        bound = SIZES["hidden_size"] ** -0.5
        assert 0.8 * bound < float(both.abs().max()) <= bound
    else:
        assert 0.7 < float(both.std()) < 1.3


def test_an_expert_may_have_an_adapter_or_be_a_stage(llamas: Path, tmp_path: Path) -> None:
    recipe = """\
name: both
merge_method: linear
models:
  - {model: ./a, parameters: {weight: 1}}
  - {model: ./b, parameters: {weight: 1}}
---
base_model: ./base
gate_mode: random
experts: [{source_model: both}, {source_model: ./c+./adapter}]
"""
    folder = tmp_path / "models"
    folder.mkdir()
    for name in ("base", "a", "b", "c"):
        (folder / name).symlink_to(llamas / name)
    adapter = folder / "adapter"
    adapter.mkdir()
    key = "base_model.model.model.layers.1.mlp.up_proj"
    a, b = torch.randn(2, 32), torch.randn(48, 2)
    save_file(
        {f"{key}.lora_A.weight": a, f"{key}.lora_B.weight": b},
        adapter / "adapter_model.safetensors",
    )
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": ["up_proj"]}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    made = tensors_of(merge(folder, recipe, tmp_path / "out"))
    first, second, third = (tensors_of(llamas / name) for name in "abc")
    up = "model.layers.1.mlp.up_proj.weight"
    experts = "model.layers.1.block_sparse_moe.experts"
    mean = ((first[up].float() + second[up].float()) / 2).bfloat16()
    assert made[f"{experts}.0.w3.weight"].equal(mean)
    adapted = (third[up].float() + b @ a).bfloat16()
    assert made[f"{experts}.1.w3.weight"].equal(adapted)


def test_a_mixture_may_be_a_stage(llamas: Path, tmp_path: Path) -> None:
    first, second = (
        f"name: m{n}\n" + RANDOM.replace("./b}", f"./{x}}}") for n, x in [(1, "b"), (2, "c")]
    )
    last = "merge_method: linear\nmodels:\n  - {model: m1, parameters: {weight: 1}}\n"
    last += "  - {model: m2, parameters: {weight: 1}}\n"
    recipe = "---\n".join([first, second, last])
    made = merge(llamas, recipe, tmp_path / "out")
    _, info = AutoModelForCausalLM.from_pretrained(made, output_loading_info=True)
    assert not any(info.values()), info


def test_gates_are_made_of_what_a_stage_computes_wherever_it_lies(
    llamas: Path, tmp_path: Path
) -> None:
    """A stage's result may be written to a scratch file, but gates are computed before that."""
    stage = "name: middle\nmerge_method: task_arithmetic\nbase_model: ./base\n"
    stage += "models: [{model: ./a, parameters: {weight: 0.5}}]\ntokenizer_source: base\n---\n"
    recipe = stage + mixture("cheap_embed", "mixtral").replace("model: ./base", "model: middle")
    always, never = (
        shards_of(merge(llamas, recipe, tmp_path / how, materialize=how))
        for how in ("always", "never")
    )
    assert always == never


def test_bytes_do_not_depend_on_threads(llamas: Path, tmp_path: Path) -> None:
    recipe = mixture("cheap_embed", "mixtral").replace("residual_scale", "noise_scale")
    one, two = (
        shards_of(merge(llamas, recipe, tmp_path / str(threads), threads=threads))
        for threads in (1, 3)
    )
    assert one == two
