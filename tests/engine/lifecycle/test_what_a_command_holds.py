"""Promise: a command has one mirror, releases it at its end, and handles signals until then."""

from __future__ import annotations

import errno
import signal
from pathlib import Path

import pytest

from resumerge.engine.context import RunContext
from resumerge.engine.mirror_session.session import MirrorSession
from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import InputError, Interrupted, Resumable
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.storage import Storage


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of the mirrors that have been released."""
    found: list[str] = []
    monkeypatch.setattr(MirrorSession, "release", lambda session: found.append(session.url))
    return found


@pytest.fixture
def context(tmp_path: Path) -> RunContext:
    runs = RunStore(tmp_path / "state")
    return RunContext(Options(), Reporter(), Storage(), StopRequest(), runs)


def test_a_mirror_is_opened_once_and_another_takes_its_place(
    context: RunContext, tmp_path: Path, released: list[str]
) -> None:
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    first = context.open_mirror(one)
    assert context.open_mirror(one) is first, "which holds the lease"
    assert context.open_mirror(f"{one}/") is first
    assert released == []
    second = context.open_mirror(other)
    assert second is context.mirror and released == [first.url]
    with pytest.raises(InputError):
        context.open_mirror(str(tmp_path))  # the state folder lies in it
    assert context.mirror is second and released == [first.url]


@pytest.mark.parametrize("fails", [False, True])
def test_the_mirror_is_let_go_at_the_end(
    context: RunContext, tmp_path: Path, released: list[str], fails: bool
) -> None:
    try:
        with context.working():
            mirror = context.open_mirror(str(tmp_path / "mirror"))
            assert released == []
            if fails:
                raise ValueError
    except ValueError:
        assert fails
    assert released == [mirror.url]


def test_a_disk_that_fails_can_be_repaired_and_a_signal_stops(
    context: RunContext, tmp_path: Path, released: list[str]
) -> None:
    with pytest.raises(Resumable) as stopped, context.working():
        raise OSError(errno.ENOSPC, "full")
    assert stopped.value.reason == "disk_full"
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted), context.working():
        context.open_mirror(str(tmp_path / "mirror"))
        signal.raise_signal(signal.SIGTERM)
    assert len(released) == 1 and signal.getsignal(signal.SIGTERM) is before


def test_shards_are_deleted_only_where_a_mirror_has_them(context: RunContext) -> None:
    for mirror, deletes, frees in (
        ("/m", True, True), ("/m", False, False), ("/m", None, False), (None, True, False)
    ):  # fmt: skip
        context.options = Options(mirror=mirror, mirror_then_delete=deletes)
        assert context.frees_shards is frees
