"""What a command takes before it does anything, and what a merge takes that has little to do.

``python -m benchmarks.startup --models FOLDER [--against TREE]`` runs each command in turn, also
with another tree of the sources, and prints medians. FOLDER is a model, as `benchmarks.models`
makes them.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.measure import Measurement, measure

HERE = Path(__file__).parents[1]


def commands(model: Path, work: Path) -> dict[str, list[str]]:
    """Each in the folder `work`, by the name that it has in the table."""
    copied = work / "copied.yaml"
    recipe = {"merge_method": "passthrough", "models": [{"model": str(model)}]}
    copied.write_text(json.dumps(recipe))
    done = ["run", str(copied), str(work / "done"), "--state-dir", str(work / "state")]
    subprocess.run([sys.executable, "-m", "resumerge", *done], check=True, capture_output=True)
    state = ["--state-dir", str(work / "state")]
    return {
        "resumerge --help": ["--help"],
        "resumerge status": ["status", *state],
        "resumerge plan": ["plan", str(copied), *state],
        "resumerge run": ["run", str(copied), str(work / "out"), "--state-dir", str(work / "new")],
    }


def run(words: list[str], tree: Path, work: Path) -> Measurement:
    """One command with the sources of a tree."""
    for folder in ("out", "new"):
        shutil.rmtree(work / folder, ignore_errors=True)
    os.environ["PYTHONPATH"] = str(tree)
    os.chdir(work)  # Python looks for modules in its own folder first
    found = measure([sys.executable, "-m", "resumerge", *words])
    assert found.exit_code == 0, words
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, nargs="+", required=True, help="folders of a model")
    parser.add_argument("--against", type=Path, default=None, help="another tree of the sources")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--output", type=Path, default=None, help="where outputs go")
    options = parser.parse_args()
    trees = [*([options.against.resolve()] if options.against else []), HERE]
    for tree in trees:  # as an installation does
        compileall.compile_dir(tree / "resumerge", quiet=2)
    for model in [folder.resolve() for folder in options.models]:
        with tempfile.TemporaryDirectory(dir=options.output) as folder:
            for name, words in commands(model, Path(folder)).items():
                found = [
                    [run(words, tree, Path(folder)) for tree in trees]
                    for _ in range(options.pairs + 1)
                ][1:]
                cells = []
                for one in zip(*found):
                    wall, cpu = median(m.wall_s for m in one), median(m.cpu_s for m in one)
                    cells.append(f"{wall:.2f} s, CPU {cpu:.2f} s")
                ratio = median(pair[0].wall_s / pair[-1].wall_s for pair in found)
                print(f"{name} ({model}): {' -> '.join(cells)}, {ratio:.1f}x", flush=True)


if __name__ == "__main__":
    main()
