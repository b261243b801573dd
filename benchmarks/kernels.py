"""What the shared kernels cost, beside the plain way to do the same.

``python -m benchmarks.kernels`` prints CPU milliseconds for 2^20 elements of bf16 models, in blocks
as the engine computes them, on one thread; and the same for what one would write with torch alone,
on the whole vector as float32. Each figure is the least of several. ``RESUMERGE_KERNELS=torch``
measures torch and NumPy in place of the compiled kernels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from resumerge import kernels
from resumerge.engine.resources.allocator import reuse_freed_memory
from resumerge.kernels import Block
from resumerge.native import Vector, instruction_set
from resumerge.native.vector import BF16
from resumerge.planning.plan import BLOCK

NUMEL = 1 << 20
ROW = 2048
REPEATS = 15
BLOCKS = [Block(i, start, start + BLOCK) for i, start in enumerate(range(0, NUMEL, BLOCK))]


@dataclass(frozen=True)
class Case:
    """One kernel.

    Attributes:
        ours: to be called with all vectors.
        plain: the same by torch's own operations.
        how: what `plain` is.
    """

    name: str
    ours: Callable[[], object]
    plain: Callable[[], object]
    how: str


def cases() -> list[Case]:
    """The kernels on task vectors of bf16 models, where many magnitudes are equal."""
    generator = torch.Generator().manual_seed(0)
    base = (torch.randn(NUMEL, generator=generator) * 0.02).bfloat16()
    tuned = [(base + torch.randn(NUMEL, generator=generator) * 0.001).bfloat16() for _ in range(3)]
    a, b, c = (model.float() - base.float() for model in tuned)
    stored = [differences(model, base) for model in tuned]
    bases, first = differences(base, None), stored[0]
    masks = [kernels.random_mask(BLOCK, 0.5, f"{i}", BLOCKS[0]) for i in range(3)]
    masked = torch.stack([torch.from_numpy(mask).repeat(len(BLOCKS)).float() for mask in masks])
    half = NUMEL // 2
    return [
        Case(
            "k-th magnitude",
            lambda: kernels.select_largest({0: half}, NUMEL, scanned(first)),
            lambda: a.abs().argsort(descending=True)[:half],
            "argsort",
        ),
        Case(
            "mask by rank in rows",
            lambda: [
                kernels.rank_mask(part, ROW, 0.5, 0.15, "key", block)
                for part, block in zip(first, BLOCKS)
            ],
            lambda: torch.bernoulli(
                a.view(-1, ROW).abs().argsort(1).argsort(1).float() * (0.3 / (ROW - 1)) + 0.35
            ),
            "argsort twice, bernoulli",
        ),
        Case(
            "random mask",
            lambda: [kernels.random_mask(BLOCK, 0.53, "key", block) for block in BLOCKS],
            lambda: torch.bernoulli(torch.full_like(a, 0.53)),
            "bernoulli",
        ),
        Case(
            "sums of magnitudes",
            lambda: [kernels.l1_norms(part, masks[0]) for part in first],
            lambda: (a.abs().double().sum(), (a * masked[0]).abs().double().sum()),
            "multiply, abs, double, sum",
        ),
        Case(
            "weighted sum of 3",
            lambda: [kernels.weighted_sum(parts, [0.3, 0.3, 0.4]) for parts in zip(*stored)],
            lambda: (torch.stack([a, b, c]) * torch.tensor([[0.3], [0.3], [0.4]])).sum(0),
            "stack, multiply, sum",
        ),
        Case(
            "3 masked, by consensus",
            lambda: [
                kernels.add_task_vectors(
                    base, fresh(parts), masks, [0.3] * 3, [0.3] * 3, True, True, 1.0
                )
                for base, *parts in zip(bases, *stored)
            ],
            lambda: base.float() + plain_consensus(torch.stack([a, b, c]) * masked * 0.3),
            "stack, multiply, signs, where, sums",
        ),
        Case(
            "dot products of 2",
            lambda: kernels.sum_blocks(kernels.gram(parts) for parts in zip(*stored[:2])),
            lambda: torch.stack([a, b]).double() @ torch.stack([a, b]).double().T,
            "stack, double, matmul",
        ),
    ]


def differences(model: Tensor, base: Tensor | None) -> list[Any]:
    """A bf16 model less a base in blocks, as methods get them."""
    if instruction_set() is None:
        whole = model.float() if base is None else model.float() - base.float()
        return [whole[block.start : block.stop] for block in BLOCKS]
    bits = Vector(model.view(torch.uint16).numpy(), BF16)
    if base is not None:
        bits = Vector(bits.data, BF16, Vector(base.view(torch.uint16).numpy(), BF16))
    return [part_of(bits, block) for block in BLOCKS]


def part_of(vector: Vector, block: Block) -> Vector:
    base = vector.base and part_of(vector.base, block)
    return Vector(vector.data[block.start : block.stop], vector.dtype, base)


def fresh(parts: list[Any]) -> list[Any]:
    """Copies of torch's vectors, which are computed in; the others are only read."""
    return [part if isinstance(part, Vector) else part.clone() for part in parts]


def scanned(parts: list[Any]) -> Any:
    """A scan over the blocks of one vector."""

    def scan(part: Callable[..., Any], sample: bool = False) -> Iterator[Any]:
        for values, whole in zip(parts, BLOCKS):
            block = whole.sample() if sample else whole
            length = block.stop - block.start
            start = Block(0, 0, length)
            first = part_of(values, start) if isinstance(values, Vector) else values[:length]
            yield part({0: first}, block)

    return scan


def plain_consensus(stacked: Tensor) -> Tensor:
    """As one would write TIES' election and disjoint mean."""
    majority = torch.where(stacked.sum(0) >= 0, 1.0, -1.0)
    agrees = stacked.sign() == majority
    return (stacked * agrees).sum(0) / (agrees * 0.3).sum(0).clamp(min=1e-8)


def milliseconds(work: Callable[[], object]) -> float:
    """The least CPU time of several calls."""
    least = float("inf")
    for _ in range(REPEATS):
        started = time.process_time()
        work()
        least = min(least, time.process_time() - started)
    return 1e3 * least * (1 << 20) / NUMEL


def main() -> None:
    reuse_freed_memory()
    torch.set_num_threads(1)
    kernels_are = instruction_set() or "torch and NumPy"
    table = Table(title=f"CPU ms for 2^20 elements of each vector, one thread: {kernels_are}")
    for column in ("kernel", "ours", "plain torch", "times", "plain is"):
        table.add_column(column)
    for case in cases():
        ours, plain = milliseconds(case.ours), milliseconds(case.plain)
        table.add_row(case.name, f"{ours:.2f}", f"{plain:.2f}", f"{plain / ours:.1f}x", case.how)
    Console().print(table)


if __name__ == "__main__":
    main()
