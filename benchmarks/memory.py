"""Predicted against measured peak memory: ``resumerge plan``, then ``run``, of every method.

``python -m benchmarks.memory --size tiny 0.2b --models 2 3 8`` prints a table and writes every
figure as JSON. Measured is the kernel's VmHWM of the merging process, as the ledger has it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import recipes
from benchmarks.models import SIZES, default_folder

MOST_INPUTS = {"slerp": 2, "nearswap": 2, "arcee_fusion": 2, "nuslerp": 2, "passthrough": 1}
FEWEST_INPUTS = {"model_stock": 3, "passthrough": 1}
DISTINCT = 2
"""Fine-tunes that are made; more models are the same files again, under other names."""


@dataclass(frozen=True)
class Row:
    """One merge.

    Attributes:
        models: inputs, the base among them.
        predicted, measured: bytes.
    """

    size: str
    method: str
    models: int
    predicted: int
    measured: int

    @property
    def error(self) -> float:
        """How far the prediction is off, as a share of what was measured."""
        return self.predicted / self.measured - 1.0


def family(size: str, count: int, folder: Path, work: Path) -> list[Path]:
    """A base and `count` fine-tunes; beyond `DISTINCT` they are links to the same files."""
    command = [sys.executable, "-m", "benchmarks.models", "--size", size]
    command += ["--tunes", str(DISTINCT), "--folder", str(folder)]
    made = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    models = [Path(line) for line in made.stdout.splitlines()]
    for number in range(DISTINCT + 1, count + 1):
        link = work / size / f"tune{number}"
        if not link.exists():
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(models[1 + number % DISTINCT])
        models.append(link)
    return models


def merges(methods: list[str], counts: list[int]) -> Iterator[tuple[str, int]]:
    """Every method with every number of models that it takes."""
    for method in methods:
        low, high = FEWEST_INPUTS.get(method, 2), MOST_INPUTS.get(method, max(counts))
        for count in sorted({min(max(count, low), high) for count in counts}):
            yield method, count


def measure(size: str, method: str, models: list[Path], work: Path, threads: int) -> Row:
    """Plan and merge once.

    Args:
        models: the base and fine-tunes, of which the recipe takes as many as there are inputs.
    """
    base = recipes.SHAPES[method].base
    config = work / "recipe.yaml"
    config.write_text(recipes.recipe(method, models, len(models) - 1))
    out, state = work / "out", work / "state"
    program = [sys.executable, "-m", "resumerge"]
    options = ["--threads", str(threads)]
    plan = _json([*program, "plan", str(config), *options, "--json"])
    command = [*program, "run", str(config), str(out), *options, "--state-dir", str(state)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    status = _json([*program, "status", "--json", "--state-dir", str(state)])
    shutil.rmtree(out)
    shutil.rmtree(state)
    return Row(
        size,
        method,
        len(models) - (not base),
        plan["memory"]["predicted_peak_rss"],
        status["runs"][0]["memory"]["peak_rss"],
    )


def _json(command: list[str]) -> dict[str, Any]:
    document = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    parsed: dict[str, Any] = json.loads(document)
    return parsed


def table(rows: list[Row]) -> str:
    """Markdown: a line for each method and size, measured MB and the error for each number."""
    counts = sorted({row.models for row in rows})
    found = {(row.size, row.method, row.models): row for row in rows}
    lines = [f"| size | method | {' | '.join(f'{n} models' for n in counts)} |"]
    lines.append("| --- " * (2 + len(counts)) + "|")
    for size, method in dict.fromkeys((row.size, row.method) for row in rows):
        cells = [_cell(found.get((size, method, count))) for count in counts]
        lines.append(f"| {size} | {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(row: Row | None) -> str:
    return f"{row.measured / 1e6:.0f} ({row.error:+.0%})" if row else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--models", nargs="+", type=int, default=[2, 3, 5, 8])
    parser.add_argument("--method", nargs="+", choices=recipes.SHAPES, default=[*recipes.SHAPES])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=None, help="default: $RESUMERGE_BENCH_DIR")
    parser.add_argument("--json", type=Path, default=None, help="default: FOLDER/memory.json")
    options = parser.parse_args()
    folder = (options.folder or default_folder()).resolve()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="work-", dir=folder) as work:
        for size in options.size:
            models = family(size, max(options.models), folder, Path(work))
            for method, count in merges(options.method, options.models):
                base = recipes.SHAPES[method].base
                chosen = models[: count + (not base)]
                rows.append(measure(size, method, chosen, Path(work), options.threads))
                print(f"{size} {method} {count}: {_cell(rows[-1])}", file=sys.stderr, flush=True)
                data = [asdict(row) for row in rows]
                (options.json or folder / "memory.json").write_text(json.dumps(data, indent=2))
    print(table(rows))
    worst = max(rows, key=lambda row: abs(row.error))
    print(f"\nFarthest off: {worst.size} {worst.method}, {worst.models} models, {worst.error:+.1%}")


if __name__ == "__main__":
    main()
