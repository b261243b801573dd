"""Promise: a run is not resumed with other code in a module that the user's method imports."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from command_line import BIN, ENV
from tiny_models import LLAMA, write_family

METHOD = """\
import helper
from resumerge.methods import Method

class Helped(Method):
    name, summary, fewest = "helped", "the mean, by a helper", 2

    def block(self, tensor, inputs, block, statistics):
        return helper.mean(tensor, inputs)
"""
HELPER = """\
import os, signal

def mean(tensor, inputs):
    if "norm" in tensor.name and "STOP" in os.environ:
        os.kill(os.getpid(), signal.SIGTERM)
    return sum(inputs) / FACTOR
"""
RECIPE = "merge_method: helped\nmodels: [{model: math}, {model: code}]\n"


def called(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**ENV, "RESUMERGE_METHODS": "mine.py", "PYTHONPATH": str(folder), **variables}
    words = (str(BIN / "resumerge"), *words, "--state-dir", "state", "--no-supervise")
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.needs("torch")
def test_the_run_is_refused_and_goes_on_with_the_old_code(tmp_path: Path) -> None:
    write_family(tmp_path, LLAMA)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    (tmp_path / "mine.py").write_text(METHOD)
    (tmp_path / "helper.py").write_text(HELPER.replace("FACTOR", "2"))
    stopped = called(tmp_path, "run", "recipe.yaml", "out", "--threads", "1", STOP="1")
    assert stopped.returncode == 143, stopped.stderr
    (tmp_path / "helper.py").write_text(HELPER.replace("FACTOR", "4"))
    refused = called(tmp_path, "resume", "out")
    assert refused.returncode == 2
    assert "The program has changed since the run was created" in refused.stderr
    assert "helper, sha256 " in refused.stderr
    (tmp_path / "helper.py").write_text(HELPER.replace("FACTOR", "2"))
    assert called(tmp_path, "resume", "out").returncode == 0
