"""Promise: what is committed survives a power cut, and what is not does no harm.

Without syncs in the right places these fail: see what `disk.py` takes for durable.
"""

from __future__ import annotations

from crashing import Bench, Merge
from test_killed_at_every_operation import check_crash


def test_everything_that_was_not_synced_is_lost(
    bench: Bench, reference: dict[str, bytes], points: list[int]
) -> None:
    crashed = []

    def check(merge: Merge, at: int) -> None:
        crashed.append(check_crash(merge, at, "power", reference))

    bench.each(points, check)
    print(f"power lost at {sum(crashed)} operations")
    assert sum(crashed) > 0.9 * len(points)


def test_a_random_part_of_what_was_not_synced_is_lost(
    bench: Bench, reference: dict[str, bytes], operations: int, soak: bool
) -> None:
    crashed = []

    def check(merge: Merge, point: tuple[int, int]) -> None:
        at, seed = point
        crashed.append(check_crash(merge, at, "torn", reference, seed))

    every = range(1, operations + 1)
    points = [(at, seed) for seed in range(100) for at in every] if soak else [*zip(every, every)]
    bench.each(points if soak else points[::6], check)
    print(f"power lost at {sum(crashed)} operations, some of it written")
    assert sum(crashed) > (0.9 if soak else 0.14) * operations


def test_power_lost_while_tensors_are_copied(bench: Bench) -> None:
    recipe = "merge_method: passthrough\nmodels: [model: math]\n"
    ended, expected = bench.calm(recipe)

    def check(merge: Merge, at: int) -> None:
        check_crash(merge, at, "power", expected)

    bench.each(range(20, len(ended.kinds), 6), check, recipe)
