"""What a merge method is: declared parameters, and a computation that streams over blocks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeVar

REQUIRED: Any = object()
"""Default of a parameter that the recipe must give."""

FLOAT32_MAX = 3.4028234663852886e38

Value = float | bool
"""A parameter, resolved for one tensor."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a method, declared once; help, validation and docs are made from this.

    Args:
        kind: ``float``, ``int`` or ``bool``.
        per_model: given for each model, rather than once for the merge.
        low: smallest value that makes sense, inclusive.
        high: largest value that makes sense, inclusive.
    """

    name: str
    meaning: str
    default: Any = REQUIRED
    kind: Literal["float", "int", "bool"] = "float"
    per_model: bool = False
    low: float = -FLOAT32_MAX
    high: float = FLOAT32_MAX

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


@dataclass(frozen=True)
class Paper:
    """Where a method was published."""

    title: str
    url: str


@dataclass(frozen=True)
class TensorContext:
    """What a method knows of the tensor it computes.

    Args:
        shape: of the tensor.
        params: the parameters of the merge, resolved for this tensor.
        per_model: the parameters of each input, in the order of the inputs.
        base: which input is the base model; None where the recipe names none.
        unit: the output tensor's name, to key random masks by.
        seed: of the run, likewise.
        bits: of an element of the widest input.
    """

    shape: tuple[int, ...]
    params: Mapping[str, Value]
    per_model: tuple[Mapping[str, Value], ...]
    base: int | None
    unit: str
    seed: int
    bits: int

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def others(self) -> list[int]:
        """The inputs that are not the base model."""
        return [i for i in range(len(self.per_model)) if i != self.base]


@dataclass(frozen=True)
class Block:
    """Elements ``start:stop`` of a tensor, the `index`-th of its blocks."""

    index: int
    start: int
    stop: int

    def sample(self) -> Block:
        """Its first elements, a sixteenth of them."""
        return Block(self.index, self.start, self.start + -(-(self.stop - self.start) // 16))


Partial = TypeVar("Partial")
MapFunction = Callable[[Any, Block], Partial]


class Scan(Protocol[Partial]):
    """Runs a function of a block's inputs over all blocks."""

    def __call__(self, part: MapFunction[Partial], sample: bool = False) -> Iterator[Partial]:
        """Run `part` over all blocks; its results come back in block order.

        Args:
            sample: only over the first elements of each block, a sixteenth of them: to guess
                at what another scan then makes sure of.
        """


def viewed(scan: Scan[Any], view: Callable[[Any, Block], Any]) -> Scan[Any]:
    """A scan whose functions get ``view(inputs, block)`` in place of the inputs."""

    def scan_view(part: MapFunction[Any], sample: bool = False) -> Iterator[Any]:
        return scan(lambda x, block: part(view(x, block), block), sample)

    return scan_view


class Method(ABC):
    """A merge method. To add one, write a subclass in a file of this folder and register it.

    The engine asks for the `statistics` of a tensor once (any number of reductions over its
    blocks, none for elementwise methods), then for each `block`. Inputs are flat and scratch: a
    method may compute in them, in place. The same call must give the same bits
    whatever was computed before or beside it.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    papers: ClassVar[tuple[Paper, ...]] = ()
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    base: ClassVar[Literal["none", "optional", "required"]] = "none"
    fewest: ClassVar[int] = 1
    most: ClassVar[int | None] = None
    """Of the inputs: a required base is counted among them, an optional one is not."""
    version: ClassVar[int] = 1
    """Raised when the method's results change; part of a run's fingerprint."""
    whole_tensor: ClassVar[bool] = False
    """Whether a block is the whole tensor, however large it is."""
    scratch: ClassVar[int] = 12
    """Blocks of float32 that it may hold beside its inputs."""

    def validate(self, work: TensorContext) -> str | None:
        """What is wrong with the parameters taken together, for one tensor; None if nothing."""
        return None

    def passes(self, work: TensorContext) -> int:
        """How many times the inputs are read: the reductions, and once for the blocks."""
        return 1

    def held_bytes(self, work: TensorContext) -> int:
        """Bytes that reductions hold until the tensor is done, like a selection's candidates."""
        return 0

    def row(self, work: TensorContext) -> int | None:
        """Elements of the rows that must not be split between blocks; None for no such rows."""
        return work.numel if self.whole_tensor else None

    def compiled(self, work: TensorContext) -> bool:
        """Whether it computes with kernels alone, and so takes either kind of vector.

        Then its inputs are `resumerge.native.Vector` where the compiled kernels are there.
        """
        return False

    def copies(self, work: TensorContext) -> bool:
        """Whether the result is the (single) input, unchanged."""
        return False

    def statistics(self, work: TensorContext, scan: Scan[Any]) -> Any:
        """Reduce over the whole tensor what every block needs to know."""
        return None

    @abstractmethod
    def block(self, work: TensorContext, inputs: list[Any], block: Block, statistics: Any) -> Any:
        """Compute one block.

        Args:
            inputs: one for each model, of ``block.stop - block.start`` elements: float32 tensors
                of torch or, where `compiled`, vectors of the compiled kernels.
            statistics: what `statistics` returned.

        Returns:
            float32, of the same kind and length.
        """


def in_order(values: Sequence[Mapping[str, Value]], name: str) -> list[float]:
    """One per-model parameter of every input, as floats."""
    return [float(value[name]) for value in values]
