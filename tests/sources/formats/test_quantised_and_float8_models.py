"""Plain float8 and mixed dtypes are read as they are; quantisations that are not read are named."""

import json
from pathlib import Path

import pytest
import torch
from merging import merge, tensors_of
from safetensors.torch import save_file
from torch import Tensor

from resumerge.errors import InputError
from resumerge.recipe import ModelRef
from resumerge.sources import open_source

MIXED: dict[str, Tensor] = {
    "e4m3.weight": torch.randn(40, 30).to(torch.float8_e4m3fn),
    "e5m2.weight": torch.randn(40, 30).to(torch.float8_e5m2),
    "bf16.weight": torch.randn(40, 30).bfloat16(),
    "f16.weight": torch.randn(40, 30).half(),
    "f32.weight": torch.randn(40, 30),
    "ids": torch.arange(5),
}
LINEAR = "merge_method: linear\nparameters: {weight: 0.5}\nmodels: [{model: a}, {model: b}]\n"


def test_each_tensor_keeps_its_dtype_and_is_computed_in_float32(tmp_path: Path) -> None:
    others = {
        name: (tensor.float() * 0.5).to(tensor.dtype) if tensor.is_floating_point() else tensor
        for name, tensor in MIXED.items()
    }
    for name, tensors in (("a", MIXED), ("b", others)):
        (tmp_path / name).mkdir()
        save_file(tensors, tmp_path / name / "model.safetensors")
    found = tensors_of(merge(tmp_path, LINEAR, tmp_path / "out"))
    for name, tensor in MIXED.items():
        expected = (
            ((tensor.float() + others[name].float()) / 2).to(tensor.dtype)
            if tensor.is_floating_point()
            else tensor
        )
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name].view(torch.uint8), expected.view(torch.uint8)), name


def test_float8_and_bfloat16_meet_in_a_type_that_holds_both(tmp_path: Path) -> None:
    wide = {name: t.bfloat16() for name, t in MIXED.items() if t.is_floating_point()}
    narrow = {name: t.to(torch.float8_e4m3fn) for name, t in wide.items()}
    for name, tensors in (("a", wide), ("b", narrow)):
        (tmp_path / name).mkdir()
        save_file(tensors, tmp_path / name / "model.safetensors")
    found = tensors_of(merge(tmp_path, LINEAR, tmp_path / "out"))
    for name in wide:
        expected = (wide[name].float() + narrow[name].float()) / 2
        assert torch.equal(found[name], expected)
    rounded = tensors_of(merge(tmp_path, LINEAR + "dtype: bfloat16\n", tmp_path / "rounded"))
    assert all(torch.equal(rounded[n], found[n].bfloat16()) for n in found)


U8, I8, I32 = (torch.zeros(4, 4, dtype=dtype) for dtype in (torch.uint8, torch.int8, torch.int32))
QUANTISED: dict[str, tuple[str, dict[str, Tensor]]] = {
    "hqq": ("HQQ", {"q.W_q": U8, "q.meta": U8}),
    "bitnet": ("packed into U8", {"q.weight": U8, "q.other": torch.ones(1)}),
    "eetq": ("EETQ", {"q.weight": I8, "q.weight_scales": torch.ones(4)}),
    "aqlm": ("AQLM", {"q.codes": I8, "q.codebooks": torch.ones(4)}),
    "consolidated": (
        "scales of an unknown kind",
        {"q.weight": torch.zeros(4, 4).to(torch.float8_e4m3fn), "q.qscale_weight": torch.ones(1)},
    ),
    "mxfp6": ("compressed-tensors", {"q.weight_packed": U8, "q.weight_scale": U8}),
}


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_models_are_refused_by_name(name: str, tmp_path: Path) -> None:
    words, tensors = QUANTISED[name]
    apart = {key: tensor.clone() for key, tensor in tensors.items()}
    save_file(apart, tmp_path / "model.safetensors")
    config = {"quantization_config": {"quant_method": name}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError) as caught:
        open_source(ModelRef(str(tmp_path), str(tmp_path)))
    [problem] = caught.value.problems
    assert words in problem.found
    assert name in problem.found
    assert "dequantize()" in problem.fix


def test_a_config_that_says_quantised_beside_plain_weights_is_believed_by_nobody(
    tmp_path: Path,
) -> None:
    save_file({"q.weight": torch.ones(4, 4)}, tmp_path / "model.safetensors")
    config = {"quantization_config": {"quant_method": "bitsandbytes"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert open_source(ModelRef(str(tmp_path), str(tmp_path))).tensors


def test_whole_numbers_that_are_no_weights_are_no_quantisation(tmp_path: Path) -> None:
    tensors = {
        "embeddings.position_ids": torch.arange(8)[None],
        "attn.bias": torch.ones(1, 1, 4, 4, dtype=torch.uint8),
        "bn.num_batches_tracked": torch.tensor(3),
        "scale.weight": torch.ones(4, dtype=torch.int8),
        "q.weight_scale_of_all.bias": torch.ones(4),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    assert open_source(ModelRef(str(tmp_path), str(tmp_path))).tensors.keys() == tensors.keys()
