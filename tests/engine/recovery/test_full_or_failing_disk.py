"""Promise: a full or failing disk stops a run with exit 75, and loses nothing that is committed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from crashing import Bench, Merge
from small_disks import fill, mounted


@pytest.mark.parametrize("mode", ["full", "io"])
def test_a_call_that_fails(
    bench: Bench, reference: dict[str, bytes], operations: int, mode: str, soak: bool
) -> None:
    stopped = []

    def check(merge: Merge, at: int) -> None:
        ended = merge.run(at, mode)
        assert ended.code in (75, 0), ended.stderr
        assert "Traceback" not in ended.stderr
        stopped.append(ended.code == 75)
        merge.assert_finals_are(reference)
        merge.finish()
        merge.assert_done(reference)
        assert merge.rewritten() <= merge.largest_limit()

    bench.each(range(1, operations + 1, 1 if soak else 14), check)
    print(f"stopped by {sum(stopped)} failed operations")
    assert sum(stopped) > len(stopped) // 3


COMMITTED = "SELECT units_committed FROM attempts ORDER BY rowid"


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with mounted(tmp_path_factory.mktemp("small-disk"), 48 << 20) as folder:
        yield folder


def test_a_disk_that_fills_up_and_is_freed(
    bench: Bench, small_disk: Path, reference: dict[str, bytes], operations: int
) -> None:
    stopped = 0
    for at in [*range(1, 27, 3), *range(27, operations, 12)]:
        merge = bench.merge(disk=small_disk)
        ballast = small_disk / "ballast"
        paused = merge.start("run", at)
        fill(ballast)
        ended = paused.go_on()
        assert ended.code in (75, 0), f"at {at}: {ended.stderr}"
        stopped += ended.code == 75
        if ended.code == 75:
            assert "full" in ended.stderr
            still = merge.resume() if merge.runs() else merge.run()
            ends = still.code == 0
            assert ends or still.code == (75 if merge.runs() else 2), f"at {at}: {still.stderr}"
        ballast.unlink()
        if ended.code == 75 and ends and "is already done" not in still.stderr:
            # All units were committed: nothing needed room any more.
            assert merge.query(COMMITTED)[-1] == {"units_committed": 0}, f"at {at}"
        merge.assert_finals_are(reference)
        merge.finish()
        merge.assert_done(reference)
        assert "ledger_restored" not in merge.events()
        assert merge.rewritten() <= 2 * merge.largest_limit(), "one for each of two attempts"
        merge.remove()
    print(f"stopped {stopped} times by a full disk")
    assert stopped > 10


def test_a_disk_that_is_too_small_is_found_at_the_start(bench: Bench, small_disk: Path) -> None:
    merge = bench.merge(disk=small_disk)
    fill(small_disk / "ballast")
    with (small_disk / "ballast").open("r+b") as file:
        file.truncate((small_disk / "ballast").stat().st_size - 8192)
    ended = merge.run()
    (small_disk / "ballast").unlink()
    assert ended.code == 2
    assert "too small" in ended.stderr
    assert not merge.runs()
    merge.remove()
