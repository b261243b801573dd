"""The functions of the kernels, each with a draw of right arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fuzz.kernel_calls.arguments import FILE_SIZE, Arguments
from resumerge.native import KINDS, _kernels

Draw = Callable[[Arguments], list[Any]]
CALLS: list[tuple[Callable[..., Any], Draw]] = []


def _call(function: Callable[..., Any]) -> Callable[[Draw], Draw]:
    def add(draw: Draw) -> Draw:
        CALLS.append((function, draw))
        return draw

    return add


def missing() -> Iterator[str]:
    """Yield the public functions of the module that are never called."""
    called = {function.__name__ for function, _ in CALLS}
    yield from (name for name, x in vars(_kernels).items() if callable(x) and name not in called)


@_call(_kernels.Vector)
def _vector(a: Arguments) -> list[Any]:
    code = a.draw.randrange(len(KINDS))
    if a.draw.random() < 0.4:
        return [a.array(KINDS[code]), code, None, *a.kept()]
    return [a.array(KINDS[code]), code, a.draw.choice((None, a.vector()))]


@_call(_kernels.Vector.less)
def _less(a: Arguments) -> list[Any]:
    return [a.any_vector(), a.vector()]


@_call(len)
@_call(_kernels.Vector.data.__get__)
@_call(_kernels.Vector.dtype.__get__)
@_call(_kernels.Vector.base.__get__)
@_call(_kernels.Vector.exact.__get__)
@_call(_kernels.Vector.block.__get__)
@_call(_kernels.Vector.measured.__get__)
def _attributes(a: Arguments) -> list[Any]:
    return [a.any_vector()]


@_call(_kernels.instruction_sets)
def _instruction_sets(a: Arguments) -> list[Any]:
    return []


@_call(_kernels.use)
def _use(a: Arguments) -> list[Any]:
    return [a.draw.choice(_kernels.instruction_sets())]


@_call(_kernels.read_ranges)
def _read_ranges(a: Arguments) -> list[Any]:
    descriptors = (*[a.files.good] * 6, *a.files.bad)
    return [
        a.sequence(
            (
                a.draw.choice(descriptors),
                a.draw.choice((0, 1, 8, 100, 999, FILE_SIZE - 9, FILE_SIZE, 2**62)),
                a.array(a.draw.choice(list(KINDS.values()))),
                a.draw.choice((0, 1, 240, 241, 1024, 4096, 2**59)),
            )
            for _ in range(a.draw.randrange(5))
        )
    ]


@_call(_kernels.hash_blocks)
def _hash_blocks(a: Arguments) -> list[Any]:
    return [a.array(np.uint8), a.draw.choice((1, 240, 241, 1024, 4096, 2**59))]


@_call(_kernels.round_to)
def _round_to(a: Arguments) -> list[Any]:
    return [a.any_vector(), a.out()]


@_call(_kernels.measure)
def _measure(a: Arguments) -> list[Any]:
    reference, *vectors = [a.vector() for _ in range(a.draw.choice((1, 2, 2, 3, 4, 10)))]
    out = a.out(keeps=True)
    blocks = -(-len(out) // out.block)
    columns = _kernels.MEASURED_SUMS + len(vectors) * _kernels.MEASURED_MODEL_SUMS
    written = a.draw.choice((None, None, a.array(np.float32, 2 * len(out.exact))))
    return [reference, a.sequence(vectors), out, a.result(np.float64, blocks * columns), written]


@_call(_kernels.weighted_sum)
def _weighted_sum(a: Arguments) -> list[Any]:
    terms = a.vectors()
    return [a.sequence(terms), a.floats(terms), a.out()]


@_call(_kernels.weighted_sum_along)
def _weighted_sum_along(a: Arguments) -> list[Any]:
    terms, by_column = a.vectors(), a.draw.random() < 0.5
    each = a.row if by_column else a.blocks(a.row)
    weights = a.array(np.float32, each * len(terms))
    return [a.sequence(terms), weights, a.row, by_column, a.out()]


@_call(_kernels.clamp_to_distance)
def _clamp_to_distance(a: Arguments) -> list[Any]:
    return [a.any_vector(), a.any_vector(), a.float(), a.out()]


@_call(_kernels.add_mean_change)
def _add_mean_change(a: Arguments) -> list[Any]:
    base = a.vector()
    vectors = a.family(base)
    return [base, a.sequence(vectors), a.floats(vectors), a.float(), a.out()]


@_call(_kernels.distance)
def _distance(a: Arguments) -> list[Any]:
    return [a.any_vector(), a.any_vector(), a.result(np.float64, 5)]


@_call(_kernels.count_changes)
def _count_changes(a: Arguments) -> list[Any]:
    vectors, block = a.family(a.draw.choice((None, a.vector()))), a.block()
    out = a.result(np.int64, a.blocks(block) * len(vectors) * 2)
    return [a.sequence(vectors), a.float(), block, out]


@_call(_kernels.count_conflicts)
def _count_conflicts(a: Arguments) -> list[Any]:
    vectors = a.family(a.draw.choice((None, a.vector())))
    return [a.sequence(vectors), a.result(np.int64, len(vectors) ** 2 * 2)]


@_call(_kernels.variance)
def _variance(a: Arguments) -> list[Any]:
    vectors = a.family(a.draw.choice((None, a.vector())))
    return [a.sequence(vectors), _kernels.Vector(a.result(np.float32))]


@_call(_kernels.sums_of_squares)
def _sums_of_squares(a: Arguments) -> list[Any]:
    block = a.block()
    return [a.any_vector(), a.mask(), block, a.result(np.float64, a.blocks(block))]


@_call(_kernels.l1_norms)
def _l1_norms(a: Arguments) -> list[Any]:
    block = a.block()
    return [a.any_vector(), a.mask(), block, a.result(np.float64, 2 * a.blocks(block))]


@_call(_kernels.add_majority_mean)
def _add_majority_mean(a: Arguments) -> list[Any]:
    base = a.vector()
    vectors = a.family(base)
    return [base, a.sequence(vectors), a.mask(), a.floats(vectors), a.out()]


@_call(_kernels.trimmed_mean)
def _trimmed_mean(a: Arguments) -> list[Any]:
    vectors = a.vectors()
    return [a.sequence(vectors), a.draw.randrange((len(vectors) + 1) // 2), a.out()]


@_call(_kernels.random_mask)
def _random_mask(a: Arguments) -> list[Any]:
    whole = a.draw.randrange(256)
    return [a.key(), a.uint32(), a.block(), whole, a.uint64(), a.result(np.uint8)]


@_call(_kernels.rank_mask)
def _rank_mask(a: Arguments) -> list[Any]:
    whole = a.length % (a.row * a.stride) == 0
    row, stride = (a.row, a.stride) if whole else (a.rows(), 1)
    block = row * stride * a.draw.choice((1, 1, 2, 5, 1 << 20))
    density = a.draw.random() * 0.99
    reach = a.draw.choice((0.0, 1.0, -1.0, a.draw.random())) * min(density, 0.99 - density)
    out = a.result(np.uint8)
    return [a.any_vector(), a.key(), a.uint32(), block, row, stride, density, reach, out]


@_call(_kernels.gram)
def _gram(a: Arguments) -> list[Any]:
    vectors, row = a.vectors(), a.block()
    out = a.result(np.float64, len(vectors) ** 2 * a.blocks(row))
    return [a.sequence(vectors), row, out]


@_call(_kernels.column_gram)
def _column_gram(a: Arguments) -> list[Any]:
    vectors, row = a.vectors()[:9], a.rows()
    block = row * a.draw.choice((1, 2, 5, 1 << 20))
    out = a.result(np.float64, len(vectors) ** 2 * a.blocks(block) * row)
    return [a.sequence(vectors), row, block, out]


@_call(_kernels.keys)
def _keys(a: Arguments) -> list[Any]:
    return [a.any_vector(), a.draw.randrange(2), a.result(np.uint32)]


@_call(_kernels.keys_in_bracket)
def _keys_in_bracket(a: Arguments) -> list[Any]:
    low, high = sorted((a.uint32(), a.uint32()))
    return [a.any_vector(), a.draw.randrange(2), low, high, a.block()]


@_call(_kernels.key_of_rank)
def _key_of_rank(a: Arguments) -> list[Any]:
    rank = a.draw.choice((0, 1, a.length, 2**31, -(2**63)))
    return [a.array(np.uint32), a.array(np.uint32), rank]


@_call(_kernels.equal_counts)
def _equal_counts(a: Arguments) -> list[Any]:
    return [a.any_vector(), a.draw.randrange(2), a.uint32(), a.block()]


@_call(_kernels.mask_above)
def _mask_above(a: Arguments) -> list[Any]:
    quota = a.draw.choice((0, 1, a.length, 2**63 - 1))
    return [a.any_vector(), a.draw.randrange(2), a.uint32(), quota, a.result(np.uint8)]


@_call(_kernels.add_task_vectors)
def _add_task_vectors(a: Arguments) -> list[Any]:
    base = a.vector()
    bases = a.draw.choice(((base,), (base, None), (None,)))
    vectors = [a.vector(a.draw.choice(bases)) for _ in range(a.number_of_vectors())]
    kept = [
        a.draw.choice((a.mask(), (a.uint32(), a.draw.choice((0, 1, 10, 2**63 - 1)))))
        for _ in vectors
    ]
    factors, weights = a.floats(vectors), a.floats(vectors)
    flags = [a.draw.random() < 0.7, a.draw.random() < 0.7]
    return [
        base, a.sequence(vectors), a.sequence(kept), factors, weights, *flags, a.float(), a.out()
    ]  # fmt: skip


@_call(_kernels.add_voted_sum)
def _add_voted_sum(a: Arguments) -> list[Any]:
    base = a.vector()
    vectors = a.family(base)
    numbers = a.floats(vectors), a.floats(vectors)
    return [base, a.sequence(vectors), *numbers, a.draw.randrange(4), a.float(), a.out()]


@_call(_kernels.decode)
def _decode(a: Arguments) -> list[Any]:
    numbers = a.draw.choice((1, 2))
    table = a.array(np.float32, 256 * numbers)
    return [a.array(np.uint8), table, a.result(np.float32, a.length * numbers)]


@_call(_kernels.apply_grid)
def _apply_grid(a: Arguments) -> list[Any]:
    block, rows = a.draw.choice((1, 2, 16, 128, 2**40)), a.draw.choice((0, 1, 3))
    grid = a.array(np.float32, rows * -(-a.row // block))
    matrix = a.result(np.float32, rows * a.row)
    return [matrix, a.row, grid, block, a.draw.random() < 0.5]


@_call(_kernels.block_maxima)
def _block_maxima(a: Arguments) -> list[Any]:
    block, rows = a.draw.choice((1, 2, 16, 128, 2**40)), a.draw.choice((0, 1, 3))
    matrix = a.array(np.float32, rows * a.row)
    return [matrix, a.row, block, a.result(np.float32, rows * -(-a.row // block))]


@_call(_kernels.quantise)
def _quantise(a: Arguments) -> list[Any]:
    block, rows = a.draw.choice((2, 16, 128, 2**40)), a.draw.choice((0, 1, 3))
    kind = a.draw.choice((0, 1, 2) if a.row % 2 == 0 else (0,))
    matrix = a.array(np.float32, rows * a.row)
    grid = a.array(np.float32, rows * -(-a.row // block))
    bytes_ = rows * a.row // (2 if kind else 1)
    return [matrix, a.row, grid, block, kind, a.result(np.uint8, bytes_)]
