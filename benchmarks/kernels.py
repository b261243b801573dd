"""What the shared kernels cost, beside the plain way to do the same.

``python -m benchmarks.kernels`` prints CPU milliseconds for 2^20 elements of bf16 models, in blocks
as the engine computes them, on one thread; and the same for what one would write with torch alone,
on the whole vector as float32. Each figure is the least of several. ``RESUMERGE_KERNELS`` chooses
the instruction set.
"""

from __future__ import annotations

import os
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
from resumerge.kernels import BlockRun
from resumerge.kernels.blocks import sampled
from resumerge.native import BF16, INSTRUCTION_SET, Vector, instruction_sets
from resumerge.tensors.target import BLOCK_ELEMENTS

NUMEL = 1 << 20
ROW = 2048
REPEATS = 15
RUN = BlockRun(0, BLOCK_ELEMENTS, NUMEL)


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
    stored = [vector(model, vector(base)) for model in tuned]
    first, out = stored[0], kernels.new_vector(NUMEL)
    masks = [kernels.random_mask(0.5, f"{i}", RUN) for i in range(3)]
    masked = torch.stack([torch.from_numpy(mask).float() for mask in masks])
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
            lambda: kernels.rank_mask(first, ROW, 0.5, 0.15, "key", RUN),
            lambda: torch.bernoulli(
                a.view(-1, ROW).abs().argsort(1).argsort(1).float() * (0.3 / (ROW - 1)) + 0.35
            ),
            "argsort twice, bernoulli",
        ),
        Case(
            "random mask",
            lambda: kernels.random_mask(0.53, "key", RUN),
            lambda: torch.bernoulli(torch.full_like(a, 0.53)),
            "bernoulli",
        ),
        Case(
            "sums of magnitudes",
            lambda: kernels.l1_norms(first, masks[0], RUN),
            lambda: (a.abs().double().sum(), (a * masked[0]).abs().double().sum()),
            "multiply, abs, double, sum",
        ),
        Case(
            "weighted sum of 3",
            lambda: kernels.weighted_sum(stored, [0.3, 0.3, 0.4], out),
            lambda: (torch.stack([a, b, c]) * torch.tensor([[0.3], [0.3], [0.4]])).sum(0),
            "stack, multiply, sum",
        ),
        Case(
            "3 masked, by consensus",
            lambda: kernels.add_task_vectors(
                vector(base),
                stored,
                masks=masks,
                factors=[0.3] * 3,
                divisor_weights=[0.3] * 3,
                elect_signs=True,
                normalize=True,
                scale=1.0,
                out=out,
            ),
            lambda: base.float() + plain_consensus(torch.stack([a, b, c]) * masked * 0.3),
            "stack, multiply, signs, where, sums",
        ),
        Case(
            "dot products of 2",
            lambda: kernels.sum_blocks([kernels.gram(stored[:2], RUN)]),
            lambda: torch.stack([a, b]).double() @ torch.stack([a, b]).double().T,
            "stack, double, matmul",
        ),
    ]


def vector(model: Tensor, base: Vector | None = None) -> Vector:
    """A bf16 model, less a base."""
    return Vector(model.view(torch.uint16).numpy(), BF16, base)


def scanned(whole: Vector) -> Any:
    """A scan over the blocks of one vector, in one run."""

    def scan(function: Callable[..., Any], sample: bool = False) -> Iterator[Any]:
        if not sample:
            yield function({0: whole}, RUN)
            return
        size = sampled(BLOCK_ELEMENTS)
        yield function({0: samples_of(whole)}, BlockRun(0, size, size * len(RUN)))

    return scan


def samples_of(whole: Vector) -> Vector:
    data = whole.data.reshape(-1, BLOCK_ELEMENTS)[:, : sampled(BLOCK_ELEMENTS)].reshape(-1)
    return Vector(data, whole.dtype, whole.base and samples_of(whole.base))


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
    chosen = os.environ.get(INSTRUCTION_SET, instruction_sets()[-1])
    table = Table(title=f"CPU ms for 2^20 elements of each vector, one thread: {chosen}")
    for column in ("kernel", "ours", "plain torch", "times", "plain is"):
        table.add_column(column)
    for case in cases():
        ours, plain = milliseconds(case.ours), milliseconds(case.plain)
        table.add_row(case.name, f"{ours:.2f}", f"{plain:.2f}", f"{plain / ours:.1f}x", case.how)
    Console().print(table)


if __name__ == "__main__":
    main()
