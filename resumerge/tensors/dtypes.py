"""Element types by their safetensors names, and the types that merge methods compute with."""

from __future__ import annotations

BITS: dict[str, int] = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}
"""Bits of one element."""

FLOAT32_BYTES, FLOAT64_BYTES = 4, 8
"""Bytes of one element of the types in which numbers are computed."""

FLOATS: dict[str, str] = {
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}
"""The types that merge methods compute with, and their torch names. Other types are copied."""

BY_TORCH_NAME: dict[str, str] = {torch_name: name for name, torch_name in FLOATS.items()}


def nbytes(dtype: str, numel: int) -> int:
    """Return the length in bytes of `numel` elements. Elements of less than a byte are packed."""
    return (BITS[dtype] * numel + 7) // 8
