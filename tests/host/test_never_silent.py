"""Promise: a notebook's cell, a pseudo-terminal, gets plain lines at most ten seconds apart."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tiny_models import write_family
from waiting import HANGS_SECONDS

IPYTHON = {"JPY_PARENT_PID": "7", "TERM": "xterm-color", "CLICOLOR": "1", "FORCE_COLOR": "1"}
"""What the commands of a cell find; FORCE_COLOR is the kernel's wish, not the user's."""

SLOW = """
import os, signal, time
from resumerge.engine.lifecycle.attempt import Attempt
from resumerge.engine.opening import pinned_plan as pinned
opened, finish = pinned.open_sources, Attempt._finish
def slow(*words):
    time.sleep({least})
    while not os.path.exists({said!r}):
        time.sleep(0.05)
    return opened(*words)
def stopped(self):
    os.kill(os.getpid(), signal.SIGSTOP)
    return finish(self)
pinned.open_sources, Attempt._finish = slow, stopped
"""
"""Planning takes until something is said of it, and then the worker can say nothing at all."""

PLANNING = b"opening the models and planning: "
STOPPED = re.compile(rb"The worker \(pid (\d+)\) is alive, but has made no progress")


@dataclass(frozen=True)
class Said:
    code: int
    text: bytes
    silence: float


def on_a_terminal(
    folder: Path, *words: object, before: str = "", said: Path | None = None, **env: str
) -> Said:
    """Run a command as IPython's ``!`` does: on a pseudo-terminal of its own.

    Args:
        folder: the working folder.
        words: those of the command.
        before: Python to run in the process first.
        said: a file that is created when the output mentions planning. A worker without
            progress, according to the output, gets SIGCONT.
        env: variables to set.
    """
    program = f"{before}\nfrom resumerge.cli.main import main\nmain()"
    ours, theirs = pty.openpty()
    inherited = {k: v for k, v in os.environ.items() if k not in IPYTHON}
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)],
        cwd=folder,
        env={**inherited, "TERM": "xterm-256color", "COLUMNS": "120", **env},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    text, silence, last = b"", 0.0, time.monotonic()
    try:
        while time.monotonic() - last < HANGS_SECONDS:
            if said is not None and PLANNING in text:
                said.touch()
            if stopped := STOPPED.search(text):
                with suppress(ProcessLookupError):
                    os.kill(int(stopped[1]), signal.SIGCONT)
            if not select.select([ours], [], [], 1)[0]:
                continue
            try:
                piece = os.read(ours, 4096)
            except OSError:  # nobody has the other end
                break
            silence, last = max(silence, time.monotonic() - last), time.monotonic()
            text += piece
        return Said(process.wait(), text.replace(b"\r\n", b"\n"), silence)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_family(tmp_path_factory.mktemp("cells"))
    models = "[{model: math, parameters: {weight: 1}}, {model: code, parameters: {weight: 1}}]"
    (folder / "merge.yaml").write_text(f"merge_method: linear\nmodels: {models}\n")
    return folder


def controls(text: bytes) -> list[bytes]:
    return re.findall(rb"[\x00-\x09\x0b-\x1f\x7f][^\n]{0,8}", text)


def slow(tmp_path: Path, soak: bool) -> dict[str, Any]:
    """Return arguments of `on_a_terminal`; with --soak, for a plan that takes over ten seconds."""
    said = tmp_path / "said"
    return {"before": SLOW.format(least=11 if soak else 0, said=str(said)), "said": said}


def test_a_slow_run_in_a_cell_is_never_silent_for_ten_seconds(
    place: Path, tmp_path: Path, soak: bool
) -> None:
    words = ["run", "merge.yaml", tmp_path / "out", "--state-dir", tmp_path / "state"]
    said = on_a_terminal(place, *words, **slow(tmp_path, soak), **IPYTHON)
    assert said.code == 0, said.text
    assert controls(said.text) == []
    assert said.silence < 10 or not soak, "on a quiet machine"
    assert b"opening the models" in said.text
    assert STOPPED.search(said.text)
    assert b"Done in" in said.text


def test_other_commands_print_no_codes_there_either(place: Path, tmp_path: Path) -> None:
    words = ["run", "merge.yaml", tmp_path / "out", "--state-dir", tmp_path / "state"]
    assert on_a_terminal(place, *words, "--restart", **IPYTHON).code == 0
    for words in (["status"], ["status", tmp_path / "out", "--watch"], ["verify"]):
        said = on_a_terminal(place, *words, "--state-dir", tmp_path / "state", **IPYTHON)
        assert (said.code, controls(said.text)) == (0, [])
        assert str(tmp_path / "out").encode() in said.text


def test_a_slow_plan_is_not_silent_either(place: Path, tmp_path: Path, soak: bool) -> None:
    said = on_a_terminal(place, "plan", "merge.yaml", **slow(tmp_path, soak), **IPYTHON)
    assert (said.code, controls(said.text)) == (0, [])
    assert said.silence < 10 or not soak, "on a quiet machine"
    assert PLANNING in said.text


@pytest.mark.parametrize(
    ("style", "env", "moves"),
    [
        ("auto", {}, True),
        ("bar", IPYTHON, True),
        ("lines", {}, False),
        ("none", {}, False),
        ("auto", {"TERM": "dumb"}, False),
    ],
)
def test_styles(style: str, env: dict[str, str], moves: bool, place: Path, tmp_path: Path) -> None:
    words = ["run", "merge.yaml", tmp_path / "out", "--state-dir", tmp_path / "state"]
    said = on_a_terminal(place, *words, "--progress", style, **env)
    assert said.code == 0, said.text
    assert bool(controls(said.text)) == moves, said.text
    assert (b"\x1b[2K" in said.text) == moves, "a bar is drawn over the one before"
    assert (said.text == b"") == (style == "none")


def test_json_is_a_style(place: Path, tmp_path: Path) -> None:
    words = ["run", "merge.yaml", tmp_path / "out", "--state-dir", tmp_path / "state"]
    said = on_a_terminal(place, *words, "--progress", "json", "--no-supervise")
    kinds = [json.loads(line)["kind"] for line in said.text.splitlines()]
    kinds = [kind for kind in kinds if kind != "alive"]  # every few seconds of a slow plan
    assert (kinds[0], kinds[-1]) == ("planned", "done")
    refused = on_a_terminal(place, *words, "--json", "--progress", "bar")
    assert refused.code == 2
