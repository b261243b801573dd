"""Promise: pip installs the package so that type checkers follow it, or reports what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fresh_venv import FreshVenv, copy_checkout
from tiny_models import write_family

SCRIPT = """\
import resumerge
from resumerge import InputError, Interrupted, Resumable

recipe = {
    "merge_method": "linear",
    "models": [{"model": "math"}, {"model": "code"}],
    "parameters": {"weight": 0.5},
}
try:
    result = resumerge.run(recipe, "merged", memory="2GB", threads=2)
    print(result.output, resumerge.status()["runs"][0]["state"])
except (Interrupted, Resumable) as stopped:
    raise SystemExit(stopped.exit_code)
except InputError as error:
    print(error.problems[0].what)
"""

MISTAKE = 'resumerge.plan(recipe, threads="two")\n'

# Followed is what the script sees of the package; all of it, and torch, would take a minute.
MYPY = """\
[mypy]
strict = True
follow_imports = skip
[mypy-resumerge,resumerge.api.*,resumerge.errors,resumerge.options.*,resumerge.engine.reporter]
follow_imports = silent
"""


@pytest.mark.needs("torch")
@pytest.mark.parametrize("words", [["."], ["--editable", "."]])
def test_a_script_of_a_user_is_type_checked_and_runs(words: list[str], tmp_path: Path) -> None:
    fresh = FreshVenv(tmp_path / "venv")
    (tmp_path / "checkout").mkdir()
    fresh.pip("install", *words, cwd=copy_checkout(tmp_path / "checkout"))
    user = write_family(tmp_path / "user")
    (user / "script.py").write_text(SCRIPT)
    (user / "mistaken.py").write_text(SCRIPT + MISTAKE)
    (user / "mypy.ini").write_text(MYPY)
    place = ["--python-executable", str(fresh.python), "--cache-dir", os.devnull]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *place, "script.py", "mistaken.py"],
        cwd=user,
        env=fresh.environment,
        capture_output=True,
        text=True,
    )
    [found, summary] = checked.stdout.splitlines()
    assert found.startswith('mistaken.py:16: error: Argument "threads" to "plan"'), checked.stdout
    assert summary.startswith("Found 1 error")
    ran = fresh.run("script.py", cwd=user)
    assert ran.stdout == f"{user / 'merged'} done\n", ran.stderr


@pytest.mark.parametrize("words", [["."], ["--editable", "."]])
def test_without_a_compiler_pip_says_what_to_install(words: list[str], tmp_path: Path) -> None:
    fresh = FreshVenv(tmp_path / "venv")
    fresh.environment["CC"] = "/there/is/none"
    (tmp_path / "checkout").mkdir()
    done = fresh.run("-m", "pip", "install", *words, cwd=copy_checkout(tmp_path / "checkout"))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "apt install gcc python3-dev" in done.stderr
    assert len(done.stderr.splitlines()) < 40
