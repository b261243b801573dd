"""Promise: quantised outputs load in transformers, with the codes that libraries would write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from killed_at_a_shard import merge_until_killed
from merging import merge, shards_of, working_in
from quantised_outputs import (
    CONFIG,
    SCHEMES,
    as_bytes,
    linear,
    loaded,
    stored,
    write,
    write_adapter,
)
from safetensors.torch import save_file
from small_batches import use_small_batches
from streamed_models import serve_local_models
from tiny_models import TWO_LAYERS, write_family

import resumerge
from resumerge.engine.lifecycle.session import Session
from resumerge.options import Options
from resumerge.quantisation import OUTPUTS
from resumerge.recipe.types import QUANTISED


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write two models, an adapter, and a merge of the models in each scheme and in float32."""
    folder = tmp_path_factory.mktemp("outputs")
    write(folder / "a", 1)
    write(folder / "b", 2)
    write_adapter(folder / "adapter")
    for scheme in (*SCHEMES, "float32"):
        merge(folder, linear(scheme), folder / scheme)
    return folder


def quantised_by_the_library(scheme: str, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """Quantise a float32 weight into its parts, as transformers or compressed-tensors does."""
    if scheme == "fp8_block":
        rows, columns = weight.shape
        blocks = weight.reshape(rows // 128, 128, columns // 128, 128)
        scales = blocks.abs().amax((1, 3)) / 448
        codes = (blocks / scales[:, None, :, None]).clamp(-448, 448).to(torch.float8_e4m3fn)
        return {"weight": codes.reshape(rows, columns), "weight_scale_inv": scales}
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    config = OUTPUTS[scheme].config([])
    args = QuantizationArgs(**config["config_groups"]["group_0"]["weights"])
    groups = weight.reshape(len(weight), -1, args.group_size or weight.shape[1])
    whole = generate_gparam(weight.amin(), weight.amax()) if scheme == "nvfp4" else None
    scale, zero = calculate_qparams(groups.amin(2), groups.amax(2), args, global_scale=whole)
    in_model = scheme in ("fp8_channel", "int4")
    scale = scale.to(torch.bfloat16).float() if in_model else scale
    args_ = QuantizationScheme(targets=["Linear"], weights=args)
    state = {"weight": weight, "weight_scale": scale, "weight_zero_point": zero}
    state |= {"weight_global_scale": whole} if whole is not None else {}
    made = BaseCompressor.get_value_from_registry(config["format"]).compress(state, args_)
    made = {name: torch.as_tensor(value) for name, value in made.items()}
    if in_model:
        made["weight_scale"] = made["weight_scale"].to(torch.bfloat16)
    return made


@pytest.mark.parametrize("scheme", SCHEMES)
def test_codes_and_scales_are_the_librarys(scheme: str, models: Path) -> None:
    exact, found = stored(models / "float32"), stored(models / scheme)
    for name, weight in exact.items():
        if "_proj" not in name:
            assert torch.equal(found.pop(name), weight.bfloat16()), name
            continue
        stem = name.removesuffix("weight")
        expected = quantised_by_the_library(scheme, weight)
        ours = {part: found.pop(stem + part) for part in expected}
        assert as_bytes(ours) == as_bytes(expected), name
    assert not found


@pytest.mark.parametrize("scheme", SCHEMES)
def test_transformers_loads_what_was_meant(scheme: str, models: Path, tmp_path: Path) -> None:
    """transformers loads every tensor, and its dequantised weights are those of this program."""
    theirs = loaded(models / scheme)
    text = f"merge_method: passthrough\nmodels: [{{model: {models / scheme}}}]\n"
    ours = stored(merge(models, text, tmp_path / "read"))
    exact = stored(models / "float32")
    assert ours.keys() == exact.keys() == theirs.keys()
    bound = 0.04 if "fp8" in scheme else 0.15
    for name, tensor in ours.items():
        assert torch.equal(theirs[name].to(tensor.dtype), tensor), name
        lost = (tensor.float() - exact[name]).norm() / exact[name].norm()
        assert lost < bound, name
    config = json.loads((models / scheme / "config.json").read_text())
    assert config["dtype"] == "bfloat16"
    card = (models / scheme / "README.md").read_text()
    assert f"## Quantisation\n\nWeights of linear layers are written as `{scheme}`" in card
    assert "ransformers loads it with the package" in card


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_adapter_changes_the_bytes_of_its_weight_alone(
    scheme: str, models: Path, tmp_path: Path
) -> None:
    text = f"merge_method: passthrough\nmodels: [{{model: {scheme}+adapter}}]\nout_dtype: "
    same = merge(models, f"{text}same\n", tmp_path / "same")
    before, after = as_bytes(stored(models / scheme)), as_bytes(stored(same))
    assert before.keys() == after.keys()
    changed = "model.layers.1.mlp.up_proj.weight"
    differ = {name for name in before if before[name] != after[name]}
    assert differ and all(name.startswith(changed) for name in differ)
    exact = stored(merge(models, f"{text}float32\n", tmp_path / "exact"))
    expected = quantised_by_the_library(scheme, exact[changed])
    found = {n: t for n, t in stored(same).items() if n.startswith(changed)}
    stem = changed.removesuffix("weight")
    assert as_bytes(found) == as_bytes({stem + part: t for part, t in expected.items()})
    configs = [json.loads((at / "config.json").read_text()) for at in (models / scheme, same)]
    assert configs[0] == configs[1]
    assert torch.equal(loaded(same)["lm_head.weight"], stored(same)["lm_head.weight"])


def test_files_that_an_adapter_does_not_touch_are_the_same(models: Path, tmp_path: Path) -> None:
    base = merge(models, linear("fp8_block"), tmp_path / "base", shard_size=100_000)
    text = f"merge_method: passthrough\nmodels: [{{model: {base}+adapter}}]\nout_dtype: same\n"
    out = merge(models, text, tmp_path / "out")
    before, after = shards_of(base), shards_of(out)
    assert after.keys() == before.keys()
    touched = [name for name in after if after[name] != before[name]]
    assert len(touched) == 1 < len(before) - 1
    assert loaded(out).keys() == loaded(base).keys()


@pytest.mark.parametrize("scheme", ["fp8_block", "int4", "same"])
def test_killed_and_resumed_it_is_the_same(
    scheme: str, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scales of rows that were committed before the kill are computed again."""
    use_small_batches(monkeypatch, 20_000)
    first, second = ("fp8_block", "b") if scheme == "same" else ("a", "b")
    text, size = linear(scheme, first, second), 200_000
    whole = merge(models, text, tmp_path / "whole", shard_size=size)
    config, out = tmp_path / "killed.yaml", tmp_path / "killed"
    config.write_text(text)
    options = Options(state_dir=tmp_path / "state", shard_size=size)
    with working_in(models):
        merge_until_killed(options, config, out)
        assert 0 < len(shards_of(out)) < len(shards_of(whole))
        Session(options).run(config, out)
    assert shards_of(out) == shards_of(whole)


def test_blocks_and_threads_do_not_matter(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_batches(monkeypatch, 30_000)
    for scheme in SCHEMES:
        again = merge(models, linear(scheme), tmp_path / scheme, threads=3)
        assert as_bytes(stored(again)) == as_bytes(stored(models / scheme))


@pytest.mark.parametrize("scheme", ["fp8_block", "same"])
def test_streamed_by_ranges_it_is_the_same(
    scheme: str, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model on a server is read once, though its scales need whole blocks."""
    use_small_batches(monkeypatch, 50_000)
    text = linear(scheme, "fp8_block", "b")
    local = merge(models, text, tmp_path / "local")
    sent = serve_local_models(monkeypatch)
    streamed = merge(models, text, tmp_path / "streamed", stream=True, offline=False)
    assert as_bytes(stored(streamed)) == as_bytes(stored(local))
    for path, nbytes in sent.items():
        assert nbytes < 1.3 * Path(path).stat().st_size, path


@pytest.mark.parametrize("method", ["ties", "slerp", "dare_ties", "model_stock"])
def test_stages_and_tasks_are_quantised_as_they_are_written(
    method: str, models: Path, tmp_path: Path
) -> None:
    """The codes are those of the float32 result, but for a few.

    The merges read quantised and plain models, and a stage. dare_ties draws other masks in other
    blocks, so that only the shape of its codes is compared.
    """
    params = ", parameters: {weight: 0.6, density: 0.5}" if "ties" in method else ""
    base = "fp8_block" if method == "slerp" else "first"
    listed = ("fp8_block", "first") if method == "slerp" else ("fp8_block", "int4", "b")
    text = "\n".join(
        (
            "name: first\nmerge_method: linear\nmodels:",
            "- {model: a, parameters: {weight: 0.5}}\n- {model: b, parameters: {weight: 0.5}}\n---",
            f"merge_method: {method}\nbase_model: {base}\nout_dtype: DTYPE\nmodels:",
            *(f"- {{model: {name}{params}}}" for name in listed),
            *(["parameters: {t: 0.3}"] if method == "slerp" else []),
        )
    )
    exact = stored(merge(models, text.replace("DTYPE", "float32"), tmp_path / "exact"))
    found = stored(merge(models, text.replace("DTYPE", "int4"), tmp_path / "int4"))
    name = "model.layers.1.mlp.down_proj.weight"
    if method == "dare_ties":  # its masks are drawn for each block, and blocks are other ones
        assert found[f"{name}_packed"].shape == (256, 384 // 8)
        return
    for part, tensor in quantised_by_the_library("int4", exact[name]).items():
        stem = name.removesuffix("weight")
        if part == "weight_packed":
            assert (found[stem + part] != tensor).float().mean() < 1e-3
        else:
            assert torch.equal(found[stem + part], tensor), part


def test_numbers_that_are_not_finite_zeros_and_the_smallest(models: Path, tmp_path: Path) -> None:
    """A block with NaN or an infinity is NaN; zeros stay zeros; tiny numbers do not saturate."""
    draw = torch.Generator().manual_seed(1)
    weight = torch.randn(256, 256, generator=draw).bfloat16()
    weight[:128, :128] = 0
    weight[128:, :128] = 1e-38
    weight[0, 200], weight[130, 200] = torch.nan, torch.inf
    name = "model.layers.0.self_attn.o_proj.weight"
    write(tmp_path / "odd", 3, {name: weight})
    text = "merge_method: passthrough\nout_dtype: {}\nmodels: [{{model: odd}}]\n"
    for scheme in SCHEMES:
        merge(tmp_path, text.format(scheme), tmp_path / scheme)
        read = f"merge_method: passthrough\nout_dtype: float32\nmodels: [{{model: {scheme}}}]\n"
        found = stored(merge(tmp_path, read, tmp_path / f"{scheme}-read"))[name]
        assert not found[1:128, :128].any(), scheme
        height, width = OUTPUTS[scheme].layout.block
        for row in (0, 130):
            band = slice(row // height * height, row // height * height + height)
            first = 200 // width * width if width else 0
            columns = slice(first, first + (width or 256))
            assert found[band, columns].isnan().all(), scheme
        tiny = found[200, :128]
        assert tiny.isfinite().all() and (tiny <= 2e-38).all(), scheme


def test_shapes_that_do_not_fit_stay_plain_with_their_neighbours(tmp_path: Path) -> None:
    """Weights that a server joins into one matrix are all quantised, or all stay plain."""
    config = {**CONFIG, "num_key_value_heads": 1}
    shapes = {"k_proj": (64, 256), "v_proj": (64, 256)}
    changed = {
        f"model.layers.{layer}.self_attn.{module}.weight": torch.ones(shape).bfloat16()
        for layer in (0, 1)
        for module, shape in shapes.items()
    }
    write(tmp_path / "m", 1, changed)
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    text = "merge_method: passthrough\nout_dtype: fp8_block\nmodels: [{model: m}]\n"
    (tmp_path / "m.yaml").write_text(text.replace("model: m", f"model: {tmp_path / 'm'}"))
    plan = resumerge.plan(tmp_path / "m.yaml")
    [note] = [note for note in plan["notes"] if "do not fit" in note]
    assert note.startswith("6 weights of linear layers stay plain")
    assert "beside k_proj, which is no multiple of 128 x 128" in note
    out = merge(tmp_path, text, tmp_path / "out")
    found = stored(out)
    for module in ("q_proj", "k_proj", "v_proj"):
        assert found[f"model.layers.0.self_attn.{module}.weight"].dtype == torch.bfloat16
    assert found["model.layers.0.self_attn.o_proj.weight"].dtype == torch.float8_e4m3fn
    said = json.loads((out / "config.json").read_text())["quantization_config"]
    assert "model.layers.1.self_attn.q_proj" in said["modules_to_not_convert"]
    assert plan["output_bytes"] == (out / "model.safetensors").stat().st_size
    assert torch.equal(
        loaded(out)["model.layers.0.self_attn.q_proj.weight"],
        found["model.layers.0.self_attn.q_proj.weight"],
    )


def test_experts_are_quantised_and_routers_are_not(tmp_path: Path) -> None:
    at = "model.layers.0.mlp"
    weights = {
        f"{at}.experts.0.gate_proj.weight": torch.ones(128, 256),
        f"{at}.gate.weight": torch.ones(128, 256),
        f"{at}.shared_expert_gate.weight": torch.ones(128, 256),
        "model.layers.0.post_norm.weight": torch.ones(128, 256),
        "visual.blocks.0.attn.qkv.weight": torch.ones(384, 256),
        "model.embed_tokens.weight": torch.ones(128, 256),
        "lm_head.weight": torch.ones(128, 256),
    }
    (tmp_path / "m").mkdir()
    save_file({n: w.bfloat16() for n, w in weights.items()}, tmp_path / "m" / "model.safetensors")
    (tmp_path / "m" / "config.json").write_text(json.dumps({"model_type": "x"}))
    text = "merge_method: passthrough\nout_dtype: fp8_block\nmodels: [{model: m}]\n"
    out = merge(tmp_path, text, tmp_path / "out")
    coded = {n for n, t in stored(out).items() if t.dtype == torch.float8_e4m3fn}
    assert coded == {f"{at}.experts.0.gate_proj.weight"}
    said = json.loads((out / "config.json").read_text())["quantization_config"]
    assert {f"{at}.gate", f"{at}.shared_expert_gate", "lm_head", "visual.blocks.0.attn.qkv"} <= set(
        said["modules_to_not_convert"]
    )


@pytest.mark.parametrize("scheme", ["fp8_block", "int4"])
def test_a_mixture_of_experts_is_loaded(scheme: str, tmp_path: Path) -> None:
    """The experts have matrices of their own, which transformers packs as it loads them."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = Qwen3MoeConfig(
        vocab_size=64,
        hidden_size=256,
        intermediate_size=384,
        moe_intermediate_size=128,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        num_experts=4,
        num_experts_per_tok=2,
    )
    made = Qwen3MoeForCausalLM(config).bfloat16()
    made.save_pretrained(tmp_path / "m")
    text = f"merge_method: passthrough\nout_dtype: {scheme}\nmodels: [{{model: m}}]\n"
    found = loaded(merge(tmp_path, text, tmp_path / "out"))
    for name, tensor in made.state_dict().items():
        lost = (tensor.float() - found[name].float()).norm() / tensor.float().norm()
        assert lost < (0.03 if scheme == "fp8_block" else 0.13) * (tensor.ndim > 1) or not lost, (
            name
        )


REFUSED = {
    "a stage": (
        f"name: x\n{linear('int4')}---\nmerge_method: passthrough\nmodels: [{{model: x}}]\n",
        "A stage cannot be written as int4",
    ),
    "a plain reference": (linear("same"), "The reference model is not quantised"),
    "dtype": (linear("int4").replace("out_dtype", "dtype"), "This is a dtype of the output alone"),
    "a misspelled scheme": (linear("fp8_blok"), "Unknown dtype"),
    "slices": (
        "merge_method: passthrough\nout_dtype: same\nslices:\n"
        "- sources: [{model: fp8_block, layer_range: [0, 1]}]\n",
        "With slices the output is not stored as fp8_block is",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_quantised_is_refused(case: str, models: Path, tmp_path: Path) -> None:
    text, what = REFUSED[case]
    with pytest.raises(resumerge.InputError) as caught:
        merge(models, text, tmp_path / "out")
    [problem] = [p for p in caught.value.problems if p.what == what]
    assert problem.expected and problem.found and problem.fix
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("scheme", ["fp8_block", "int4"])
def test_a_model_without_a_weight_that_fits_is_refused(scheme: str, tmp_path: Path) -> None:
    write_family(tmp_path, TWO_LAYERS)
    with pytest.raises(resumerge.InputError) as caught:
        merge(tmp_path, linear(scheme, "math", "code"), tmp_path / "out")
    [problem] = caught.value.problems
    assert problem.what == f"No weight of the output can be written as {scheme}"
    assert "128" in problem.found and "model.layers.0.mlp.down_proj.weight" in problem.found
    assert not (tmp_path / "out").exists()


def test_a_gguf_file_has_types_of_its_own(models: Path, tmp_path: Path) -> None:
    with pytest.raises(resumerge.InputError) as caught:
        merge(models, linear("fp8_block"), tmp_path / "out.gguf")
    [problem] = caught.value.problems
    assert problem.what == "This type is not written to GGUF files"


def test_the_recipe_names_every_scheme_that_is_written() -> None:
    assert (*OUTPUTS, "same") == QUANTISED
    assert all(name == scheme.name for name, scheme in OUTPUTS.items())
