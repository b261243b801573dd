"""Promise: modules that a quantised model has plain are read plain, and stay so with `same`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from merging import merge
from quantised_models import SCHEMES
from quantised_outputs import CONFIG, as_bytes, linear, loaded, stored
from safetensors.torch import save_file
from tiny_models import llama_shapes, random_tensors

from resumerge.quantisation import OUTPUTS

KINDS = {
    "fp8_block": ("fp8 block", "modules_to_not_convert", ["model.layers.0", "lm_head"]),
    "fp8_channel": ("float8 channel", "ignore", ["re:.*layers[.]0[.].*", "lm_head"]),
}
"""The scheme of `SCHEMES`; the key of config.json, and how it names what is plain."""


def write(folder: Path, kind: str, seed: int, **more: Any) -> dict[str, Any]:
    """Write a model whose second layer alone is quantised; return its quantization_config."""
    scheme, _, names = KINDS[kind]
    config = {**CONFIG, **more, "quantization_config": OUTPUTS[kind].config(names)}
    tensors: dict[str, torch.Tensor] = {}
    for number, (name, tensor) in enumerate(
        random_tensors(llama_shapes(config), seed, "bfloat16").items()
    ):
        if "layers.1." not in name or "_proj" not in name:
            tensors[name] = tensor
            continue
        parts, _, _ = SCHEMES[scheme](*tensor.shape, seed * 100 + number)
        stem = name.removesuffix("weight")
        tensors |= {stem + part: value.contiguous() for part, value in parts.items()}
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    stated = config["quantization_config"]
    assert isinstance(stated, dict)
    return stated


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_they_are_what_transformers_loads(kind: str, tied: bool, tmp_path: Path) -> None:
    write(tmp_path / "a", kind, 1, tie_word_embeddings=tied)
    text = "merge_method: passthrough\nmodels: [{model: a}]\n"
    ours, theirs = stored(merge(tmp_path, text, tmp_path / "out")), loaded(tmp_path / "a")
    assert theirs.keys() - ours.keys() == ({"lm_head.weight"} if tied else set())
    for name, tensor in ours.items():
        assert torch.equal(theirs[name].to(tensor.dtype), tensor), name


@pytest.mark.parametrize("kind", KINDS)
def test_with_same_they_stay_plain(kind: str, tmp_path: Path) -> None:
    """Plain modules are merged as plain weights; the others have codes of the models' scheme."""
    stated = write(tmp_path / "a", kind, 1)
    write(tmp_path / "b", kind, 2)
    out = merge(tmp_path, linear("same"), tmp_path / "out")
    exact = stored(merge(tmp_path, linear("float32"), tmp_path / "exact"))
    before, found = stored(tmp_path / "a"), stored(out)
    assert {n: (t.dtype, t.shape) for n, t in found.items()} == {
        n: (t.dtype, t.shape) for n, t in before.items()
    }
    for name, tensor in found.items():
        if name in exact and tensor.dtype == torch.bfloat16:
            assert torch.equal(tensor, exact[name].bfloat16()), name
    assert json.loads((out / "config.json").read_text())["quantization_config"] == stated
    theirs = loaded(out)
    assert theirs.keys() == exact.keys()
    changed = "model.layers.1.mlp.up_proj.weight"
    lost = (theirs[changed].float() - exact[changed]).norm() / exact[changed].norm()
    assert 0 < lost < 0.04


@pytest.mark.parametrize("kind", KINDS)
def test_another_output_names_its_own(kind: str, tmp_path: Path) -> None:
    """All layers are quantised; the config names only the output's own plain modules."""
    write(tmp_path / "a", kind, 1)
    write(tmp_path / "b", kind, 2)
    out = merge(tmp_path, linear(kind), tmp_path / "out")
    found = stored(out)
    assert found["model.layers.0.mlp.up_proj.weight"].dtype == torch.float8_e4m3fn
    config = json.loads((out / "config.json").read_text())["quantization_config"]
    assert config[KINDS[kind][1]] == ["lm_head"]
    ours = merge(tmp_path, "merge_method: passthrough\nmodels: [{model: out}]\n", tmp_path / "read")
    theirs = loaded(out)
    assert as_bytes(stored(ours)) == as_bytes({n: theirs[n] for n in stored(ours)})


def test_experts_in_one_tensor_are_read_with_their_scales(tmp_path: Path) -> None:
    """transformers 5 writes codes (experts, rows, columns) and scales (experts, blocks, blocks)."""
    parts = [SCHEMES["fp8 block"](256, 128, seed) for seed in range(3)]
    codes, scales = (
        torch.stack([part[key] for part, _, _ in parts]) for key in ("weight", "weight_scale_inv")
    )
    name = "model.layers.0.mlp.experts.gate_up_proj"
    (tmp_path / "a").mkdir()
    save_file({name: codes, f"{name}_scale_inv": scales}, tmp_path / "a" / "model.safetensors")
    text = "merge_method: passthrough\nout_dtype: float32\nmodels: [{model: a}]\n"
    found = stored(merge(tmp_path, text, tmp_path / "out"))
    assert found.keys() == {name}
    assert torch.equal(found[name], torch.stack([weight for _, weight, _ in parts]))
