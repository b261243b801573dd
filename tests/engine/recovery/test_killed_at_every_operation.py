"""Promise: killed anywhere, a run goes on and writes what an uninterrupted one writes."""

from __future__ import annotations

from crashing import KILLED, Bench, Merge


def check_crash(
    merge: Merge, at: int, mode: str, reference: dict[str, bytes], seed: int = 0
) -> bool:
    """Crash once, look, go on, compare; whether there was a crash."""
    ended = merge.run(at, mode, seed=seed)
    assert ended.code in (KILLED, 0), ended.stderr
    merge.assert_finals_are(reference)
    merge.finish()
    merge.assert_done(reference)
    assert merge.rewritten() <= merge.batch_bytes()
    return ended.code == KILLED


def test_killed_at_every_operation(
    bench: Bench, reference: dict[str, bytes], points: list[int]
) -> None:
    crashed = []

    def check(merge: Merge, at: int) -> None:
        crashed.append(check_crash(merge, at, "kill", reference))

    bench.each(points, check)
    print(f"killed at {sum(crashed)} operations")
    assert sum(crashed) > 0.9 * len(points)
