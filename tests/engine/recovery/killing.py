"""A large merge as a process that is killed at random times until it is done."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from command_line import WORDS, call, committed, hashes, start

from resumerge.ledger.run_store import RunStore

MOST_KILLS = 4
"""The most kills of one merge, which a slow machine would otherwise never finish."""

Start = Callable[[list[str], Path], subprocess.Popen[str]]


def kill_until_done(
    folder: Path, expected: dict[str, str], draw: random.Random, start: Start = start
) -> int:
    """Merge, and return how often the merge was killed: a fast machine may finish before."""
    out, state = folder / "merged", folder / "ledgers"
    resume = ["resume", "merged", "--state-dir", "ledgers"]
    kills, useful, code = 0, 0, -9
    while code:
        before = committed(state)
        process = start(resume if RunStore(state).runs() else WORDS, folder)
        if kills % 3:  # else at any time, torch may not even be imported
            while process.poll() is None and committed(state) == before:
                time.sleep(0.05)
        time.sleep(draw.uniform(0.0, 0.4 if kills % 3 else 2.5))
        if kills < MOST_KILLS:
            process.kill()
        _, stderr = process.communicate()
        code = process.returncode
        assert code in (0, -9), stderr
        kills += code == -9
        useful += committed(state) > before
        for name, found in hashes(out).items():
            assert found == expected[name], f"{name} has its final name but is not whole"
    print(f"killed {kills} times, {useful} attempts committed something")
    assert hashes(out) == expected
    assert not list(out.rglob("*.partial"))
    verified = call(["verify", "merged", "--state-dir", "ledgers"], folder)
    assert verified.returncode == 0, verified.stderr
    return kills
