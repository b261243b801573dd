"""Promise: a large merge that is killed at random, again and again, ends as a calm one does."""

from __future__ import annotations

import itertools
import random
import shutil
import time
from pathlib import Path

from command_line import WORDS, call, calm_merge, committed, hashes, start
from slow_average import RECIPE

from resumerge.ledger.run_store import RunStore

MOST_KILLS = 8
"""Of one merge: a machine that is slow enough would never come to its end."""


def test_killed_at_random_times(large_llamas: Path, tmp_path: Path, soak: bool) -> None:
    folder = calm_merge(tmp_path, large_llamas, RECIPE)
    expected = hashes(folder / "calm" / "merged")
    kills = 0
    for seed in itertools.count():
        if kills >= 3 and not (soak and seed < 100):
            break
        print(f"seed {seed}")
        kills += kill_until_done(folder, expected, random.Random(seed))
        for name in ("merged", "ledgers"):
            shutil.rmtree(folder / name)


def kill_until_done(folder: Path, expected: dict[str, str], draw: random.Random) -> int:
    """Merge, and return how often that was killed: a quick machine may be done before."""
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
