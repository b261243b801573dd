"""The base classes of merge methods: what a method declares, and how it computes blocks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from resumerge.kernels.blocks import Block, BlockRun, Scan
from resumerge.native import Vector

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

REQUIRED: Any = object()
"""The default of a parameter without a default: the recipe must set it."""

FLOAT32_MAX = 3.4028234663852886e38

Value = float | bool
"""The value of a parameter, resolved for one tensor."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a method. Help, validation and the table in docs/methods.md come from it.

    Args:
        name: the key under ``parameters`` in the recipe.
        meaning: one line for the user.
        default: the value if the recipe does not set the parameter.
        kind: the type of the value.
        per_model: whether each model has its own value; else the merge has one.
        low: the smallest value allowed, inclusive.
        high: the largest value allowed, inclusive.
        saturates: whether a value above `high` is replaced by `high`; else it is refused.
        example: a value for new recipes and for tests; None if the default is suitable.
    """

    name: str
    meaning: str
    default: Any = REQUIRED
    kind: Literal["float", "int", "bool"] = "float"
    per_model: bool = False
    low: float = -FLOAT32_MAX
    high: float = FLOAT32_MAX
    saturates: bool = False
    example: float | None = None

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


@dataclass(frozen=True)
class Paper:
    """The publication of a method."""

    title: str
    url: str


@dataclass(frozen=True)
class BlockCost:
    """The CPU time and memory of one block, for the estimates of `resumerge plan`.

    The values of the built-in methods were measured, as docs/benchmarks.md describes. The memory is
    the growth of the process for each thread, including memory that the C library's allocator
    wastes.

    Args:
        milliseconds: the CPU time for 2^20 elements of each input, summed over all passes.
        scratch: the memory in addition to the inputs and the result, as a number of float32
            vectors of a block run's length. For methods on torch, the vectors have a block's
            length, and the inputs are float32.
        per_input: the number of additional vectors of that length for each input.
    """

    milliseconds: float = 6.0
    scratch: float = 12.0
    per_input: float = 0.0


@dataclass(frozen=True, kw_only=True)
class TensorContext:
    """The facts about one tensor that a method computes with.

    Args:
        shape: the shape of the output tensor, and of each input.
        params: the parameters of the merge, resolved for this tensor.
        per_model: the parameters of each input, in the order of the inputs.
        base: the index of the base model's input; None if the recipe names no base model.
        name: the name of the output tensor; part of the key of random masks.
        seed: the seed of the run; part of the key of random masks.
        bits: the width of an element of the widest input.
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
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def others(self) -> list[int]:
        """The indices of the inputs that are not the base model."""
        return [i for i in range(len(self.per_model)) if i != self.base]

    def base_of(self, inputs: Sequence[T]) -> T:
        """Return the base model's item of a sequence, for methods that require a base model.

        Args:
            inputs: one item for each model, in their order.
        """
        assert self.base is not None, f"{self.name} has no base model"
        return inputs[self.base]

    def values(self, parameter: str) -> list[float]:
        """Return the values of a per-model parameter, in the order of the inputs that have it.

        The base model has no parameters if the method declares a base.
        """
        return [float(params[parameter]) for params in self.per_model if parameter in params]


class MergeMethod(ABC):
    """The declarations of every merge method. Its subclasses `Method` and `KernelMethod` compute.

    For each tensor the engine first calls `statistics`, which makes any number of reductions over
    the blocks; an elementwise method makes no reduction. The engine then computes every block. The
    bits that a call returns must not depend on earlier or concurrent calls.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    """A description of the method, in one line."""
    papers: ClassVar[tuple[Paper, ...]] = ()
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    base: ClassVar[Literal["none", "optional", "required"]] = "none"
    """Whether the method reads a base model."""
    fewest: ClassVar[int] = 1
    most: ClassVar[int | None] = None
    """The largest number of inputs; None for no limit.

    Here and for `fewest`, a required base is counted, an optional one is not.
    """
    version: ClassVar[int] = 1
    """The version of the results, raised when they change; part of a run's fingerprint."""
    whole_tensor: ClassVar[bool] = False
    """Whether a block is always the whole tensor, of any size."""
    cost: ClassVar[BlockCost] = BlockCost()
    not_in_statistics: ClassVar[frozenset[str]] = frozenset()
    """The parameters that `statistics` does not depend on.

    In a sweep, tensors that differ only in these parameters share their statistics.
    """
    combines_changes: ClassVar[bool] = False
    """Whether the method needs only the models' differences from their base, such as adapters."""
    is_weighted_sum: ClassVar[bool] = False
    """Whether the combined change is a weighted sum with factors that depend only on parameters."""

    def validate(self, tensor: TensorContext) -> str | None:
        """Check the parameters of one tensor against each other.

        Returns:
            a text for the user that describes valid parameters; None if there is no contradiction.
        """
        return None

    def passes(self, tensor: TensorContext) -> int:
        """Return the number of passes over the inputs: one for each reduction, one for blocks."""
        return 1

    def samples(self, tensor: TensorContext) -> int:
        """Return the number of passes that read only samples of the inputs; see `Scan`."""
        return 0

    def statistics_bytes(self, tensor: TensorContext) -> int:
        """Return the size of the statistics in bytes; they are held until the tensor is done."""
        return 0

    def row_elements(self, tensor: TensorContext) -> int | None:
        """Return the length of rows that blocks must not split; None without such rows."""
        return tensor.numel if self.whole_tensor else None

    def is_copy(self, tensor: TensorContext) -> bool:
        """Return whether the result is the (single) input, unchanged."""
        return False

    def statistics(self, tensor: TensorContext, scan: Scan[Any]) -> Any:
        """Return the facts about the whole tensor that every block needs, found by scans."""
        return None


class Method(MergeMethod):
    """A merge method that computes with torch, block by block.

    A method may overwrite its inputs.
    """

    @abstractmethod
    def block(
        self, tensor: TensorContext, inputs: list[Tensor], block: Block, statistics: Any
    ) -> Tensor:
        """Compute one block.

        Args:
            tensor: the tensor that the block belongs to.
            inputs: one tensor for each model, float32, of ``block.stop - block.start`` elements, on
                the device that the user chose.
            block: the elements to compute.
            statistics: what `statistics` returned for the tensor; None for a method without
                statistics.

        Returns:
            float32, of the inputs' length, on their device.
        """


class KernelMethod(MergeMethod):
    """A merge method that computes with `resumerge.kernels`, one block run after the other.

    The result must not depend on how a tensor is split into block runs. A reduction therefore
    returns a partial result for each block, and `kernels.sum_blocks` adds these in order.
    """

    cost: ClassVar[BlockCost] = BlockCost(4.0, scratch=2.0, per_input=0.4)

    @abstractmethod
    def compute(
        self,
        tensor: TensorContext,
        inputs: list[Vector],
        run: BlockRun,
        statistics: Any,
        out: Vector,
    ) -> None:
        """Compute one block run into `out`.

        Args:
            tensor: the tensor that the blocks belong to.
            inputs: one vector for each model, of ``run.length`` elements, in its stored dtype.
            run: the blocks to compute.
            statistics: what `statistics` returned for the tensor; None for a method without
                statistics.
            out: the result, in the dtype of the output. The last operation writes to it and rounds.
        """
