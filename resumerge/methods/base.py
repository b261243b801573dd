"""What a merge method is: a declaration, and a computation that streams over blocks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from resumerge.kernels.blocks import Block, Scan

REQUIRED: Any = object()
"""Default of a parameter that the recipe must give."""

FLOAT32_MAX = 3.4028234663852886e38

Value = float | bool
"""A parameter, resolved for one tensor."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a method. Help, validation and the table in docs/methods.md come from it.

    Args:
        meaning: one line for the user.
        kind: ``float``, ``int`` or ``bool``.
        per_model: given for each model, rather than once for the merge.
        low: smallest value allowed, inclusive.
        high: largest value allowed, inclusive.
        saturates: a larger value counts as `high`.
    """

    name: str
    meaning: str
    default: Any = REQUIRED
    kind: Literal["float", "int", "bool"] = "float"
    per_model: bool = False
    low: float = -FLOAT32_MAX
    high: float = FLOAT32_MAX
    saturates: bool = False

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


@dataclass(frozen=True)
class Paper:
    """Where a method was published."""

    title: str
    url: str


@dataclass(frozen=True)
class BlockCost:
    """CPU time and memory of one block, for the estimates of `resumerge plan`.

    The built-in methods declare what was measured: docs/benchmarks.md says how. The memory is what
    the process grows by for each thread, so it includes what the allocator of the C library loses.

    Args:
        milliseconds: of CPU for 2^20 elements of each input, all passes together.
        scratch: memory, as a number of float32 blocks, beside the inputs as stored and, with torch,
            the inputs in float32.
        per_input: float32 blocks in addition for each input.
    """

    milliseconds: float = 6.0
    scratch: float = 12.0
    per_input: float = 0.0


@dataclass(frozen=True)
class TensorContext:
    """What a method knows of the tensor that it computes.

    Args:
        shape: of the tensor.
        params: the parameters of the merge, resolved for this tensor.
        per_model: the parameters of each input, in the order of the inputs.
        base: which input is the base model; None where the recipe names none.
        name: of the output tensor; part of the key of random masks.
        seed: of the run; part of that key as well.
        bits: width of an element of the widest input.
    """

    shape: tuple[int, ...]
    params: Mapping[str, Value]
    per_model: tuple[Mapping[str, Value], ...]
    base: int | None
    name: str
    seed: int
    bits: int

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def others(self) -> list[int]:
        """The inputs that are not the base model."""
        return [i for i in range(len(self.per_model)) if i != self.base]

    def values(self, parameter: str) -> list[float]:
        """A per-model parameter of every input that has it, in the order of the inputs.

        The base model of a method that declares one has no parameters.
        """
        return [float(given[parameter]) for given in self.per_model if parameter in given]


class Method(ABC):
    """A merge method. To add one, write a subclass in a file of a folder beside this module.

    The engine calls `statistics` once for a tensor (any number of reductions over its blocks, none
    for elementwise methods), then `block` for each block. Inputs are flat and scratch: a method may
    compute in them, in place. The same call must give the same bits whatever was computed before or
    beside it.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    """One line: what the method does."""
    papers: ClassVar[tuple[Paper, ...]] = ()
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    base: ClassVar[Literal["none", "optional", "required"]] = "none"
    """Whether the method reads a base model."""
    fewest: ClassVar[int] = 1
    most: ClassVar[int | None] = None
    """Number of inputs: a required base is counted among them, an optional one is not."""
    version: ClassVar[int] = 1
    """Raised when the method's results change; part of a run's fingerprint."""
    whole_tensor: ClassVar[bool] = False
    """Whether a block is the whole tensor, however large it is."""
    torch_cost: ClassVar[BlockCost] = BlockCost()
    """Of a block that torch computes."""
    compiled_cost: ClassVar[BlockCost] = BlockCost(4.0, scratch=3.2, per_input=0.45)
    """Of a block that the compiled kernels compute; see `compiled`."""

    def validate(self, tensor: TensorContext) -> str | None:
        """Check the parameters of one tensor together.

        Returns:
            What is expected where they do not go together, for the user; None where they do.
        """
        return None

    def passes(self, tensor: TensorContext) -> int:
        """How many times the inputs are read: once for each reduction, and once for the blocks."""
        return 1

    def statistics_bytes(self, tensor: TensorContext) -> int:
        """Bytes that the statistics take until the tensor is done, like selection candidates."""
        return 0

    def row_elements(self, tensor: TensorContext) -> int | None:
        """Length of the rows that must not be split between blocks; None without such rows."""
        return tensor.numel if self.whole_tensor else None

    def compiled(self, tensor: TensorContext) -> bool:
        """Whether the method computes with `resumerge.kernels` alone.

        Then its inputs are `resumerge.native.Vector` where the compiled kernels are installed.
        """
        return False

    def is_copy(self, tensor: TensorContext) -> bool:
        """Whether the result is the (single) input, unchanged."""
        return False

    def statistics(self, tensor: TensorContext, scan: Scan[Any]) -> Any:
        """Reduce over the whole tensor what every block needs to know."""
        return None

    @abstractmethod
    def block(self, tensor: TensorContext, inputs: list[Any], block: Block, statistics: Any) -> Any:
        """Compute one block.

        Args:
            inputs: one for each model, of ``block.stop - block.start`` elements: float32 tensors
                of torch or, where `compiled`, vectors of the compiled kernels.
            statistics: what `statistics` returned.

        Returns:
            float32, of the same kind and length.
        """
