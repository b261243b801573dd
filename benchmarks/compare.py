"""Merge the same files with resumerge and with mergekit, in turn, and compare.

``python -m benchmarks.compare --method linear ties --size 0.85b --pairs 3 --mergekit PATH``
prints a table of medians and writes every single measurement as JSON. Without mergekit it
measures resumerge and the floor alone.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import recipes
from benchmarks.measure import Measurement, measure
from benchmarks.models import SIZES, default_folder

MERGEKIT_VARIANTS: dict[str, list[str]] = {"plain": [], "async": ["--async-write"]}
WIDTH = 120  # of the table where the output is no terminal
Run = dict[str, Any]  # one measurement, and which program and variant it is of


def merging_seconds(status: dict[str, Any]) -> float | None:
    """Seconds of the merging phase alone, from the document of ``resumerge status --json``."""
    runs = status.get("runs") or [{}]
    seconds: float | None = runs[0].get("merging_s")
    return seconds


def compare(
    method: str,
    models: list[Path],
    pairs: int,
    resumerge: list[str],
    mergekit: str | None,
    variants: list[str],
    work: Path,
) -> list[Run]:
    """Measure one method: in each pair the floor, resumerge, and mergekit in its variants."""
    config = work / f"{method}.yaml"
    config.write_text(recipes.recipe(method, models))
    runs: list[Run] = []
    _floor(method, models, work)  # not counted: it brings the inputs into the page cache
    for pair in range(pairs):
        runs.append(_floor(method, models, work))
        runs.append(_resumerge(config, resumerge, work))
        if mergekit:
            for variant in variants:
                flags = MERGEKIT_VARIANTS[variant]
                runs.append(_mergekit(config, mergekit, variant, flags, work))
        for run in runs:
            run.setdefault("method", method)
            run.setdefault("pair", pair)
    return runs


def _floor(method: str, models: list[Path], work: Path) -> Run:
    """The floor in a process of its own, which itself says how long the files took."""
    out = work / "floor.bin"
    folders = [str(folder) for folder in recipes.inputs(method, models)]
    command = [sys.executable, "-m", "benchmarks.floor", str(out), *folders]
    seconds = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    _remove(out)
    return {"program": "floor", "variant": "", "wall_s": seconds, "exit_code": 0}


def _resumerge(config: Path, program: list[str], work: Path) -> Run:
    out, state = work / "resumerge-out", work / "state"
    command = [*program, "run", str(config), str(out), "--state-dir", str(state)]
    run = _record("resumerge", "", measure(command, work / "resumerge.log"))
    if run["exit_code"] == 0:
        run["merging_s"] = merging_seconds(status_of(program, state))
    _remove(out, state)
    return run


def status_of(program: list[str], state: Path) -> dict[str, Any]:
    """What ``resumerge status`` says of the only run in ``state``."""
    command = [*program, "status", "--json", "--state-dir", str(state)]
    found = subprocess.run(command, capture_output=True, text=True)
    return json.loads(found.stdout) if found.returncode == 0 else {}


def _mergekit(config: Path, program: str, variant: str, flags: list[str], work: Path) -> Run:
    out = work / "mergekit-out"
    command = [program, str(config), str(out), "--no-copy-tokenizer", "--quiet", *flags]
    run = _record("mergekit", variant, measure(command, work / "mergekit.log"))
    _remove(out)
    return run


def _record(program: str, variant: str, measured: Measurement) -> Run:
    return {"program": program, "variant": variant, **asdict(measured)}


def _remove(*outputs: Path) -> None:
    """Delete outputs and let the disk finish, so that no run pays for the one before."""
    for output in outputs:
        if output.is_dir():
            shutil.rmtree(output)
        else:
            output.unlink(missing_ok=True)
    os.sync()


def summary(method: str, runs: list[Run]) -> dict[str, Any]:
    """The medians of one method, and how resumerge compares. Times in seconds, memory in bytes."""
    mine = [run for run in runs if run["method"] == method and run["exit_code"] == 0]
    floor = _median(mine, "floor", "", "wall_s")
    merging = _median(mine, "resumerge", "", "merging_s")
    walls = {name: _median(mine, "mergekit", name, "wall_s") for name in MERGEKIT_VARIANTS}
    known = {name: wall for name, wall in walls.items() if wall is not None}
    variant = min(known, key=lambda name: known[name]) if known else ""
    result: dict[str, Any] = {
        "method": method,
        "floor_s": floor,
        "resumerge_merging_s": merging,
        "mergekit_variant": variant,
    }
    for program, chosen in (("resumerge", ""), ("mergekit", variant)):
        for key in ("wall_s", "cpu_s", "peak_rss"):
            result[f"{program}_{key}"] = _median(mine, program, chosen, key)
    result["times_faster"] = _ratio(result["mergekit_wall_s"], result["resumerge_wall_s"])
    result["times_less_cpu"] = _ratio(result["mergekit_cpu_s"], result["resumerge_cpu_s"])
    result["merging_to_floor"] = _ratio(merging, floor)
    result["failed"] = [
        f"{run['program']} {run['variant']}".strip()
        for run in runs
        if run["method"] == method and run["exit_code"] != 0
    ]
    return result


def _median(runs: list[Run], program: str, variant: str, key: str) -> float | None:
    values = [
        run[key]
        for run in runs
        if run["program"] == program and run["variant"] == variant and run.get(key) is not None
    ]
    return median(values) if values else None


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above and below else None


def table(summaries: list[dict[str, Any]]) -> Table:
    """The summaries for people."""
    shown = Table(title="medians; mergekit in the faster of its two ways of writing")
    shown.add_column("method", no_wrap=True)
    shown.add_column("program", no_wrap=True)
    for column in ("wall s", "CPU s", "peak MB", "merging s", "to floor", "faster", "less CPU"):
        shown.add_column(column, justify="right", no_wrap=True)
    for row in summaries:
        shown.add_row(row["method"], "floor", _number(row["floor_s"]))
        shown.add_row("", "resumerge", *_costs(row, "resumerge"), *_comparison(row))
        if row["mergekit_wall_s"]:
            program = f"mergekit {row['mergekit_variant']}"
            shown.add_row("", program, *_costs(row, "mergekit"))
        shown.add_section()
    return shown


def _costs(row: dict[str, Any], program: str) -> list[str]:
    return [
        _number(row[f"{program}_wall_s"]),
        _number(row[f"{program}_cpu_s"]),
        _number(row[f"{program}_peak_rss"], 1e6),
    ]


def _comparison(row: dict[str, Any]) -> list[str]:
    keys = ("resumerge_merging_s", "merging_to_floor", "times_faster", "times_less_cpu")
    return [_number(row[key]) for key in keys]


def _number(value: float | None, unit: float = 1.0) -> str:
    if value is None:
        return "-"
    return f"{value / unit:.0f}" if unit > 1 else f"{value:.2f}"


def _machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "system": platform.platform(),
        "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _models(size: str, tunes: int, folder: Path) -> list[Path]:
    """Made in a process of their own: this one must stay small (see ``measure``)."""
    command = [sys.executable, "-m", "benchmarks.models", "--size", size, "--tunes", str(tunes)]
    command += ["--folder", str(folder)]
    made = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [Path(line) for line in made.stdout.splitlines()]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", nargs="+", choices=recipes.SHAPES, default=["linear", "ties"])
    parser.add_argument("--size", choices=SIZES, default="0.85b")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--mergekit", default="mergekit-yaml", help="the mergekit-yaml to run")
    parser.add_argument(
        "--variants", nargs="+", choices=MERGEKIT_VARIANTS, default=[*MERGEKIT_VARIANTS]
    )
    parser.add_argument("--resumerge", default=None, help="default: the one of this Python")
    parser.add_argument("--folder", type=Path, default=None, help="default: $RESUMERGE_BENCH_DIR")
    parser.add_argument(
        "--output", type=Path, default=None, help="where outputs go (default: the models' folder)"
    )
    parser.add_argument("--json", type=Path, default=None, help="default: FOLDER/benchmark.json")
    return parser.parse_args()


def main() -> None:
    options = _arguments()
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    folder = (options.folder or default_folder()).resolve()
    resumerge = [options.resumerge] if options.resumerge else [sys.executable, "-m", "resumerge"]
    compileall.compile_dir(Path(__file__).parents[1] / "resumerge", quiet=2)  # as pip did mergekit
    mergekit = shutil.which(options.mergekit)
    if mergekit is None:
        console.print(f"mergekit is not measured: there is no {options.mergekit}")
    models = _models(options.size, recipes.most_tunes(options.method), folder)
    machine, runs, summaries = _machine(), [], []
    with tempfile.TemporaryDirectory(prefix="work-", dir=options.output or folder) as work:
        for method in options.method:
            console.print(f"{method}…")
            runs += compare(
                method, models, options.pairs, resumerge, mergekit, options.variants, Path(work)
            )
            summaries.append(summary(method, runs))
            if summaries[-1]["failed"]:
                console.print(f"failed: {', '.join(summaries[-1]['failed'])}")
                console.print(_log_tail(Path(work)), markup=False)
    console.print(table(summaries))
    result = {"size": options.size, "machine": machine, "summaries": summaries, "runs": runs}
    (options.json or folder / "benchmark.json").write_text(json.dumps(result, indent=2) + "\n")


def _log_tail(work: Path) -> str:
    """The last lines of what the programs said."""
    lines = []
    for log in sorted(work.glob("*.log")):
        lines += [f"{log.name}:", *log.read_text(errors="replace").splitlines()[-8:]]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
