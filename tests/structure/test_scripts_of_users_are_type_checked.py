"""Promise: type checkers of other projects see the functions and the types of their options."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """\
import resumerge
from resumerge import InputError, Interrupted, Resumable

try:
    result = resumerge.run("merge.yaml", "merged", memory="2GB", threads=2)
    print(result.output, resumerge.status("merged")["runs"][0]["state"])
except (Interrupted, Resumable) as stopped:
    raise SystemExit(stopped.exit_code)
except InputError as error:
    print(error.problems[0].what)
resumerge.plan({"merge_method": "linear"}, threads="two")
"""


def test_a_script_beside_the_installed_package(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    words = ["--strict", "--cache-dir", os.devnull, "script.py"]
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MYPYPATH")}
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    [found, summary] = checked.stdout.splitlines()
    assert found.startswith('script.py:11: error: Argument "threads" to "plan"'), checked.stdout
    assert summary.startswith("Found 1 error")
