"""Promise: a killed reproduction continues with the same command, and ends with a comparison."""

from __future__ import annotations

import signal
from pathlib import Path

from command_line import COMMITTING, call, calm_merge, committed, hashes, held
from slow_average import MEAN
from waiting import wait_until

AGAIN = ["reproduce", "calm/merged", "again", "--state-dir", "ledgers"]


def test_killed_and_typed_again(many_blocks: Path, tmp_path: Path) -> None:
    folder = calm_merge(tmp_path, many_blocks, MEAN)
    for signum, code in ((signal.SIGKILL, -9), (signal.SIGTERM, 143)):
        before = committed(folder / "ledgers")
        process = held([*AGAIN, "--threads", "2"], folder, COMMITTING)
        wait_until(lambda: committed(folder / "ledgers") > before, process)  # noqa: B023
        process.send_signal(signum)
        _, said = process.communicate()
        assert process.returncode == code, said
        if signum == signal.SIGTERM:
            assert "\nresumerge reproduce calm/merged again " in said
    done = call(AGAIN, folder)
    assert done.returncode == 0, done.stderr
    assert "again: identical to" in done.stdout
    made, calm = hashes(folder / "again"), hashes(folder / "calm" / "merged")
    assert made.keys() == calm.keys()
    differing = {name for name in calm if made[name] != calm[name]}
    assert differing == {"README.md"}, "it has the name of its folder"
