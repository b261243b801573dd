"""Searches of two small models, with an evaluation that reads one number of the merged one."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from merging import working_in
from tiny_models import TWO_LAYERS, write_family

from resumerge.engine.reporter import Reporter
from resumerge.optimisation.request import Search
from resumerge.optimisation.run import run_search
from resumerge.options import Options

SPACE = """\
merge_method: linear
models:
  - {model: math, parameters: {weight: {suggest: float, low: 0, high: 1}}}
  - {model: code, parameters: {weight: {suggest: float, low: 0.1, high: 10, log: true}}}
parameters: {normalize: {suggest: categorical, choices: [true, false]}}
"""

SCORE = """\
import json, struct, sys
with open(sys.argv[1] + "/model.safetensors", "rb") as file:
    size, = struct.unpack("<Q", file.read(8))
    begin, end = json.loads(file.read(size))["model.norm.weight"]["data_offsets"]
    file.seek(8 + size + begin)
    first, second = struct.unpack("<ff", file.read(8))
"""
"""Reads two weights of a model without any library, so that it takes no time."""

ONE_NUMBER = SCORE + "print('as it says:')\nprint(-(first - 0.05) ** 2)\n"
TWO_NUMBERS = SCORE + "print(json.dumps({'one': first, 'two': second, 'note': 'said'}))\n"


def place_of(folder: Path, space: str = SPACE, score: str = ONE_NUMBER) -> Path:
    """Write two models, `space.yaml` and `score.py` into a folder."""
    write_family(folder, TWO_LAYERS)
    (folder / "space.yaml").write_text(space)
    (folder / "score.py").write_text(score)
    return folder


def evaluation(*words: str) -> str:
    """Return the command that runs `score.py` on a model."""
    return f"{shlex.quote(sys.executable)} -I -S score.py {{model}} {' '.join(words)}".strip()


class Notes(Reporter):
    """A reporter that keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def search(place: Path, out: str = "out", **asked: Any) -> dict[str, Any]:
    """Search in this process, and return the document."""
    asked = {"evaluate": evaluation(), "trials": 6, **asked}
    options = Options(state_dir=place / "state", seed=asked.pop("seed", None))
    reporter = asked.pop("reporter", Reporter())
    space = place / asked.pop("space", "space.yaml")
    with working_in(place):
        return run_search(Search(space=space, out=place / out, **asked), options, reporter)


def command(
    place: Path, *words: object, out: str = "out", before: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run ``resumerge search`` as a user does."""
    program = f"{before}\nfrom resumerge.cli.main import main\nmain()"
    given = ("search", "space.yaml", out, "--evaluate", evaluation(), *words)
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, given)],
        cwd=place,
        env={**os.environ, "RESUMERGE_STATE_DIR": str(place / f"{out}.state"), **environment},
        capture_output=True,
        text=True,
    )


def history(document: dict[str, Any]) -> list[Any]:
    """Return the suggestions and measurements of a search, in order."""
    keys = ("number", "state", "values", "parameters", "metrics")
    return [[row[key] for key in keys] for row in document["trials"]]


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder, without the output of evaluations."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith("evaluation.")
    }
