"""Promise: a run has one process and an output one run, whatever the other process is doing."""

from __future__ import annotations

from pathlib import Path

import pytest
from crashing import Bench


@pytest.mark.parametrize("command", ["run", "resume"])
def test_a_second_process_while_the_first_is_anywhere(
    bench: Bench, reference: dict[str, bytes], operations: int, command: str, soak: bool
) -> None:
    """The first process is stopped before an operation; the other is refused, or does it all."""
    codes = set()
    for at in range(1 if command == "run" else 30, operations, 1 if soak else 16):
        first = bench.merge()
        second = bench.beside(first)
        paused = first.start("run", at)
        ended = second.run() if command == "run" else second.resume()
        if ended.code == 2:
            assert f"pid {paused.pid}" in ended.stderr or "this output" in ended.stderr
        else:
            assert ended.code == 0, f"at {at}: {ended.stderr}"
        after = paused.go_on()
        assert {ended.code, after.code} == {0, 2}, f"at {at}: {ended.stderr}{after.stderr}"
        codes.add(ended.code)
        first.assert_done(reference)
        first.remove()
    assert 2 in codes


def test_another_ledger_for_the_same_output_is_refused(
    bench: Bench, reference: dict[str, bytes], operations: int
) -> None:
    for at in range(1, operations, 19):
        first = bench.merge()
        second = bench.beside(first)
        second.state = second.root / "other-state"
        paused = first.start("run", at)
        ended = second.run()
        after = paused.go_on()
        assert {ended.code, after.code} == {0, 2}, f"at {at}: {ended.stderr}{after.stderr}"
        said = ended.stderr + after.stderr
        assert "Another process is writing" in said or "contains other files" in said
        assert first.files() == reference
        assert not (first if after.code else second).runs(), "the refused one leaves no run"
        first.remove()


def test_two_runs_share_a_state_folder(
    bench: Bench, reference: dict[str, bytes], operations: int
) -> None:
    for at in [*range(1, 24, 3), operations // 2]:
        first = bench.merge()
        second = bench.beside(first)
        second.out = second.root / "elsewhere" / "merged"
        paused = first.start("run", at)
        assert second.run().code == 0, f"at {at}"
        after = paused.go_on()
        assert after.code == 0, f"at {at}: {after.stderr}"
        assert first.files() == second.files() == reference
        assert len(first.runs()) == 2
        first.remove()


def test_a_killed_process_holds_nothing(
    bench: Bench, reference: dict[str, bytes], operations: int
) -> None:
    merge = bench.merge()
    merge.run(operations // 2)
    (folder,) = merge.runs()
    assert (folder / "lock").stat().st_size, "the lock still names who was killed"
    merge.finish()
    merge.assert_done(reference)


def test_the_output_may_be_named_by_another_path(
    bench: Bench, reference: dict[str, bytes], operations: int
) -> None:
    merge = bench.merge()
    merge.run(operations // 2)
    (merge.root / "link").symlink_to(merge.root)
    merge.out = Path(merge.root / "link" / "merged")
    assert merge.resume().code == 0
    merge.assert_done(reference)
