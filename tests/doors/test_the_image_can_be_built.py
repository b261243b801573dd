"""Promise: the Dockerfile has no mistake that hadolint finds, and the files that it copies exist.

Docker itself is not needed. The Dockerfile's command, `pip install` of without-torch.txt and of the
package, is what `make demo` does.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "doors" / "Dockerfile"

ALLOWED = ("DL3008",)  # Debian keeps one version of each package: there is none to pin


def instructions() -> list[str]:
    text = re.sub(r"\\\n\s*", "", DOCKERFILE.read_text(encoding="utf-8"))
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="hadolint is installed for x86-64 only")
def test_hadolint_finds_nothing() -> None:
    ignored = [word for rule in ALLOWED for word in ("--ignore", rule)]
    program = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        [program, "--no-color", *ignored, DOCKERFILE], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_what_it_copies_is_there_and_reaches_the_build() -> None:
    copied = [line.split()[1:-1] for line in instructions() if re.match(r"COPY (?!--)", line)]
    names = {name.removeprefix("./") for names in copied for name in names}
    assert {"pyproject.toml", "resumerge"} <= names
    assert [name for name in sorted(names) if not (ROOT / name).exists()] == []
    let_in = (ROOT / "doors" / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert let_in[0] == "*"
    assert {line.removeprefix("!") for line in let_in if line.startswith("!")} == names


def test_it_runs_as_a_user_without_rights_and_has_no_compiler() -> None:
    last = [line for line in instructions() if re.match("FROM|USER|ENTRYPOINT", line)][-3:]
    assert [line.split()[0] for line in last] == ["FROM", "USER", "ENTRYPOINT"]
    assert last[1] == "USER 1000:1000"
    final = instructions()[instructions().index(last[0]) :]
    assert not [line for line in final if "gcc" in line]
