"""Promise: a large merge that is killed at random, again and again, ends as a calm one does."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest
from command_line import call, committed, hashes, start
from crashing import RECIPE

from resumerge.ledger.home import Home


@pytest.mark.slow
def test_killed_at_random_times(large_llamas: Path, tmp_path: Path, soak: bool) -> None:
    config = tmp_path / "recipe.yaml"
    config.write_text(RECIPE)
    calm = tmp_path / "calm" / "merged"
    options = ["--state-dir", str(tmp_path / "calm-state")]
    done = call(["run", str(config), str(calm), "--shard-size", "100MB", *options], large_llamas)
    assert done.returncode == 0, done.stderr
    expected = hashes(calm)
    shutil.rmtree(calm)
    for seed in range(100 if soak else 1):
        kill_until_done(large_llamas, config, tmp_path / f"{seed}", expected, random.Random(seed))
        shutil.rmtree(tmp_path / f"{seed}")


def kill_until_done(
    models: Path, config: Path, folder: Path, expected: dict[str, str], draw: random.Random
) -> None:
    out, state = folder / "merged", folder / "state"
    options = ["--state-dir", str(state)]
    kills, useful, code = 0, 0, -9
    while code:
        known = bool(Home(state).runs())
        begin = ["run", str(config), str(out), "--shard-size", "100MB"]
        before = committed(state)
        process = start([*(["resume", str(out)] if known else begin), *options], models)
        if kills % 3:  # else at any time, torch may not even be imported
            while process.poll() is None and committed(state) == before:
                time.sleep(0.01)
        time.sleep(draw.uniform(0.0, 0.6 if kills % 3 else 2.5))
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
    verified = call(["verify", str(out), *options], models)
    assert verified.returncode == 0, verified.stderr
    assert kills >= 3
