"""Promise: a selection samples and collects so many keys, and takes the memory that is said."""

from __future__ import annotations

import numpy as np
import pytest

from resumerge.kernels import selection_bytes
from resumerge.kernels.selection.growing_array import GrowingArray
from resumerge.kernels.selection.key_sample import KeySample
from resumerge.kernels.selection.limits import LARGEST_SAMPLE, MOST_COLLECTED, sample_step

NUMEL = 1 << 20
SAMPLE = NUMEL >> 6
"""Of the elements, as many keys are in the sample."""
HALF = int(2 * 3.5 * 1.0 * NUMEL / SAMPLE**0.5)
"""Expected inside the bracket of the median."""


@pytest.mark.parametrize(
    ("numel", "step"),
    [
        (0, 4),
        (64 * LARGEST_SAMPLE, 4),
        (64 * LARGEST_SAMPLE + 63, 4),
        (64 * (LARGEST_SAMPLE + 1), 8),
        (128 * (LARGEST_SAMPLE + 1), 16),
        (1024 * LARGEST_SAMPLE, 64),
    ],
)
def test_a_sample_is_thinned_as_far_as_it_must_be(numel: int, step: int) -> None:
    assert sample_step(numel) == step


def test_what_is_inside_the_brackets_is_held_with_its_counts() -> None:
    assert selection_bytes(NUMEL, []) == 0
    assert selection_bytes(NUMEL, [[0.5]]) == (8 + 1) * HALF
    assert selection_bytes(NUMEL, [[0.5], [0.5]]) == (8 + 8 + 1) * HALF
    assert selection_bytes(NUMEL, [[0.5, 0.5]]) == (8 + 8 + 1) * HALF
    at_the_end = HALF // 2
    assert selection_bytes(NUMEL, [[0.0]]) == selection_bytes(NUMEL, [[1.0]]) == 9 * at_the_end
    for shares in ([[0.5, 0.0]], [[0.0, 0.5]]):
        assert selection_bytes(NUMEL, shares) == 8 * (HALF + at_the_end) + HALF


def test_where_few_keys_differ_the_samples_take_more() -> None:
    assert selection_bytes(NUMEL, [[0.5]], 16) == 4 * 2 * SAMPLE
    assert selection_bytes(NUMEL, [[0.5]] * 3, 16) == max(4 * 4 * SAMPLE, (3 * 8 + 1) * (HALF // 8))
    assert selection_bytes(NUMEL, [[0.5]], 17) == (8 + 1) * HALF


def test_no_more_is_held_than_there_is_or_than_is_collected() -> None:
    assert selection_bytes(100, [[0.5]]) == 9 * 100
    assert selection_bytes(1 << 40, [[0.5]]) == 9 * MOST_COLLECTED
    assert selection_bytes(1, [[0.5]]) == 9


def test_an_array_grows() -> None:
    array = GrowingArray(2)
    every: list[int] = []
    for count in (0, 1, 1, 3, 100, 2):
        numbers = np.arange(len(every), len(every) + count, dtype=np.uint32)
        array.append(numbers)
        every += numbers.tolist()
        assert array.whole.tolist() == every and len(array) == len(every)


def sampled(*blocks: range) -> KeySample:
    sample = KeySample(64 * sum(map(len, blocks)))
    for block in blocks:
        sample.add(np.array(block, np.uint32), 1)
    return sample


def test_brackets_lie_around_their_ranks_and_reach_the_ends() -> None:
    size, many = 10_000, 10
    sample = sampled(*(range(n, size, many) for n in range(many)))
    numel = 64 * size
    found = sample.brackets([1, numel // 2, numel])
    low, high = found[numel // 2]
    reach = 3.5 * 0.5 / size**0.5
    assert size / 2 - int(low) == pytest.approx(reach * size, abs=2)
    assert int(high) - size / 2 == pytest.approx(reach * size, abs=2)
    assert found[1][1] == 0xFFFFFFFF and size - reach * size - 2 < found[1][0] < size
    assert found[numel][0] == 0 and 0 < found[numel][1] < reach * size + 5


def test_a_run_of_blocks_is_sampled_as_each_of_them_is() -> None:
    blocks = [np.random.default_rng(n).integers(n, 1000 * n + 1, 900, np.uint32) for n in range(10)]
    one, several = KeySample(64 * 9000), KeySample(64 * 9000)
    for block in blocks:
        one.add(block, 1)
    for first in range(0, 10, 4):
        run = blocks[first : first + 4]
        several.add(np.concatenate(run), len(run))
    assert one.brackets([1, 20_000, 300_000]) == several.brackets([1, 20_000, 300_000])


def test_few_blocks_give_wide_brackets_and_blocks_that_differ_wider_ones() -> None:
    size = 9_000
    few = sampled(*(range(n, size, 7) for n in range(7)))
    middle = 64 * size // 2
    low, high = few.brackets([middle])[middle]
    assert (int(high) - int(low)) / size == pytest.approx(0.06, abs=0.01)
    sorted_blocks = sampled(*(range(n, n + 900) for n in range(0, size, 900)))
    low, high = sorted_blocks.brackets([middle])[middle]
    assert (int(high) - int(low)) / size > 0.5


def test_a_bracket_with_too_many_elements_is_left_out() -> None:
    sample = KeySample(20 * MOST_COLLECTED)
    for n in range(8):
        sample.add(np.arange(n, 800, 8, dtype=np.uint32), 1)
    assert sample.brackets([MOST_COLLECTED]) == {}
