"""Promise: a model written as GGUF has the merge's numbers, as gguf-py and transformers read it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import MODEL_ARCH_NAMES, MODEL_TENSORS, TENSOR_NAMES, GGMLQuantizationType, GGUFReader
from gguf.quants import quantize
from gguf_models import EXPERTS, LAYERS, converted, numbers_of
from gguf_outputs import MADE, write_checkpoint
from logits import assert_same
from merging import merge, tensors_of
from safetensors.numpy import load_file

from resumerge.output.gguf.tensors import TYPES
from resumerge.recipe.references import read_reference
from resumerge.sources import open_source
from resumerge.sources.gguf.families import WRITTEN

COPY = "merge_method: passthrough\nmodels: [{model: NAME}]\nout_dtype: float32\n"
AVERAGE = "merge_method: linear\nmodels:\n- {model: NAME, parameters: {weight: 0.3}}\n"
AVERAGE += "- {model: other, parameters: {weight: 0.8}}\n"
MASKED = "merge_method: dare_ties\nbase_model: NAME\nmodels:\n- model: other\n"
MASKED += "  parameters: {weight: 0.5, density: 0.4}\n"
BY_TRANSFORMERS = ["llama", "qwen2", "qwen3", "phi3", "qwen2moe", "qwen3moe"]
"""The families that it reads from GGUF with all that they need."""


@pytest.mark.parametrize("name", MADE)
def test_it_is_what_llama_cpps_converter_writes(name: str, tmp_path: Path) -> None:
    tensors = write_checkpoint(tmp_path / name, name)
    out = merge(tmp_path, COPY.replace("NAME", name), tmp_path / "model.gguf")
    expected = converted(MADE[name], tensors)
    found = {tensor.name: np.array(tensor.data) for tensor in GGUFReader(out).tensors}
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        assert np.array_equal(found[key], values), key
    own = open_source(read_reference(str(out)))
    assert own.config["model_type"] == MADE[name].model_type.replace("mistral", "llama")
    for key, values in numbers_of(own).items():
        back = (tensors[key] + np.float32(1)) - np.float32(1)
        shifted = MADE[name].added and key.endswith("norm.weight")
        assert np.array_equal(values, back if shifted else tensors[key]), key


@pytest.mark.parametrize("recipe", [AVERAGE, MASKED], ids=["linear", "dare_ties"])
@pytest.mark.parametrize("name", ["llama", "gemma2", "qwen3moe"])
def test_each_type_is_gguf_pys_of_the_float32_merge(
    name: str, recipe: str, tmp_path: Path, soak: bool
) -> None:
    if recipe == MASKED and name != "qwen3moe" and not soak:
        pytest.skip("masks of one family are enough for every day: the others with --soak")
    write_checkpoint(tmp_path / name, name, 1, "bfloat16")
    write_checkpoint(tmp_path / "other", name, 2, "bfloat16")
    text = recipe.replace("NAME", name) + "out_dtype: "
    merged = load_file(merge(tmp_path, text + "float32", tmp_path / "f32") / "model.safetensors")
    expected = converted(MADE[name], merged)
    for asked in ("float32", "float16", "bfloat16", "q8_0", "q4_0"):
        out = merge(tmp_path, text + asked, tmp_path / f"{asked}.gguf")
        kinds = set()
        for tensor in GGUFReader(out).tensors:
            values, kind = expected[tensor.name], tensor.tensor_type
            kinds.add(kind.name)
            whole = values if kind.name == "F32" else quantize(np.ascontiguousarray(values), kind)
            assert whole.tobytes() == np.array(tensor.data).tobytes(), (asked, tensor.name)
            if values.ndim == 1 or "gate_inp" in tensor.name:
                assert kind.name == "F32"
        assert kinds <= {
            "F32",
            "Q8_0",
            TYPES[("float32", "float16", "bfloat16", "q8_0", "q4_0").index(asked)],
        }


def test_the_type_is_the_recipes_or_each_tensors_own(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "llama", "llama", 1, "bfloat16")
    text = COPY.replace("NAME", "llama").replace("out_dtype: float32\n", "")
    for further, expected in (("", "BF16"), ("dtype: float16\n", "F16")):
        out = merge(tmp_path, text + further, tmp_path / f"{expected}.gguf")
        types = {t.name: t.tensor_type.name for t in GGUFReader(out).tensors}
        assert types["blk.0.attn_q.weight"] == types["output.weight"] == expected
        assert types["blk.0.attn_norm.weight"] == "F32"


@pytest.mark.parametrize("name", BY_TRANSFORMERS)
def test_transformers_computes_the_same_with_it(name: str, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    write_checkpoint(tmp_path / name, name)
    merge(tmp_path, COPY.replace("NAME", name), tmp_path / "model.gguf")
    tokens = torch.tensor([[1, 5, 77, 300, 20, 9]])
    model, of_gguf = (
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **more)
        for folder, more in ((tmp_path / name, {}), (tmp_path, {"gguf_file": "model.gguf"}))
    )
    weights, found = model.state_dict(), of_gguf.state_dict()
    assert weights.keys() == found.keys()
    assert [key for key, values in weights.items() if not torch.equal(values, found[key])] == []
    assert_same(model(tokens).logits, of_gguf(tokens).logits)


def test_packed_experts_are_those_of_separate_ones(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    tensors = write_checkpoint(tmp_path / "apart", "qwen3moe")
    write_checkpoint(tmp_path / "packed", "qwen3moe")
    found = {name: values for name, values in tensors.items() if ".experts." not in name}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}.mlp.experts"
        gate, up, down = (
            np.stack([tensors[f"{at}.{n}.{part}_proj.weight"] for n in range(EXPERTS)])
            for part in ("gate", "up", "down")
        )
        found[f"{at}.gate_up_proj"] = np.concatenate((gate, up), axis=1)
        found[f"{at}.down_proj"] = down
    save_file(found, tmp_path / "packed" / "model.safetensors", {"format": "pt"})
    files = []
    for name in ("apart", "packed"):
        text = COPY.replace("NAME", name).replace("float32", "q8_0")
        (tmp_path / f"of {name}").mkdir()
        out = merge(tmp_path, text, tmp_path / f"of {name}" / "model.gguf")
        files.append({t.name: np.array(t.data).tobytes() for t in GGUFReader(out).tensors})
    assert files[0] == files[1]


def test_a_mirror_has_the_file_the_recipe_and_the_card(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "model")
    text = COPY.replace("NAME", "model").replace("float32", "q8_0")
    out = merge(tmp_path, text, tmp_path / "model.gguf", mirror=str(tmp_path / "mirror"))
    found = {path.name for path in (tmp_path / "mirror").iterdir() if path.is_file()}
    assert found == {"README.md", "mergekit_config.yml", "model.gguf"}
    assert (tmp_path / "mirror" / "model.gguf").read_bytes() == out.read_bytes()
    assert "library_name: gguf" in (tmp_path / "mirror" / "README.md").read_text()


def test_rows_that_are_no_whole_blocks_are_f16(tmp_path: Path) -> None:
    from dataclasses import replace

    import gguf_outputs

    wide = replace(MADE["qwen3moe"], wide=40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(gguf_outputs.MADE, "qwen3moe", wide)
        write_checkpoint(tmp_path / "odd", "qwen3moe", moe_intermediate_size=40)
    text = COPY.replace("NAME", "odd").replace("float32", "q8_0")
    found = GGUFReader(merge(tmp_path, text, tmp_path / "model.gguf")).tensors
    types = {tensor.name: tensor.tensor_type.name for tensor in found}
    assert types["blk.0.ffn_down_exps.weight"] == "F16"
    assert types["blk.0.ffn_up_exps.weight"] == "Q8_0"


def test_tensors_of_any_size_are_aligned(tmp_path: Path) -> None:
    """gguf-py and this program read a file with a bias of three elements."""
    write_checkpoint(tmp_path / "llama")
    folder = tmp_path / "llama"
    tensors = tensors_of(folder)
    import torch
    from safetensors.torch import save_file

    del tensors["lm_head.weight"], tensors["model.embed_tokens.weight"]
    tensors["model.embed_tokens.weight"] = torch.ones(601, 256)
    tensors["lm_head.weight"] = torch.ones(601, 256)
    tensors |= {f"model.layers.{n}.mlp.up_proj.bias": torch.ones(3) for n in range(2)}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    text = COPY.replace("NAME", "llama").replace("float32", "q8_0")
    out = merge(tmp_path, text, tmp_path / "model.gguf")
    found = {tensor.name: tensor for tensor in GGUFReader(out).tensors}
    assert all(tensor.data_offset % 32 == 0 for tensor in found.values())
    assert np.array_equal(found["blk.1.ffn_up.bias"].data, np.ones(3, np.float32))
    assert open_source(read_reference(str(out))).tensors


def test_all_names_are_gguf_pys() -> None:
    architectures = {name: key for key, name in MODEL_ARCH_NAMES.items()}
    for architecture, family in WRITTEN.values():
        known = {TENSOR_NAMES[key] for key in MODEL_TENSORS[architectures[architecture]]}
        assert set(family.top) - known <= {"output"}, architecture
        assert {f"blk.{{bid}}.{name}" for name in family.layer} <= known, architecture
    for name in TYPES:
        assert name in GGMLQuantizationType.__members__
