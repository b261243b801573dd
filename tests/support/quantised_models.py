"""Quantised weights as the libraries of their schemes write them, and as these read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

Made = tuple[dict[str, Tensor], Tensor, dict[str, Any]]
"""(tensors of the file, without the module's name; the library's weight; quantization_config)."""


def _weight(rows: int, columns: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator) * 0.05


def _compressed(
    weights: Mapping[str, Any], rows: int, columns: int, seed: int, dtype: torch.dtype
) -> Made:
    """Quantise a weight with compressed-tensors, and decompress it."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.utils import (
        calculate_qparams,
        generate_gparam,
    )

    form = dict(weights)
    name = form.pop("format")
    args = QuantizationArgs(**form)
    weight = _weight(rows, columns, seed).to(dtype)
    groups = {"group": args.group_size, "tensor_group": args.group_size, "channel": columns}
    state = {"weight": weight}
    whole = None
    if args.strategy == "tensor_group":
        whole = generate_gparam(weight.min().float(), weight.max().float())
        state["weight_global_scale"] = whole
    if args.strategy == "tensor":
        low, high = weight.min().reshape(1), weight.max().reshape(1)
    elif args.strategy == "block":
        height, width = args.block_structure
        padded = torch.nn.functional.pad(weight, (0, -columns % width, 0, -rows % height))
        blocks = padded.reshape(padded.shape[0] // height, height, -1, width)
        low, high = blocks.amin((1, 3)), blocks.amax((1, 3))
    else:
        parts = weight.reshape(rows, -1, groups[args.strategy])
        low, high = parts.amin(2), parts.amax(2)
    scale, zero = calculate_qparams(low, high, args, global_scale=whole)
    state |= {"weight_scale": scale, "weight_zero_point": zero}
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    compressor = BaseCompressor.get_value_from_registry(name)
    stored = compressor.compress(state, scheme)
    stored = {key: torch.as_tensor(value) for key, value in stored.items()}
    expected = compressor.decompress(stored, scheme)["weight"]
    config = {
        "quant_method": "compressed-tensors",
        "format": name,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": form}},
    }
    return stored, expected, config


def _fp8_block(rows: int, columns: int, seed: int) -> Made:
    """Quantise a weight as DeepSeek-V3 is published, and multiply its codes by their scales."""
    weight, size = _weight(rows, columns, seed), 128
    padded = torch.nn.functional.pad(weight, (0, -columns % size, 0, -rows % size))
    blocks = padded.reshape(padded.shape[0] // size, size, -1, size)
    scales = blocks.abs().amax((1, 3)) / 448
    codes = (blocks / scales[:, None, :, None]).to(torch.float8_e4m3fn)
    expected = (codes.float() * scales[:, None, :, None]).reshape(padded.shape)[:rows, :columns]
    stored = {
        "weight": codes.reshape(padded.shape)[:rows, :columns].contiguous(),
        "weight_scale_inv": scales,
    }
    return stored, expected, {"quant_method": "fp8", "weight_block_size": [size, size]}


def _bitsandbytes_4(kind: str, nested: bool, rows: int, columns: int, seed: int) -> Made:
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    weight = _weight(rows, columns, seed)
    codes, state = quantize_4bit(weight, blocksize=64, quant_type=kind, compress_statistics=nested)
    packed = state.as_dict(packed=True)
    stored = {"weight": codes, **{f"weight.{key}": value for key, value in packed.items()}}
    expected = dequantize_4bit(codes, state)
    return stored, expected, {"quant_method": "bitsandbytes", "load_in_4bit": True}


def _bitsandbytes_8(rows: int, columns: int, seed: int) -> Made:
    from bitsandbytes.functional import int8_vectorwise_dequant, int8_vectorwise_quant

    weight = _weight(rows, columns, seed).half()
    codes, scales, _ = int8_vectorwise_quant(weight)
    expected = int8_vectorwise_dequant(codes, scales)
    stored = {"weight": codes, "SCB": scales, "weight_format": torch.tensor(0, dtype=torch.uint8)}
    return stored, expected, {"quant_method": "bitsandbytes", "load_in_8bit": True}


def _packed(numbers: Tensor, bits: int, order: tuple[int, ...]) -> Tensor:
    """Pack whole numbers of the last dimension into 32-bit words; `order`: that of each place."""
    words = numbers.reshape(*numbers.shape[:-1], -1, 32 // bits)
    total = sum(words[..., number] << (bits * place) for place, number in enumerate(order))
    assert isinstance(total, Tensor)
    return total.to(torch.int64).to(torch.int32)


def _rounded(weight: Tensor, bits: int, group: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the numbers (in, out), zero points and scales (groups, out) of a weight (in, out)."""
    scales, zeros = [], []
    for number in range(int(group.max()) + 1):
        part = weight[group == number]
        scale = ((part.amax(0) - part.amin(0)) / (2**bits - 1)).half()
        scales.append(scale)
        zeros.append((-part.amin(0) / scale.float()).round().clamp(0, 2**bits - 1).long())
    scale, zero = torch.stack(scales), torch.stack(zeros)
    numbers = (weight / scale[group].float()).round().long() + zero[group]
    return numbers.clamp(0, 2**bits - 1), zero, scale


def _gptq(bits: int, order: str, form: str, rows: int, columns: int, seed: int) -> Made:
    """Quantise as GPTQ's packers do: packed along inputs; in ``gptq`` with zero points less one."""
    size = 32
    group = torch.arange(columns) // size
    if order == "act":
        group = group[torch.randperm(columns, generator=torch.Generator().manual_seed(seed))]
    numbers, zeros, scales = _rounded(_weight(rows, columns, seed).T.contiguous(), bits, group)
    places = tuple(range(32 // bits))
    less = 1 if form == "gptq" else 0
    stored = {
        "qweight": _packed(numbers.T, bits, places).T.contiguous(),
        "qzeros": _packed((zeros - less) % 2**bits, bits, places),
        "scales": scales,
        "g_idx": group.int(),
    }
    expected = scales[group].float() * (numbers - zeros[group])
    config = {"quant_method": "gptq", "bits": bits, "group_size": size, "checkpoint_format": form}
    return stored, expected.T.contiguous(), config


def _awq(rows: int, columns: int, seed: int) -> Made:
    """Quantise as AutoAWQ does for its GEMM format: packed along outputs, even places first."""
    group = torch.arange(columns) // 32
    numbers, zeros, scales = _rounded(_weight(rows, columns, seed).T.contiguous(), 4, group)
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    stored = {
        "qweight": _packed(numbers, 4, order),
        "qzeros": _packed(zeros, 4, order),
        "scales": scales,
    }
    expected = scales[group].float() * (numbers - zeros[group])
    config = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"}
    return stored, expected.T.contiguous(), config


def _compressed_of(weights: dict[str, Any]) -> Callable[[int, int, int], Made]:
    return lambda rows, columns, seed: _compressed(weights, rows, columns, seed, torch.bfloat16)


def _form(name: str, kind: str, bits: int, strategy: str, **more: Any) -> dict[str, Any]:
    return {"format": name, "type": kind, "num_bits": bits, "strategy": strategy, **more}


SCHEMES: dict[str, Callable[[int, int, int], Made]] = {
    "fp8 block": _fp8_block,
    "float8 tensor": _compressed_of(_form("float-quantized", "float", 8, "tensor")),
    "float8 channel": _compressed_of(_form("float-quantized", "float", 8, "channel")),
    "float8 block": _compressed_of(
        _form("float-quantized", "float", 8, "block", block_structure=[128, 128])
    ),
    "mxfp8": _compressed_of(
        _form("mxfp8-quantized", "float", 8, "group", group_size=32, scale_dtype="torch.uint8")
    ),
    "int8 channel": _compressed_of(_form("int-quantized", "int", 8, "channel")),
    "int8 asymmetric": _compressed_of(_form("int-quantized", "int", 8, "channel", symmetric=False)),
    "int4 group": _compressed_of(_form("pack-quantized", "int", 4, "group", group_size=32)),
    "int4 asymmetric": _compressed_of(
        _form("pack-quantized", "int", 4, "group", group_size=32, symmetric=False)
    ),
    "int8 packed": _compressed_of(_form("pack-quantized", "int", 8, "channel")),
    "nvfp4": _compressed_of(
        _form("nvfp4-pack-quantized", "float", 4, "tensor_group", group_size=16)
    ),
    "mxfp4": _compressed_of(
        _form("mxfp4-pack-quantized", "float", 4, "group", group_size=32, scale_dtype="torch.uint8")
    ),
    "nf4": lambda *a: _bitsandbytes_4("nf4", False, *a),
    "nf4 nested": lambda *a: _bitsandbytes_4("nf4", True, *a),
    "fp4 nested": lambda *a: _bitsandbytes_4("fp4", True, *a),
    "llm.int8": _bitsandbytes_8,
    "gptq": lambda *a: _gptq(4, "in order", "gptq", *a),
    "gptq act-order": lambda *a: _gptq(4, "act", "gptq", *a),
    "gptq v2, 8 bits": lambda *a: _gptq(8, "in order", "gptq_v2", *a),
    "awq": _awq,
}
"""Functions that return a quantised weight of (rows, columns) made with a seed."""


def gpt_oss_experts(experts: int, inputs: int, outputs: int, seed: int) -> Made:
    """Return experts in MXFP4 as gpt-oss stores them, and as transformers dequantises them."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    generator = torch.Generator().manual_seed(seed)
    shape = (experts, outputs, inputs // 32)
    blocks = torch.randint(0, 256, (*shape, 16), generator=generator, dtype=torch.uint8)
    scales = torch.randint(110, 130, shape, generator=generator, dtype=torch.uint8)
    expected = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    return {"_blocks": blocks, "_scales": scales}, expected, {"quant_method": "mxfp4"}
