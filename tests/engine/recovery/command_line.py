"""`resumerge` as a process, the way a user starts it."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import slow_average
from crashing import RECIPE
from ledger_rows import query

from resumerge.ledger import LEDGER_FILE
from resumerge.ledger.run_store import RunStore

BIN = Path(sys.executable).parent
COMMITTING = 50
"""A number of blocks of a slow method after which two threads have committed a batch."""
ENV = {
    **os.environ,
    **slow_average.VARIABLES,
    "SLOW_SECONDS": "0.1",
    "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
    "COLUMNS": "200",
}

CONFIG = "a recipe.yaml"
WORDS = ["run", CONFIG, "merged", "--shard-size", "10MB", "--state-dir", "ledgers"]
WORDS += ["--threads", "2"]
"""The arguments of a merge in a working folder that `calm_merge` made."""


def calm_merge(folder: Path, models: Path, recipe: str = RECIPE) -> Path:
    """Fill a working folder: the models, a recipe, and the output of an uninterrupted merge."""
    for model in models.iterdir():
        (folder / model.name).symlink_to(model)
    (folder / CONFIG).write_text(recipe)
    words = ["run", CONFIG, "calm/merged", "--shard-size", "10MB"]
    process = start(words, folder, environment={"SLOW_SECONDS": "0"})
    _, stderr = process.communicate()
    assert process.returncode == 0, stderr
    return folder


def start(
    words: list[str],
    cwd: Path,
    program: Sequence[str] = (str(BIN / "resumerge"),),
    environment: Mapping[str, str] = {},
) -> subprocess.Popen[str]:
    """Start `resumerge` with these arguments."""
    return subprocess.Popen(
        [*program, *words],
        cwd=cwd,
        env={**ENV, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def held(words: list[str], cwd: Path, blocks: int) -> subprocess.Popen[str]:
    """Start `resumerge`, which waits for a signal after so many blocks, and ends only by one."""
    (cwd / "hold").write_text(str(blocks))
    return start(words, cwd, environment={"SLOW_HOLD": str(cwd / "hold")})


def call(words: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run `resumerge` with these arguments to its end."""
    process = start(words, cwd)
    out, err = process.communicate()
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def call_line(line: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a line as if it were pasted into a shell."""
    return subprocess.run(line, shell=True, cwd=cwd, env=ENV, capture_output=True, text=True)


def state_of(run: str, state_dir: Path, cwd: Path) -> str:
    """Return the state of a run that `resumerge status` reports."""
    told = call(["status", run, "--state-dir", str(state_dir), "--json"], cwd)
    return str(json.loads(told.stdout)["runs"][0]["state"])


def _of_worker(process: subprocess.Popen[str], file: str) -> str:
    """Return a file in /proc of the process's worker; empty while there is none."""
    try:
        workers = psutil.Process(process.pid).children()
        return Path(f"/proc/{workers[0].pid}/{file}").read_text() if workers else ""
    except (OSError, psutil.NoSuchProcess):
        return ""


def listens(process: subprocess.Popen[str]) -> bool:
    """Return whether the worker handles SIGTERM itself."""
    lines = _of_worker(process, "status").splitlines()
    caught = next((line.split()[1] for line in lines if line.startswith("SigCgt")), "0")
    return bool(int(caught, 16) & 1 << (signal.SIGTERM - 1))


def has_mapped(process: subprocess.Popen[str], library: str) -> bool:
    """Return whether the worker has begun to load a library."""
    return library in _of_worker(process, "maps")


def committed(state_dir: Path) -> int:
    """Return the bytes that the only run in a folder has committed."""
    runs = RunStore(state_dir).runs()
    if not runs:
        return 0
    sql = "SELECT coalesce(sum(bytes_committed), 0) AS n FROM attempts"
    return int(query(runs[-1] / LEDGER_FILE, sql)[0]["n"])


def hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file that has its final name."""
    return {
        str(path.relative_to(folder)): _hash(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".partial"
    }


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(1 << 22):
            digest.update(data)
    return digest.hexdigest()
