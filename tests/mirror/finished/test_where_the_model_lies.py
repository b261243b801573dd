"""Promise: it is said where a model lies, what of it another machine would get; no half is left."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from machines import in_mirror
from made_up_mirrors import RECIPE
from merging import working_in
from waiting import wait_until

import resumerge
from resumerge.cli.main import app
from resumerge.engine.lifecycle.session import Session
from resumerge.engine.reporter import Reporter, Result
from resumerge.errors import Interrupted, Resumable
from resumerge.ledger import Ledger
from resumerge.mirror.state import UNFINISHED, read_state
from resumerge.mirror.stores.registry import open_store
from resumerge.options import Options
from resumerge.storage import Storage


class Heard(Reporter):
    """A reporter that records the notes and the result."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.result: Result | None = None

    def note(self, text: str) -> None:
        self.notes.append(text)

    def done(self, result: Result) -> None:
        self.result = result


class StopsLate(Storage):
    """A storage that stops the run before it seals the second shard, once the first is mirrored."""

    def __init__(self, mirror: Path, stop: Callable[[], None]) -> None:
        self._mirror, self._stop, self._stopped = mirror, stop, False

    def rename(self, source: Path, target: Path) -> None:
        if target.name.startswith("model-00002-") and not self._stopped:
            self._stopped = True
            wait_until(lambda: in_mirror(self._mirror).sealed)
            self._stop()
        super().rename(source, target)


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def fill() -> None:
    raise OSError(28, "No space left on device")


def options(place: Path, **more: object) -> Options:
    mirror = str(place / "mirror")
    return Options(state_dir=place / "state", shard_size=8000, mirror=mirror, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("stop", "error"), [(terminate, Interrupted), (fill, Resumable)])
def test_what_another_machine_would_get(
    made: Path, tmp_path: Path, stop: Callable[[], None], error: type[Exception]
) -> None:
    mirror, heard = tmp_path / "mirror", Heard()
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    session = Session(options(tmp_path), heard, StopsLate(mirror, stop))
    with working_in(made / "models"), pytest.raises(error):
        session.run(tmp_path / "recipe.yaml", tmp_path / "out")
    [note] = [note for note in heard.notes if "another machine" in note]
    found = re.fullmatch(
        rf"The mirror at {mirror} has (\d) of \d shards: another machine that resumes from it gets "
        r"[\d.]+ kB(; [\d.]+ k?B more is only on this machine)?",
        note,
    )
    assert found is not None, note
    state = read_state(open_store(str(mirror)), tmp_path / "copy.db")
    assert state.kind == UNFINISHED
    with closing(Ledger(tmp_path / "copy.db", read_only=True)) as theirs:
        assert int(found[1]) == len(theirs.mirrored.checksums()) >= 1
    with working_in(made / "models"):
        resumerge.resume(tmp_path / "out", state_dir=tmp_path / "state")
    assert resumerge.verify(mirror).intact


def test_no_half_model_is_left_where_shards_are_deleted(made: Path, tmp_path: Path) -> None:
    mirror, out, heard = tmp_path / "mirror", tmp_path / "out", Heard()
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    with working_in(made / "models"):
        Session(options(tmp_path, mirror_then_delete=True), heard).run(
            tmp_path / "recipe.yaml", out
        )
        assert list(out.iterdir()) == []
        assert heard.result is not None
        assert heard.result.places.startswith(f"{mirror} (only there; --bring-back copies")
        assert resumerge.verify(out, state_dir=tmp_path / "state").intact
        assert Session(options(tmp_path), heard).resume(str(out)).already_done
        assert list(out.iterdir()) == []
        resumerge.resume(out, state_dir=tmp_path / "state", bring_back=True)
        names = {path.name for path in mirror.iterdir() if path.is_file()}
        assert {path.name for path in out.iterdir()} == names
        for name in names:
            assert (out / name).read_bytes() == (mirror / name).read_bytes()
        # What was brought back is the run's own.
        (out / "config.json").write_text("{}")
        assert "config.json" in resumerge.verify(out, state_dir=tmp_path / "state").damaged


def test_the_command_says_where(made: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    words = ["run", tmp_path / "recipe.yaml", tmp_path / "out", "--mirror", tmp_path / "mirror"]
    words += ["--mirror-then-delete", "--state-dir", tmp_path / "state", "--no-supervise"]
    with working_in(made / "models"):
        done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == 0, done.output
    assert f"{tmp_path / 'mirror'} (only there" in done.stderr
