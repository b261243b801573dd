"""Masks keep as many as asked for, and depend on their key and block and on nothing else."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from blocks import blocks
from hypothesis import given
from hypothesis import strategies as st
from resumerge.native.library import instruction_sets
from torch import Tensor

from resumerge.kernels import Block, apply_mask, random_mask

MILLION = 1 << 20


@pytest.fixture(autouse=True, params=["torch", *instruction_sets()[-1:]])
def drawn_by(request: pytest.FixtureRequest, use_kernels: Callable[[str], None]) -> None:
    """NumPy, or the compiled kernels."""
    use_kernels(request.param)


def mask(key: str, density: float = 0.5, index: int = 0, numel: int = 10_000) -> Tensor:
    return torch.from_numpy(random_mask(numel, density, key, Block(index, 0, numel))) != 0


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


def test_what_is_dropped_is_zero_even_where_it_was_not_a_number() -> None:
    values = torch.tensor([math.nan, math.inf, -math.inf, -1.0])
    assert apply_mask(values, random_mask(4, 0.0, "key", Block(0, 0, 4))).tolist() == [0.0] * 4


def test_what_is_kept_is_as_it_was() -> None:
    values = torch.randn(10_000)
    kept = random_mask(10_000, 0.5, "key", Block(0, 0, 10_000))
    dropped = apply_mask(values.clone(), kept)
    assert torch.equal(dropped[dropped != 0], values[dropped != 0])


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


def test_the_order_of_the_blocks_does_not_matter() -> None:
    def drawn(block: Block) -> Tensor:
        return torch.from_numpy(random_mask(block.stop - block.start, 0.4, "key", block))

    some = blocks(5003, 1000)
    backwards = [drawn(block) for block in reversed(some)]
    assert torch.equal(torch.cat(backwards[::-1]), torch.cat([drawn(block) for block in some]))


def test_the_masks_of_this_version_are_these() -> None:
    """A change here changes the bits of every DARE merge: then raise `NUMERICS`."""
    kept = mask("0/1/model.norm.weight", 0.3, index=2, numel=24)
    assert "".join("01"[bit] for bit in kept.tolist()) == "000001000010100100000000"
