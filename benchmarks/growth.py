"""How time and memory grow with the number of models and with their size.

``python -m benchmarks.growth --size 0.2b 0.85b --models 2 4 8 --plot FILE.svg`` merges with
resumerge alone, prints a table, and draws it. Beyond two fine-tunes the same files are read again
under other names.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks import recipes
from benchmarks.compare import merging_seconds, status_of
from benchmarks.measure import measure
from benchmarks.memory import family
from benchmarks.models import SIZES, default_folder


@dataclass(frozen=True)
class Row:
    """One merge.

    Attributes:
        models: inputs, the base among them.
        read: bytes of the inputs.
        seconds: of the merging phase.
        cpu: seconds of the whole process.
        peak_rss: bytes.
    """

    method: str
    size: str
    models: int
    read: int
    seconds: float
    cpu: float
    peak_rss: int


def merge(method: str, size: str, count: int, models: list[Path], work: Path) -> Row:
    """Merge once, of `count` inputs."""
    base = recipes.SHAPES[method].base
    config = work / "recipe.yaml"
    config.write_text(recipes.recipe(method, models, count - base))
    program = [sys.executable, "-m", "resumerge"]
    with tempfile.TemporaryDirectory(dir=work) as place:
        out, state = Path(place) / "out", Path(place) / "state"
        command = [*program, "run", str(config), str(out), "--state-dir", str(state)]
        measured = measure(command, work / "growth.log")
        assert measured.exit_code == 0, (work / "growth.log").read_text()
        seconds = merging_seconds(status_of(program, state))
        read = count * sum(file.stat().st_size for file in models[0].glob("*.safetensors"))
    assert seconds is not None
    return Row(method, size, count, read, seconds, measured.cpu_s, measured.peak_rss)


def table(rows: list[Row]) -> str:
    """In Markdown."""
    lines = [
        "| method | size | models | read GB | merging s | GB/s | CPU s | peak MB |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for r in rows:
        speed = r.read / r.seconds / 1e9
        lines.append(
            f"| {r.method} | {r.size} | {r.models} | {r.read / 1e9:.1f} | {r.seconds:.1f} "
            f"| {speed:.2f} | {r.cpu:.1f} | {r.peak_rss / 1e6:.0f} |"
        )
    return "\n".join(lines)


def plot(rows: list[Row], file: Path) -> None:
    """Time and memory against what is read, a line for each method and size."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "resumerge"  # the same figures, the same file
    from matplotlib import pyplot

    figure, (time, memory) = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for method, size in dict.fromkeys((r.method, r.size) for r in rows):
        line = [r for r in rows if (r.method, r.size) == (method, size)]
        label = f"{method}, {size}"
        read = [r.read / 1e9 for r in line]
        time.plot(read, [r.seconds for r in line], marker="o", label=label)
        memory.plot(read, [r.peak_rss / 1e6 for r in line], marker="o", label=label)
    time.set(xlabel="input read once, GB", ylabel="merging, s", ylim=(0, None))
    memory.set(xlabel="input read once, GB", ylabel="peak RSS, MB", ylim=(0, None))
    time.legend(fontsize=8)
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", nargs="+", choices=recipes.SHAPES, default=["linear", "ties"])
    parser.add_argument("--size", nargs="+", choices=SIZES, default=["0.2b", "0.85b", "1.3b"])
    parser.add_argument("--models", nargs="+", type=int, default=[2, 4, 8])
    parser.add_argument("--folder", type=Path, default=None, help="default: $RESUMERGE_BENCH_DIR")
    parser.add_argument("--output", type=Path, default=None, help="default: the models' folder")
    parser.add_argument("--plot", type=Path, default=None)
    options = parser.parse_args()
    folder = (options.folder or default_folder()).resolve()
    rows = []
    with tempfile.TemporaryDirectory(prefix="work-", dir=options.output or folder) as work:
        for size in options.size:
            models = family(size, max(options.models), folder, Path(work))
            for method in options.method:
                for count in options.models:
                    rows.append(merge(method, size, count, models, Path(work)))
                    print(rows[-1], file=sys.stderr, flush=True)
    print(table(rows))
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
