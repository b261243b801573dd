"""The files, buffers and held values with which tensors are computed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from resumerge.kernels.blocks import BlockRun
from resumerge.kernels.measurements import measure
from resumerge.native import CODES, KINDS, Vector
from resumerge.tensors.buffers import Buffers
from resumerge.tensors.dtypes import FLOATS

Value = TypeVar("Value")


class InFile(Protocol):
    """A tensor that is stored in a file."""

    @property
    def name(self) -> str:
        """The tensor's name."""

    @property
    def source(self) -> int:
        """The number of the tensor's source in the plan."""

    @property
    def file(self) -> str:
        """The path of the tensor's file, relative to the folder of the source."""


class Files(Protocol):
    """The files of all sources, as implemented by `SourceReader`."""

    def descriptor(self, tensor: InFile) -> int | None:
        """Return an open descriptor of a tensor's file; None if the file is not on this disk."""

    def fill(self, tensor: InFile, offset: int, buffer: memoryview) -> None:
        """Fill a buffer with the bytes of a tensor's file, from an offset in bytes."""


class MethodBackend(Protocol):
    """The code that runs the merge method of one tensor, with kernels or with torch."""

    def map(
        self, function: Callable[[Any, Any], Any], inputs: list[Vector], run: BlockRun
    ) -> list[Any]:
        """Return the partial results of a map function of the method's statistics."""

    def compute(self, inputs: list[Vector], run: BlockRun, statistics: Any, out: Vector) -> None:
        """Compute consecutive blocks into `out`, rounded to its type."""


InputHashes = Mapping[int, bytearray]
"""The hashes of blocks of the root's operands (xxh3-128, 16 bytes each), by the operand's number.

A block's hash is appended when the block is read, before its elements are rounded. Operands without
an entry are not hashed.
"""

NO_HASHES: InputHashes = {}

Compare = Callable[[Vector, Sequence[Vector], Vector], None]
"""A function of the reference, the other operands and the results of a block run.

The arguments are those of `measure`. The vectors are valid until the next block run is computed.
"""


class HeldValues:
    """A cache of values that are used for many blocks. The least recently used are dropped.

    Args:
        limit: bytes of all values together. The newest value is kept even if it is larger.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: OrderedDict[Hashable, tuple[int, Any]] = OrderedDict()
        self._lock = threading.RLock()

    def get(self, key: Hashable, nbytes: int, make: Callable[[], Value]) -> Value:
        """Return a value. The first caller computes it; callers in other threads wait for it.

        Args:
            key: the tensor or step, alone or in a tuple; equal keys share one value.
            nbytes: bytes of the value, as declared; they count towards the limit and are not
                checked.
            make: a function that computes the value.
        """
        with self._lock:
            if key not in self._values:
                self._values[key] = nbytes, make()
                while len(self._values) > 1 and sum(n for n, _ in self._values.values()) > (
                    self._limit
                ):
                    self._values.popitem(last=False)
            self._values.move_to_end(key)
            value: Value = self._values[key][1]
            return value


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Everything that a tensor is computed with, at one depth of its tree. Threads may share it.

    There is one buffer for each thread, name and depth. Tensors that are computed one after the
    other at the same depth use the same buffers, so that the depth of the tree bounds a thread's
    memory.

    Args:
        files: the files of all sources.
        buffers: the buffers of all threads.
        held: the values that are held between blocks.
        backend_of: a function that returns the backend of a `Merged`.
        preparation: for each `Merged`, its statistics (the results of its reductions over whole
            tensors); for each `Spilled`, its scratch file.
        hashes: the hashes of the root's operands, to which blocks are added.
        measurements: a list to which the measurements of the root's blocks are appended, one array
            for each block run; None to measure nothing.
        block_elements: elements of a measured block. A `Merged` uses its own block size instead.
        depth: the number of levels of the tree above the tensor.
        device: the device of steps that use torch.
        compare: a function that is called instead of measuring; None to call nothing.
    """

    files: Files
    buffers: Buffers
    held: HeldValues
    backend_of: Callable[[Any], MethodBackend]
    preparation: Mapping[Any, Any]
    hashes: InputHashes = field(default_factory=dict)
    measurements: list[np.ndarray] | None = None
    block_elements: int = 0
    depth: int = 0
    device: str = "cpu"
    compare: Compare | None = None

    def inner(self) -> Evaluation:
        """Return the evaluation of the tensors that a tensor is computed from, one level deeper.

        Only the root's operands are hashed, and only its blocks are measured.
        """
        return replace(
            self,
            depth=self.depth + 1,
            hashes=NO_HASHES,
            measurements=None,
            compare=None,
            block_elements=0,
        )

    def comparing(self, compare: Compare | None, block_elements: int = 0) -> Evaluation:
        """Return the same evaluation, except that it calls a function instead of measuring.

        Args:
            compare: the function; None to neither call nor measure.
            block_elements: elements of a block of the tensor that is measured.
        """
        return replace(self, compare=compare, measurements=None, block_elements=block_elements)

    @property
    def measures(self) -> bool:
        """Whether the changes of the tensor that is read are measured, or passed to a function."""
        return self.measurements is not None or self.compare is not None

    def measure(
        self,
        reference: Vector,
        others: Sequence[Vector],
        out: Vector,
        written: np.ndarray | None = None,
    ) -> None:
        """Measure a block run. The arguments are those of `kernels.measurements.measure`."""
        if self.compare is not None:
            self.compare(reference, others, out)
        elif self.measurements is not None:
            self.measurements.append(measure(reference, others, out, written))

    def take(self, name: Hashable, size: int) -> np.ndarray:
        """Return `size` bytes (uint8) of the buffer with this name. Their content is undefined."""
        return self.buffers.take((self.depth, name), size)

    def vector(self, name: Hashable, length: int, code: int) -> Vector:
        """Return a vector in the buffer with this name, of an element type from `CODES`."""
        return self.buffers.vector((self.depth, name), length, code)


def code_of(dtype: str) -> int:
    """Return the code (from `CODES`) of a float type, given by its safetensors name."""
    return CODES[FLOATS[dtype]]


def as_vector(data: np.ndarray, dtype: str) -> Vector:
    """Return bytes as a vector of a float type, given by its safetensors name."""
    code = code_of(dtype)
    return Vector(data.view(KINDS[code]), code)


def bytes_of(vector: Vector) -> np.ndarray:
    """Return the bytes (uint8) of a vector."""
    data: np.ndarray = vector.data
    return data.view(np.uint8)
