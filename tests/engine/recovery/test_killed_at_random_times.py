"""Promise: a large merge that is killed at random, again and again, ends as a calm one does."""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path

from command_line import calm_merge, hashes
from killing import kill_until_done
from slow_average import MEAN


def test_killed_at_random_times(many_blocks: Path, tmp_path: Path, soak: bool) -> None:
    folder = calm_merge(tmp_path, many_blocks, MEAN)
    expected = hashes(folder / "calm" / "merged")
    kills = 0
    for seed in itertools.count():
        if kills >= 3 and not (soak and seed < 100):
            break
        print(f"seed {seed}")
        kills += kill_until_done(folder, expected, random.Random(seed))
        for name in ("merged", "ledgers"):
            shutil.rmtree(folder / name)
