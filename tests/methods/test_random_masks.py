"""Masks keep as many as asked for, and depend on their key and block and on nothing else."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from vector_runs import runs_of

from resumerge import kernels
from resumerge.kernels import BlockRun, random_mask
from resumerge.methods.task_vectors.base import packed_mask, unpacked_mask
from resumerge.native import Vector

MILLION = 1 << 20


def mask(key: str, density: float = 0.5, index: int = 0, numel: int = 10_000) -> Tensor:
    return torch.from_numpy(random_mask(density, key, BlockRun(index, max(1, numel), numel))) != 0


@pytest.mark.parametrize("density", [1e-5, 0.001, 0.1, 1 / 3, 0.5, 0.53, 0.9, 0.999, 1 - 1e-5])
def test_keeps_the_share_that_the_density_says(density: float) -> None:
    count = int(sum(mask("key", density, index, MILLION).sum() for index in range(4)))
    n = 4 * MILLION
    assert abs(count - density * n) < 5 * math.sqrt(density * (1 - density) * n)


@pytest.mark.parametrize("density", [0.1, 0.53])
def test_keeps_the_same_share_everywhere_in_a_block(density: float) -> None:
    parts = mask("key", density, 0, MILLION).float().reshape(64, -1).mean(dim=1)
    spread = math.sqrt(density * (1 - density) / (MILLION / 64))
    assert float((parts - density).abs().max()) < 5 * spread


def test_density_0_keeps_nothing_and_density_1_everything() -> None:
    assert not mask("key", 0.0).any()
    assert mask("key", 1.0).all()


def applied(values: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Return what a mask leaves of a vector."""
    zeros, out = (Vector(np.zeros(len(values), np.float32)) for _ in range(2))
    kernels.add_task_vectors(
        zeros,
        [Vector(values)],
        masks=[kept],
        factors=[1.0],
        divisor_weights=[1.0],
        elect_signs=False,
        normalize=False,
        scale=1.0,
        out=out,
    )
    found: np.ndarray = out.data
    return found


def test_what_is_dropped_is_zero_even_where_it_was_not_a_number() -> None:
    values = np.array([math.nan, math.inf, -math.inf, -1.0], np.float32)
    assert applied(values, random_mask(0.0, "key", BlockRun(0, 4, 4))).tolist() == [0.0] * 4
    mixed = applied(values, np.array([0, 0, 1, 1], np.uint8))
    assert mixed.tolist() == [0.0, 0.0, -math.inf, -1.0]
    assert math.isnan(applied(values, np.array([1, 0, 0, 0], np.uint8))[0])


def test_what_is_kept_is_as_it_was() -> None:
    values = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    dropped = applied(values, random_mask(0.5, "key", BlockRun(0, 10_000, 10_000)))
    np.testing.assert_array_equal(dropped[dropped != 0], values[dropped != 0])


@given(st.integers(0, 70), st.floats(0, 1), st.text(max_size=5))
def test_the_same_key_gives_the_same_mask(numel: int, density: float, key: str) -> None:
    assert torch.equal(mask(key, density, 3, numel), mask(key, density, 3, numel))


def test_other_keys_and_blocks_give_independent_masks() -> None:
    keys = ["0/0/a", "0/1/a", "1/0/a", "0/0/b"]
    masks = [mask(key, 0.5, index, MILLION) for key in keys for index in (0, 1)]
    for one, other in itertools.combinations(masks, 2):
        equal = int((one == other).sum())
        assert abs(equal - MILLION / 2) < 5 * math.sqrt(MILLION) / 2


def test_neighbours_are_independent() -> None:
    one = mask("key", 0.5, 0, MILLION)
    for distance in (1, 2, 4, 8, 16):
        equal = int((one[distance:] == one[:-distance]).sum())
        assert abs(equal - MILLION / 2) < 5 * math.sqrt(MILLION) / 2


def test_the_order_of_the_blocks_and_how_many_are_drawn_at_once_do_not_matter() -> None:
    def drawn(together: int) -> list[bytes]:
        runs = [run for _, run in runs_of(5003, 1000, together)]
        backwards = [random_mask(0.4, "key", run).tobytes() for run in reversed(runs)]
        return backwards[::-1]

    assert len(drawn(1)) == 6
    assert b"".join(drawn(1)) == b"".join(drawn(4)) == b"".join(drawn(6))


def test_the_masks_of_this_version_are_these() -> None:
    """A change here changes the bits of every DARE merge: then raise `NUMERICS`."""
    kept = mask("0/1/model.norm.weight", 0.3, index=2, numel=24)
    assert "".join("01"[bit] for bit in kept.tolist()) == "000001000010100100000000"


@given(st.integers(1, 40), st.integers(1, 200), st.integers(1, 5), st.integers(1, 5), st.data())
def test_masks_that_are_kept_as_bits_are_the_same_in_other_runs(
    size: int, numel: int, packed_blocks: int, read_blocks: int, data: st.DataObject
) -> None:
    """Blocks begin at whole bytes or not, and a run may have other blocks when it is read."""
    kept = np.array(data.draw(st.lists(st.booleans(), min_size=numel, max_size=numel)), np.uint8)

    def parts(blocks: int) -> list[BlockRun]:
        count = -(-numel // size)
        steps = range(0, count, blocks)
        return [BlockRun.of(numel, size, range(at, min(at + blocks, count))) for at in steps]

    def of_run(run: BlockRun) -> np.ndarray:
        return kept[run.first * size :][: run.length]

    packed = [bits for run in parts(packed_blocks) for bits in packed_mask(of_run(run), run)]
    for run in parts(read_blocks):
        found = unpacked_mask(packed[run.first : run.first + len(run)], run)
        assert found.tolist() == of_run(run).tolist()
