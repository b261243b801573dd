"""mergekit 0.1.5's own commands, on many recipes in one process, and comparisons of weights."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

_BESIDE = Path(sys.executable).with_name("mergekit-yaml")
MERGEKIT = str(_BESIDE) if _BESIDE.exists() else shutil.which("mergekit-yaml")
SERVER = Path(__file__).with_name("mergekit_server.py")

RUN_ALL = """
import json, runpy, sys
script, commands = sys.argv[1], json.loads(sys.argv[2])
for words in commands:
    sys.argv = [script, *words, "--no-write-model-card", "--random-seed", "1"]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise
"""


def run_mergekit(
    folder: Path, recipes: Mapping[str, str], *, option: str = "--no-copy-tokenizer"
) -> None:
    """Merge all recipes, in one process, since its start takes longer than a merge.

    The output of a recipe is ``folder/NAME.mergekit``.
    """
    _run_all("mergekit-yaml", folder, recipes, "{}.yaml", "{}.mergekit", option)


def run_mergekit_pytorch(folder: Path, recipes: Mapping[str, str], *options: str) -> None:
    """Merge recipes of checkpoints with mergekit-pytorch: with ``-u``, ``-i`` or neither."""
    _run_all("mergekit-pytorch", folder, recipes, "{}.yaml", "{}.mergekit", *options)


def run_mergekit_multi(folder: Path, recipes: Mapping[str, str]) -> None:
    """Merge recipes of several documents; stages are written to ``folder/NAME.stages``."""
    places = ("--out-path", "{}.mergekit", "--intermediate-dir", "{}.stages")
    _run_all("mergekit-multi", folder, recipes, "{}.yaml", *places)


def _run_all(script: str, folder: Path, recipes: Mapping[str, str], *words: str) -> None:
    """Run a command for each recipe, with its name in place of ``{}``."""
    assert MERGEKIT is not None
    for name, text in recipes.items():
        (folder / f"{name}.yaml").write_text(text)
    command = str(Path(MERGEKIT).with_name(script))
    commands = [[word.format(name) for word in words] for name in recipes]
    run_beside_mergekit(folder, RUN_ALL, command, json.dumps(commands))


def run_beside_mergekit(
    folder: Path, program: str, *words: str, imports: Sequence[str] = ()
) -> str:
    """Run Python code in a folder, in a process that has mergekit, and return its stdout.

    Args:
        folder: the working folder.
        program: the code.
        words: its arguments.
        imports: modules that it needs, which are imported once for all programs.

    Raises:
        subprocess.CalledProcessError: the program failed.
    """
    with tempfile.TemporaryDirectory() as place:
        stdout, stderr = Path(place) / "stdout", Path(place) / "stderr"
        job = {
            "folder": str(folder),
            "program": program,
            "words": words,
            "imports": imports,
            "environment": dict(os.environ),
            "stdout": str(stdout),
            "stderr": str(stderr),
        }
        server = _server()
        assert server.stdin is not None and server.stdout is not None
        print(json.dumps(job), file=server.stdin, flush=True)
        code = int(server.stdout.readline())
        if code:
            told = stdout.read_text(), stderr.read_text()
            raise subprocess.CalledProcessError(code, [program, *words], *told)
        return stdout.read_text()


@cache
def _server() -> subprocess.Popen[str]:
    """Start the process that imports mergekit, once: that takes longer than most programs.

    The process ends when its stdin is closed.
    """
    assert MERGEKIT is not None
    python = re.match(rb"#!(\S+)", Path(MERGEKIT).read_bytes())
    interpreter = python[1].decode() if python else sys.executable
    return subprocess.Popen(
        [interpreter, "-c", SERVER.read_text()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def assert_same_weights(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> None:
    """Compare float32 weights: within 1e-5 of each element, or 1e-6 of the tensor's largest."""
    assert {tensor.dtype for tensor in theirs.values()} <= {torch.float32}
    assert_near(ours, theirs, 1e-6)


def assert_near(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], near: float) -> None:
    """Compare dtypes, and weights within 1e-5 of the element or `near` of the tensor's largest."""
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        assert ours[name].dtype == expected.dtype, name
        close = torch.isclose(ours[name], expected, 1e-5, near * float(expected.abs().max()))
        assert close.all(), name
