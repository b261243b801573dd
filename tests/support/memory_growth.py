"""The memory of a merge besides the program itself, measured in a process that has merged before.

The number of mapped pages of a library differs from machine to machine, for torch by a hundred
megabytes. A small merge of the same kind maps them; the large merge adds only its own to the peak.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = """
from pathlib import Path
from resumerge.engine.lifecycle.session import Session
from resumerge.host.memory import peak_rss
from resumerge.options import Options
from resumerge.planning import estimate
from resumerge.planning.estimates.memory import SAFETY
from resumerge.recipe import load_recipe
THREADS = 2
for name in ("small", "large"):
    before = peak_rss()
    session = Session(Options(state_dir=Path(f"{name}.state"), threads=THREADS, restart=True))
    need = estimate(session.plan(load_recipe(Path(f"{name}.yaml")))).memory.need(THREADS)
    session.run(Path(f"{name}.yaml"), Path(f"{name}.out"))
print(int((need.shared + need.blocks) * SAFETY), peak_rss() - before)
"""


@dataclass(frozen=True)
class Growth:
    """The growth of a process's memory by a merge.

    Args:
        predicted: the bytes that the merge needs besides the program, with the margin of a budget:
            two threads that reach a block later or earlier differ by some percent.
        measured: the bytes that it added to the peak of the process.
    """

    predicted: int
    measured: int


def measure_growth(folder: Path, small: str, large: str) -> Growth:
    """Merge two recipes, one after the other, into ``small.out`` and ``large.out``.

    Args:
        folder: the working folder.
        small: a recipe of small models that needs everything that the large recipe needs.
        large: the recipe whose growth is measured.
    """
    for name, recipe in (("small", small), ("large", large)):
        (folder / f"{name}.yaml").write_text(recipe)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    predicted, measured = map(int, done.stdout.split()[-2:])
    print(f"{measured / 1e6:.1f} MB, predicted: {predicted / 1e6:.1f} MB")
    return Growth(predicted, measured)
