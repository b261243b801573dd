"""Promise: a run that is killed again while it resumes loses nothing either."""

from __future__ import annotations

import pytest
from crashing import KILLED, Bench, Merge


@pytest.mark.parametrize("mode", ["kill", "power", "torn"])
def test_killed_again_and_again(
    bench: Bench, reference: dict[str, bytes], operations: int, mode: str, soak: bool
) -> None:
    step = 3 if soak else 41
    crashes = []

    def check(merge: Merge, point: tuple[int, int]) -> None:
        first, again = point
        merge.run(first, mode, seed=first)
        for seed in range(3):
            if not merge.runs():
                break
            ended = merge.resume(again, mode, seed=seed)
            assert ended.code in (KILLED, 0), ended.stderr
            crashes.append(ended.code == KILLED)
            merge.assert_finals_are(reference)
        merge.finish()
        merge.assert_done(reference)

    firsts = range(20, operations, step)
    seconds = range(3, 90, step)
    every = [(first, again) for first in firsts for again in seconds]
    some = [(first, seconds[k % len(seconds)]) for k, first in enumerate(firsts)]
    bench.each(every if soak else some, check)
    print(f"killed {sum(crashes)} times while resuming")
    assert sum(crashes) >= 10


def test_each_kill_costs_at_most_the_uncommitted_limit(
    bench: Bench, reference: dict[str, bytes], operations: int
) -> None:
    def check(merge: Merge, again: int) -> None:
        kills = int(merge.run(operations // 3).code == KILLED)
        while merge.resume(again).code == KILLED and kills < 10:
            kills += 1
        merge.finish()
        merge.assert_done(reference)
        assert merge.rewritten() <= kills * merge.largest_limit()

    bench.each(range(24, 40, 4), check)
