"""mergekit 0.1.5's own command, on many recipes in one process, and its weights beside ours."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

_BESIDE = Path(sys.executable).with_name("mergekit-yaml")
MERGEKIT = str(_BESIDE) if _BESIDE.exists() else shutil.which("mergekit-yaml")

_RUN_ALL = """
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
    """Merge each recipe into ``folder/NAME.mergekit``; starting takes longer than a merge."""
    _run_all("mergekit-yaml", folder, recipes, "{}.yaml", "{}.mergekit", option)


def run_mergekit_pytorch(folder: Path, recipes: Mapping[str, str], *options: str) -> None:
    """The same for checkpoints, with mergekit-pytorch: ``-u``, ``-i`` or neither."""
    _run_all("mergekit-pytorch", folder, recipes, "{}.yaml", "{}.mergekit", *options)


def run_mergekit_multi(folder: Path, recipes: Mapping[str, str]) -> None:
    """Recipes of several documents; stages go to ``folder/NAME.stages``."""
    places = ("--out-path", "{}.mergekit", "--intermediate-dir", "{}.stages")
    _run_all("mergekit-multi", folder, recipes, "{}.yaml", *places)


def _run_all(script: str, folder: Path, recipes: Mapping[str, str], *words: str) -> None:
    """Run a command for each recipe, with its name in place of ``{}``."""
    assert MERGEKIT is not None
    for name, text in recipes.items():
        (folder / f"{name}.yaml").write_text(text)
    command = str(Path(MERGEKIT).with_name(script))
    commands = [[word.format(name) for word in words] for name in recipes]
    run_beside_mergekit(folder, _RUN_ALL, command, json.dumps(commands))


def run_beside_mergekit(folder: Path, program: str, *words: str) -> str:
    """Run Python code in a folder, by an interpreter that has mergekit; returns its stdout."""
    assert MERGEKIT is not None
    python = re.match(rb"#!(\S+)", Path(MERGEKIT).read_bytes())
    interpreter = python[1].decode() if python else sys.executable
    done = subprocess.run(
        [interpreter, "-c", program, *words],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def assert_same_weights(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> None:
    """In float32, within 1e-5 of each element, or 1e-6 of the tensor's largest."""
    assert {tensor.dtype for tensor in theirs.values()} <= {torch.float32}
    assert_near(ours, theirs, 1e-6)


def assert_near(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], near: float) -> None:
    """In the same dtypes, within 1e-5 of each element, or `near` of the tensor's largest."""
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        assert ours[name].dtype == expected.dtype, name
        close = torch.isclose(ours[name], expected, 1e-5, near * float(expected.abs().max()))
        assert close.all(), name
