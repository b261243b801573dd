"""A finished run, and one that a full disk stopped, for the tests of commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import DISK_FULL, LINEAR, resumerge
from tiny_models import write_family


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with models, `linear.yaml`, and the runs of `done` and `half` in `state`."""
    folder = write_family(tmp_path_factory.mktemp("place"))
    (folder / "linear.yaml").write_text(LINEAR)
    done = resumerge("run", "linear.yaml", "done", cwd=folder)
    assert done.returncode == 0, done.stderr
    half = resumerge("run", "linear.yaml", "half", cwd=folder, before=DISK_FULL)
    assert half.returncode == 75, half.stderr
    return folder
