"""Promise: a temporary folder ends with its process, or, if that was killed, with a later one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from resumerge.engine.context import RunContext
from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.signals import StopRequest
from resumerge.engine.resources.temporary import LOCK_FILE, STARTING_SECONDS, TemporaryFolder
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.storage import Storage

pytestmark = pytest.mark.cold_start

HOLDS = """
import time
from resumerge.engine.resources.temporary import TemporaryFolder
folder = TemporaryFolder()
(folder.path / "config.json").write_text("{}")
print(folder.path, flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder for temporary files, which the system uses."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def hold(temporary: Path) -> tuple[subprocess.Popen[str], Path]:
    """Start another process with a temporary folder of its own."""
    env = {**os.environ, "TMPDIR": str(temporary)}
    command = [sys.executable, "-c", HOLDS]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def grow_old(folder: Path) -> None:
    then = time.time() - STARTING_SECONDS - 1
    os.utime(folder.parent / LOCK_FILE, (then, then))


def test_it_is_deleted_at_the_end(temporary: Path) -> None:
    with TemporaryFolder() as folder:
        (folder / "file").write_text("")
        assert folder.is_relative_to(temporary)
    assert not list(temporary.iterdir())
    folder = TemporaryFolder().path
    assert not folder.exists(), "nothing refers to it any more"


def test_that_of_a_killed_process_is_deleted_and_that_of_a_living_one_stays(
    temporary: Path,
) -> None:
    """A folder that a process may be about to lock stays, too."""
    process, folder = hold(temporary)
    try:
        grow_old(folder)
        with TemporaryFolder():
            assert folder.exists()
    finally:
        process.kill()
        process.communicate()
    os.utime(folder.parent / LOCK_FILE)
    with TemporaryFolder():
        assert folder.exists()
    grow_old(folder)
    with TemporaryFolder():
        assert not folder.parent.exists()


def test_a_folder_of_the_user_s_is_none_whatever_its_name(temporary: Path) -> None:
    theirs = temporary / "resumerge-models"
    theirs.mkdir()
    os.utime(theirs, (0, 0))
    (temporary / "resumerge-file").write_text("")
    (temporary / "resumerge-linked").mkdir()
    (temporary / "resumerge-linked" / LOCK_FILE).symlink_to(theirs)
    with TemporaryFolder():
        pass
    assert len(list(temporary.iterdir())) == 3


def test_a_command_s_folders_are_such_ones(temporary: Path) -> None:
    runs = RunStore(temporary / "state")
    context = RunContext(Options(), Reporter(), Storage(), StopRequest(), runs)
    with context.working():
        folder = context.temporary_folder()
        assert (folder.parent / LOCK_FILE).exists()
    assert not folder.parent.exists()
