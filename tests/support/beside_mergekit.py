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
    words = {name: [f"{name}.yaml", f"{name}.mergekit", option] for name in recipes}
    _run_all("mergekit-yaml", folder, recipes, words)


def run_mergekit_pytorch(folder: Path, recipes: Mapping[str, str], option: str) -> None:
    """The same for checkpoints, with mergekit-pytorch: ``-u`` or ``-i``."""
    words = {name: [f"{name}.yaml", f"{name}.mergekit", option] for name in recipes}
    _run_all("mergekit-pytorch", folder, recipes, words)


def run_mergekit_multi(folder: Path, recipes: Mapping[str, str], *options: str) -> None:
    """Recipes of several documents; stages go to ``folder/NAME.stages``."""
    words = {
        name: [
            *(f"{name}.yaml", "--out-path", f"{name}.mergekit"),
            *("--intermediate-dir", f"{name}.stages", *options),
        ]
        for name in recipes
    }
    _run_all("mergekit-multi", folder, recipes, words)


def _run_all(
    script: str, folder: Path, recipes: Mapping[str, str], words: Mapping[str, list[str]]
) -> None:
    assert MERGEKIT is not None
    command = str(Path(MERGEKIT).with_name(script))
    for name, text in recipes.items():
        (folder / f"{name}.yaml").write_text(text)
    run_beside_mergekit(folder, _RUN_ALL, command, json.dumps([*words.values()]))


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
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        assert ours[name].dtype == expected.dtype == torch.float32
        close = torch.isclose(ours[name], expected, 1e-5, 1e-6 * float(expected.abs().max()))
        assert close.all(), name
