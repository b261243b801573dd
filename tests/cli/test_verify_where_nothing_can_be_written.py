"""`verify` also reads where it cannot write, or while another process works on the run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from privileges import unprivileged

from resumerge.engine.resources.lock import run_lock


@pytest.fixture
def copied(place: Path, tmp_path: Path) -> Iterator[Path]:
    """Yield a copy of a run's folder in `state`; the last tensor of the run's output is damaged."""
    [run] = [path.parent for path in (place / "state").glob("done*/ledger.db")]
    folder = shutil.copytree(run, tmp_path / "state" / run.name)
    shard = place / "done" / "model.safetensors"
    intact = shard.read_bytes()
    shard.write_bytes(intact[:-5] + b"wrong")
    yield folder
    shard.write_bytes(intact)
    for path in (folder, *folder.iterdir()):
        path.chmod(0o700)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("files", [0o400, 0o600])
def test_read_only(copied: Path, files: int) -> None:
    for path in copied.iterdir():
        path.chmod(files)
    copied.chmod(0o500)
    before = contents(copied)
    code, says = unprivileged(["verify", "--state-dir", str(copied.parent)], copied)
    assert code == 75, says
    assert "Traceback" not in says
    assert "block 0 differs in model.safetensors" in says
    assert "not recorded in the ledger" in says
    assert contents(copied) == before


def test_while_another_process_works_on_the_run(copied: Path) -> None:
    (copied / "lock").write_text("")
    with run_lock(copied, copied.name):
        before = (copied / "ledger.db").read_bytes()
        code, says = unprivileged(["verify", "--state-dir", str(copied.parent)], copied)
        assert (copied / "ledger.db").read_bytes() == before
    assert code == 75, says
    assert "block 0 differs in model.safetensors" in says
    assert "not recorded in the ledger" in says


def test_otherwise_the_damage_is_noted(copied: Path) -> None:
    code, says = unprivileged(["verify", "--state-dir", str(copied.parent)], copied)
    assert code == 75, says
    assert "not recorded" not in says
    _, again = unprivileged(["verify", "--state-dir", str(copied.parent)], copied)
    assert "damaged in an earlier check" in again
