"""What the shared kernels cost, beside the plain way to do the same.

``python -m benchmarks.kernels`` prints CPU milliseconds for 2^20 float32 elements, in blocks as
the engine computes them, on one thread; and the same for what one would write with torch alone, on
the whole vector. Each figure is the least of several.
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

from resumerge.engine.allocator import reuse_freed_memory
from resumerge.methods import Block, kernels
from resumerge.planning.model import BLOCK

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
    base = (torch.randn(NUMEL, generator=generator) * 0.02).bfloat16().float()
    a, b, c = (
        (base + torch.randn(NUMEL, generator=generator) * 0.001).bfloat16().float() - base
        for _ in range(3)
    )
    half = NUMEL // 2
    return [
        Case(
            "k-th magnitude",
            lambda: kernels.select_largest({0: half}, scanned({0: a})),
            lambda: a.abs().argsort(descending=True)[:half],
            "argsort",
        ),
        Case(
            "mask by rank in rows",
            lambda: [
                kernels.kept_by_rank(a[block.start : block.stop], ROW, 0.5, 0.15, "key", block)
                for block in BLOCKS
            ],
            lambda: torch.bernoulli(
                a.view(-1, ROW).abs().argsort(1).argsort(1).float() * (0.3 / (ROW - 1)) + 0.35
            ),
            "argsort twice, bernoulli",
        ),
        Case(
            "random mask",
            lambda: each(a, lambda x, block: kernels.drop_at_random(x, 0.53, "key", block)),
            lambda: a * torch.bernoulli(torch.full_like(a, 0.53)),
            "bernoulli, multiply",
        ),
        Case(
            "weighted sum of 3",
            lambda: blockwise([a, b, c], lambda xs: kernels.weighted_sum(xs, [0.3, 0.3, 0.4])),
            lambda: (torch.stack([a, b, c]) * torch.tensor([[0.3], [0.3], [0.4]])).sum(0),
            "stack, multiply, sum",
        ),
        Case(
            "sign consensus of 3",
            lambda: blockwise([a, b, c], lambda xs: kernels.agreeing_sum(xs, [0.3] * 3, True)),
            lambda: plain_consensus(torch.stack([a, b, c]) * 0.3),
            "stack, signs, where, sums",
        ),
        Case(
            "dot products of 2",
            lambda: kernels.summed(
                kernels.gram([a[s.start : s.stop], b[s.start : s.stop]]) for s in BLOCKS
            ),
            lambda: torch.stack([a, b]).double() @ torch.stack([a, b]).double().T,
            "stack, double, matmul",
        ),
    ]


def scanned(vectors: dict[int, Tensor]) -> Any:
    """A scan over blocks, on copies, as the engine's are freshly read."""

    def scan(part: Callable[..., Any], sample: bool = False) -> Iterator[Any]:
        for whole in BLOCKS:
            block = whole.sample() if sample else whole
            yield part({i: v[block.start : block.stop].clone() for i, v in vectors.items()}, block)

    return scan


def each(vector: Tensor, change: Callable[[Tensor, Block], object]) -> None:
    for block in BLOCKS:
        change(vector[block.start : block.stop].clone(), block)


def blockwise(vectors: list[Tensor], change: Callable[[list[Tensor]], object]) -> None:
    for block in BLOCKS:
        change([v[block.start : block.stop].clone() for v in vectors])


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
    table = Table(title="CPU ms for 2^20 elements of each vector, one thread")
    for column in ("kernel", "ours", "plain torch", "times", "plain is"):
        table.add_column(column)
    for case in cases():
        ours, plain = milliseconds(case.ours), milliseconds(case.plain)
        table.add_row(case.name, f"{ours:.2f}", f"{plain:.2f}", f"{plain / ours:.1f}x", case.how)
    Console().print(table)


if __name__ == "__main__":
    main()
