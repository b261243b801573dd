"""Promise: the command that resumes a run has --take-over only until this run has the lease:
whoever acquires the lease later may be alive.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from resumerge.cli.merging.merge_command import MergeCommand
from resumerge.engine.lifecycle.session import Session
from resumerge.errors import Reason, Resumable
from resumerge.options import Options
from resumerge.ui.progress.styles import Style


@pytest.mark.parametrize("acquired", [False, True])
def test_until_the_lease_is_acquired(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], acquired: bool
) -> None:
    (tmp_path / "state" / "a-run").mkdir(parents=True)
    mirror = str(tmp_path / "mirror")

    def work(session: Session) -> None:
        session._context.run_id = "a-run"
        opened = session._context.open_mirror(mirror)
        if acquired:
            opened.acquire_lease("a-run").stop()
        raise Resumable(Reason.MIRROR, "It stops.")

    options = Options(state_dir=tmp_path / "state", mirror=mirror, take_over=True)
    assert MergeCommand(options, work, style=Style.NONE).merge() == 75
    line = capfd.readouterr().err.strip().splitlines()[-1]
    assert line.startswith("resumerge resume a-run")
    assert ("--take-over" in line) is not acquired
