"""The description of quantised outputs: tensors of a weight, and quantization_config."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from resumerge.tensors import Quantised, Tensor
from resumerge.tensors.dtypes import BITS
from resumerge.tensors.quantised.quantised import Form
from resumerge.tensors.target import Target

Config = Callable[[Sequence[str]], dict[str, Any]]
"""A function that returns the quantization_config, given the modules that stay plain."""

WRITTEN_SCALES = frozenset({"F32", "BF16", "F16"})
"""The dtypes of scales that are written as floats."""

_PACKED = {"I32": 4, "U8": 1, "I8": 1, "F8_E4M3": 1}
"""The bytes of an element, for each dtype of codes."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The tensors that a weight is written as.

    Args:
        form: the way in which the numbers of a block are written.
        block: the (rows, columns) of a block with one scale; 0 columns for a whole row.
        codes: the name of the codes, after the module's.
        scales: the name of the scales, after the module's.
        dtype: the dtype of the codes in the file.
        shape: the name of a tensor with the weight's shape; empty for none.
        factor: the name of the factor of the whole weight; empty for none.
    """

    form: Form
    block: tuple[int, int]
    codes: str
    scales: str
    dtype: str
    shape: str = ""
    factor: str = ""

    def obstacle(self, shape: tuple[int, ...]) -> str:
        """Return why a matrix of a shape cannot be written in the scheme; empty if it can."""
        rows, columns = shape
        height, width = self.block[0], self.block[1] or 1
        if rows % height or columns % width:
            multiples = f"{height} x {width}" if height > 1 else f"{width} columns"
            return f"no multiple of {multiples}"
        if self._bytes(rows, columns) % self.alignment or rows * columns == 0:
            return "too small to be aligned"
        return ""

    @property
    def alignment(self) -> int:
        """The bytes of which the length of all tensors of a weight together is a multiple."""
        return 8 if self.shape else 4

    def target(self, target: Target, weight: Tensor) -> Target:
        """Return a weight of the output as it is written.

        Args:
            target: the weight.
            weight: the tensor that computes it, unrounded.
        """
        stem = stem_of(target.name)
        *rows, columns = target.shape
        form, block = self.form, (self.block[0], self.block[1] or columns)
        described = np.array(target.shape, np.int64).tobytes() if self.shape else b""
        quantised = Quantised.of(target.name, weight, form, block, described)
        width = columns // form.code.per_byte // _PACKED[self.dtype]
        tensors = {stem + self.codes: (*rows, width), stem + self.scales: quantised.grid}
        dtypes = {stem + self.codes: self.dtype, stem + self.scales: form.scales}
        if self.factor:
            tensors[stem + self.factor], dtypes[stem + self.factor] = (1,), "F32"
        if self.shape:
            tensors[stem + self.shape], dtypes[stem + self.shape] = (2,), "I64"
        return Target(
            name=target.name,
            dtype="U8",
            shape=quantised.shape,
            block_elements=quantised.bytes_at_once,
            expression=quantised,
            tensors=tensors,
            dtypes=dtypes,
        )

    def _bytes(self, rows: int, columns: int) -> int:
        """Return the bytes of codes and scales."""
        scales = (rows // self.block[0]) * (columns // (self.block[1] or columns or 1))
        width = BITS[self.form.scales] // 8
        codes = rows * columns // self.form.code.per_byte
        return codes + scales * width + 4 * bool(self.factor)


@dataclass(frozen=True, kw_only=True)
class OutputScheme:
    """A scheme that weights can be written in.

    Args:
        name: the value of the recipe's ``out_dtype``.
        kind: the scheme in words.
        layout: the tensors of a weight.
        config: makes the quantization_config.
        loaders: a sentence on what loads the output.
    """

    name: str
    kind: str
    layout: Layout
    config: Config
    loaders: str

    def layout_beside(self, dtype: str) -> Layout:
        """Return the tensors of a weight whose model has plain tensors of a dtype.

        Loaders hold scales of compressed-tensors in that dtype: in BF16, F16 or F32.
        """
        if self.layout.form.scales != "BF16":
            return self.layout
        scales = dtype if dtype in ("F16", "BF16") else "F32"
        return replace(self.layout, form=replace(self.layout.form, scales=scales))


def stem_of(name: str) -> str:
    """Return the beginning of the names of a weight's parts: ``a.q_proj.`` of a.q_proj.weight."""
    return name.removesuffix("weight") if name.endswith(".weight") else name


def of_compressed_tensors(
    form: str, weights: Mapping[str, Any], activations: Mapping[str, Any] | None = None
) -> Config:
    """Return a function that makes the quantization_config of compressed-tensors.

    Args:
        form: the name of the format, like ``pack-quantized``.
        weights: the format's settings of weights, besides that they are symmetric.
        activations: the settings of activations that are quantised at run time; None for none.
    """
    common = {"symmetric": True, "dynamic": False}

    def config(plain: Sequence[str]) -> dict[str, Any]:
        group = {
            "targets": ["Linear"],
            "weights": {**weights, **common},
            "input_activations": dict(activations) if activations else None,
            "output_activations": None,
            "format": form,
        }
        return {
            "quant_method": "compressed-tensors",
            "quantization_status": "compressed",
            "format": form,
            "config_groups": {"group_0": group},
            "ignore": list(plain),
            "kv_cache_scheme": None,
        }

    return config


BY_COMPRESSED_TENSORS = "transformers loads it with the package compressed-tensors, vLLM as it is"
