"""Promise: a reproduction that is killed goes on when it is typed again, and ends compared."""

from __future__ import annotations

import signal
from pathlib import Path

from command_line import call, calm_merge, committed, hashes, start
from slow_average import RECIPE
from waiting import wait_until

AGAIN = ["reproduce", "calm/merged", "again", "--state-dir", "ledgers"]


def test_killed_and_typed_again(large_llamas: Path, tmp_path: Path) -> None:
    folder = calm_merge(tmp_path, large_llamas, RECIPE)
    for signum, code in ((signal.SIGKILL, -9), (signal.SIGTERM, 143)):
        before = committed(folder / "ledgers")
        process = start(AGAIN, folder)
        wait_until(lambda: committed(folder / "ledgers") > before)  # noqa: B023
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
