"""Whether two versions of the program write the same bytes: to check that a refactoring is one.

Makes small models, merges recipes that use every method and most features with them, by the command
line alone, and prints for each recipe a SHA-256 of the output folder: of every file's name and
content. Nothing is left out, as no file of the output holds a path, a date or a version. The last
line has one hash over all recipes.

In the tree before the change, then in the tree after it:

    python -m benchmarks.identical --save before.json
    python -m benchmarks.identical --compare before.json

The second command exits with 1 and names the recipes and files that differ. It tests the package in
the folder that it is started in, or else the one that is installed; ``--command`` takes any other
command. ``RESUMERGE_KERNELS`` chooses the kernels, as ever.

The models are the same on every machine, but for the description inside of the torch checkpoint,
which the version of torch decides. Outputs are to be compared on one machine: singular vectors
(``iso_c``) come from a library that may compute them otherwise on another processor.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.identical.models import make_models
from benchmarks.identical.recipes import USES, Case, of_features, of_methods

Hashes = dict[str, dict[str, str]]
"""SHA-256 of each file, by recipe and by the file's name."""

FAILED = "exit code"
"""In the place of files, where a recipe failed."""


@dataclass(frozen=True)
class Program:
    """The command that is tested, and where it works."""

    command: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command, *arguments],
            cwd=self.folder,
            env=dict(self.environment),
            capture_output=True,
            text=True,
        )

    def merge(self, case: Case) -> dict[str, str]:
        """SHA-256 of every file of the output, by its name; how it ended if it failed."""
        place = self.folder / f"merge {case.name}"
        place.mkdir()
        recipe, out = place / "recipe.yaml", place / "merged"
        recipe.write_text(case.recipe)
        state = ("--state-dir", str(place / "state"))
        ended = self.run("run", str(recipe), str(out), *state, "--no-supervise", *case.options)
        if ended.returncode:
            print(f"{case.name} failed:\n{ended.stderr.strip()}", file=sys.stderr)
            files = {FAILED: str(ended.returncode)}
        else:
            files = hashed(out)
        shutil.rmtree(place)
        return files


def hashed(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below a folder but model cards, which name versions."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "README.md")
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def together(lines: Mapping[str, str]) -> str:
    """One SHA-256 of names and their hashes, in the order of the names."""
    text = "".join(f"{name} {value}\n" for name, value in sorted(lines.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def differences(before: Hashes, after: Hashes) -> Iterator[str]:
    """What is not the same, a line for each recipe."""
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            yield f"{name}: only {'after' if old is None else 'before'}"
        elif old != new:
            files = sorted(f for f in old.keys() | new.keys() if old.get(f) != new.get(f))
            yield f"{name}: {', '.join(files)}"


def program(command: str | None, folder: Path) -> Program:
    """The command, looking for the package in the working folder first."""
    environment = dict(os.environ)
    paths = [str(Path.cwd()), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    if command is not None:
        return Program(tuple(shlex.split(command)), folder, environment)
    python = Program((sys.executable,), folder, environment)
    found = python.run("-c", "import resumerge; print(resumerge.__file__)")
    print(f"testing {found.stdout.strip() or found.stderr.strip()}", file=sys.stderr)
    return Program((sys.executable, "-m", "resumerge"), folder, environment)


def missed_methods(tested: Program) -> list[str]:
    """Methods of the program that no recipe uses."""
    ended = tested.run("methods", "--json")
    if ended.returncode:
        raise SystemExit(f"The command does not work:\n{ended.stderr.strip()}")
    listed = {method["name"] for method in json.loads(ended.stdout)["methods"]}
    return sorted(listed - {use.method for use in USES})


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--command", help="what is run (default: python -m resumerge)")
    parser.add_argument(
        "--only", default="", metavar="PATTERN", help="recipes whose names have this expression"
    )
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the hashes to a file")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="compare with a saved file")
    parser.add_argument("--jobs", type=int, default=2, help="recipes at the same time (2)")
    options = parser.parse_args()
    before: Hashes | None = None
    if options.compare is not None:
        before = json.loads(options.compare.read_text())
    start = time.perf_counter()
    found: Hashes = {}
    with tempfile.TemporaryDirectory(prefix="identical-") as name:
        folder = Path(name).resolve()
        make_models(folder)
        tested = program(options.command, folder)
        if missed := missed_methods(tested):
            print(f"no recipe uses {', '.join(missed)}", file=sys.stderr)
        cases = [
            case for case in (*of_methods(), *of_features()) if re.search(options.only, case.name)
        ]
        with ThreadPoolExecutor(options.jobs) as pool:
            for case, files in zip(cases, pool.map(tested.merge, cases)):
                found[case.name] = files
                print(f"{case.name:28} {together(files)}", flush=True)
    failed = [name for name, files in found.items() if FAILED in files]
    every = together({name: together(files) for name, files in found.items()})
    print(f"{f'all {len(found)}':28} {every}", flush=True)
    print(f"{len(failed)} failed, {time.perf_counter() - start:.0f} s", file=sys.stderr)
    if options.save is not None:
        options.save.write_text(json.dumps(found, indent=1) + "\n")
    if before is None:
        return bool(failed)
    before = {name: files for name, files in before.items() if re.search(options.only, name)}
    changed = list(differences(before, found))
    for line in changed:
        print(f"differs: {line}", file=sys.stderr)
    return bool(failed or changed)


if __name__ == "__main__":
    sys.exit(main())
