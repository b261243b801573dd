"""The description of quantised outputs: the tensors of a weight, and quantization_config."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from resumerge.tensors import Quantised, Tensor
from resumerge.tensors.dtypes import BITS
from resumerge.tensors.quantised.form import Form
from resumerge.tensors.target import Target

Config = Callable[[Sequence[str]], dict[str, Any]]
"""A function from the names of the modules that stay plain to the quantization_config."""

WRITTEN_SCALES = frozenset({"F32", "BF16", "F16"})
"""The dtypes of floats in which scales can be written."""

_PACKED = {"I32": 4, "U8": 1, "I8": 1, "F8_E4M3": 1}
"""The number of bytes of an element, by dtype of the codes."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The tensors in which a quantised weight is written.

    A tensor's name is its name here, after the weight's `stem_of`.

    Args:
        form: the encoding of the numbers of a block.
        block: the (rows, columns) of a block with one scale; 0 columns for a whole row.
        codes: the end of the name of the codes, such as ``weight_packed``.
        scales: the end of the name of the scales, such as ``weight_scale``.
        dtype: the dtype of the codes in the file.
        shape: the name of a tensor with the weight's shape; empty if none is written.
        factor: the name of the factor of the whole weight; empty if none is written.
    """

    form: Form
    block: tuple[int, int]
    codes: str
    scales: str
    dtype: str
    shape: str = ""
    factor: str = ""

    def obstacle(self, shape: tuple[int, ...]) -> str:
        """Return the reason why a matrix of a shape cannot be written; "" if it can be."""
        rows, columns = shape
        block_rows, block_columns = self.block[0], self.block[1] or 1
        if rows % block_rows or columns % block_columns:
            multiples = (
                f"{block_rows} x {block_columns}" if block_rows > 1 else f"{block_columns} columns"
            )
            return f"no multiple of {multiples}"
        if self._bytes(rows, columns) % self.alignment or rows * columns == 0:
            return "too small to be aligned"
        return ""

    @property
    def alignment(self) -> int:
        """The alignment in bytes: the total size of a weight's tensors is a multiple of it."""
        return 8 if self.shape else 4

    def target(self, target: Target, weight: Tensor) -> Target:
        """Return the target that writes a weight of the output in this layout.

        Args:
            target: the unquantised weight.
            weight: the tensor that computes the weight, unrounded.
        """
        stem = stem_of(target.name)
        *rows, columns = target.shape
        form, block = self.form, (self.block[0], self.block[1] or columns)
        shape_bytes = np.array(target.shape, np.int64).tobytes() if self.shape else b""
        quantised_weight = Quantised.of(target.name, weight, form, block, shape_bytes)
        row_elements = columns // form.code.per_byte // _PACKED[self.dtype]
        tensors = {
            stem + self.codes: (*rows, row_elements),
            stem + self.scales: quantised_weight.grid,
        }
        dtypes = {stem + self.codes: self.dtype, stem + self.scales: form.scales}
        if self.factor:
            tensors[stem + self.factor], dtypes[stem + self.factor] = (1,), "F32"
        if self.shape:
            tensors[stem + self.shape], dtypes[stem + self.shape] = (2,), "I64"
        return Target(
            name=target.name,
            dtype="U8",
            shape=quantised_weight.shape,
            block_elements=quantised_weight.bytes_at_once,
            expression=quantised_weight,
            tensors=tensors,
            dtypes=dtypes,
        )

    def _bytes(self, rows: int, columns: int) -> int:
        """Return the total size of codes, scales and factor, in bytes."""
        scale_count = (rows // self.block[0]) * (columns // (self.block[1] or columns or 1))
        scale_width = BITS[self.form.scales] // 8
        code_bytes = rows * columns // self.form.code.per_byte
        return code_bytes + scale_count * scale_width + 4 * bool(self.factor)


@dataclass(frozen=True, kw_only=True)
class OutputScheme:
    """A scheme in which weights can be written.

    Args:
        name: the value of the recipe's ``out_dtype``.
        kind: a description of the scheme, for messages.
        layout: the tensors of a weight.
        config: returns the quantization_config.
        loaders: a sentence on the libraries that load the output.
    """

    name: str
    kind: str
    layout: Layout
    config: Config
    loaders: str

    def layout_for_dtype(self, dtype: str) -> Layout:
        """Return the layout of weights in a model whose plain tensors have a dtype.

        Loaders of compressed-tensors hold scales in the dtype of the plain tensors. Scales in BF16
        are therefore written in F16 or F32 if the plain tensors are not BF16.
        """
        if self.layout.form.scales != "BF16":
            return self.layout
        scales = dtype if dtype in ("F16", "BF16") else "F32"
        return replace(self.layout, form=replace(self.layout.form, scales=scales))


def stem_of(name: str) -> str:
    """Return the common beginning of the names of a weight's tensors.

    That is ``a.q_proj.`` for ``a.q_proj.weight``.
    """
    return name.removesuffix("weight") if name.endswith(".weight") else name


def of_compressed_tensors(
    form: str, weights: Mapping[str, Any], activations: Mapping[str, Any] | None = None
) -> Config:
    """Return a function that returns the quantization_config of compressed-tensors.

    Args:
        form: the name of the format, like ``pack-quantized``.
        weights: the settings of weights, without the settings that all formats share.
        activations: the settings of activations that are quantised at run time; None if they are
            not quantised.
    """
    common_settings = {"symmetric": True, "dynamic": False}

    def config(plain: Sequence[str]) -> dict[str, Any]:
        group = {
            "targets": ["Linear"],
            "weights": {**weights, **common_settings},
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
