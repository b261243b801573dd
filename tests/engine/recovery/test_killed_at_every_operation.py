"""Promise: a run that is killed anywhere continues, and writes what an uninterrupted one writes."""

from __future__ import annotations

from crashing import KILLED, Bench, Merge


def test_killed_at_every_operation(
    bench: Bench, reference: dict[str, bytes], points: list[int]
) -> None:
    assert bench.check_crashes(points, reference) > 0.9 * len(points)


def test_a_process_that_is_killed_leaves_what_others_were_said_to_leave(
    bench: Bench, reference: dict[str, bytes], operations: int, soak: bool
) -> None:
    """Other tests copy the states of crashes from an attempt that continues; this one kills."""
    crashed = []

    def check(merge: Merge, at: int) -> None:
        ended = merge.run(at)
        assert ended.code in (KILLED, 0), ended.stderr
        crashed.append(ended.code == KILLED)
        merge.assert_resumed(reference)

    bench.each(range(1, operations + 1, 1 if soak else 19), check)
    assert sum(crashed) > 0.9 * len(crashed)
