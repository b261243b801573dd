"""The torch backend: operands in float32, results in the output's dtype."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from resumerge.engine.execute.evaluation.buffers import Buffers, Seen, unseen
from resumerge.engine.execute.evaluation.row_gather import RowReader
from resumerge.methods import Block
from resumerge.planning.plan import Operand, Unit
from resumerge.sources.dtypes import FLOATS, nbytes
from resumerge.sources.reader import SourceReader


class TorchBackend:
    """Reads operands as float32 tensors on a device, and rounds results to bytes."""

    def __init__(self, reader: SourceReader, buffers: Buffers, device: str) -> None:
        self._reader = reader
        self._buffers = buffers
        self._rows = RowReader(reader, buffers)
        self._device = torch.empty(0, device=device).device  # cuda:0, where cuda is asked for

    def start_thread(self) -> None:
        """Have torch use one thread: several would change the order of sums."""
        torch.set_num_threads(1)

    def inputs(self, unit: Unit, block: Block, seen: Seen = unseen) -> list[Tensor]:
        """The operands of a block, rounded to the recipe's dtype and then widened to float32.

        Args:
            seen: called with each operand's number and its bytes: as they were read, or as they
                were gathered from the rows of several tensors.
        """
        cast = unit.expression.cast
        return [
            self._input(k, operand, block, cast, seen).to(self._device)
            for k, operand in enumerate(unit.expression.operands)
        ]

    def is_block(self, result: object, block: Block) -> bool:
        """Whether what a method returned is the block that it was asked for."""
        return (
            isinstance(result, Tensor)
            and result.shape == (block.stop - block.start,)
            and result.dtype == torch.float32
            and result.layout == torch.strided
            and result.device == self._device
        )

    def are_finite(self, vectors: Sequence[Any]) -> bool:
        """Whether they hold neither NaN nor infinity."""
        return all(bool(vector.isfinite().all()) for vector in vectors)

    def expected(self, block: Block) -> str:
        """The same in words."""
        count = block.stop - block.start
        return f"Tensor, torch.float32, {self._device}, of shape {(count,)}"

    def rounded(self, unit: Unit, result: Tensor) -> memoryview:
        """The bytes of a result in the unit's dtype: the only rounding of results."""
        dtype = getattr(torch, FLOATS[unit.dtype])
        buffer = self._buffers.take("out", result.numel() * dtype.itemsize)
        rounded = torch.from_numpy(buffer).view(dtype).copy_(result)
        if dtype.itemsize > 1:
            rounded.masked_fill_(
                rounded.isnan(), math.nan
            )  # processors differ in which NaN an operation gives
        return buffer.data

    def _input(
        self, k: int, operand: Operand, block: Block, cast: str | None, seen: Seen
    ) -> Tensor:
        own = FLOATS[operand.tensor.dtype]
        wide = self._buffers.take(f"float32 {k}", (block.stop - block.start) * 4)
        values = torch.from_numpy(wide).view(torch.float32)
        if operand.rows is not None:
            self._rows.read_into(operand.rows, block.start, block.stop, cast, values)
            seen(k, wide)
            return values
        if own == "float32" and cast in (None, own):
            self._read(operand, block, wide.data)
            seen(k, wide)
            return values
        dtype = operand.tensor.dtype
        raw = self._buffers.take(f"raw {k}", nbytes(dtype, block.stop) - nbytes(dtype, block.start))
        self._read(operand, block, raw.data)
        seen(k, raw)
        read = torch.from_numpy(raw).view(getattr(torch, own))
        return values.copy_(read if cast in (None, own) else read.to(getattr(torch, cast)))

    def _read(self, operand: Operand, block: Block, view: memoryview) -> None:
        self._reader.read_into(operand.source, operand.tensor, block.start, block.stop, view)
