"""Promise: what is committed survives a power cut, and what is not does no harm.

These tests fail without syncs in the right places: see `disk.py` for what is durable.
"""

from __future__ import annotations

from crashing import KILLED, Bench, Merge


def test_everything_that_was_not_synced_is_lost(
    bench: Bench, reference: dict[str, bytes], points: list[int]
) -> None:
    assert bench.check_crashes(points, reference, "power") > 0.9 * len(points)


def test_a_random_part_of_what_was_not_synced_is_lost(
    bench: Bench, reference: dict[str, bytes], operations: int, soak: bool
) -> None:
    """The test makes many draws at every operation with --soak, else one draw at some."""
    points = range(1, operations + 1, 1 if soak else 12)
    assert bench.check_crashes(points, reference, "torn") > 0.9 * len(points)
    if soak:
        check_draws(bench, reference, operations)


def check_draws(bench: Bench, reference: dict[str, bytes], operations: int) -> None:
    def check(merge: Merge, point: tuple[int, int]) -> None:
        at, seed = point
        ended = merge.run(at, "torn", seed=seed)
        assert ended.code in (KILLED, 0), ended.stderr
        merge.assert_resumed(reference)

    bench.each([(at, seed) for seed in range(100) for at in range(1, operations + 1)], check)


def test_power_lost_while_tensors_are_copied(bench: Bench, soak: bool) -> None:
    recipe = "merge_method: passthrough\nmodels: [model: math]\n"
    ended, expected = bench.calm(recipe)
    bench.check_crashes(range(20, len(ended.kinds), 1 if soak else 12), expected, "power", recipe)
