"""A command ends at once, after all its output, its threads and its exit handlers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

AT_THE_END = """
import atexit, threading
atexit.register(print, "the end")
main_ends = threading.main_thread().join
threading.Thread(target=lambda: (main_ends(), print("a thread"))).start()
from resumerge.__main__ import main
main()
"""


def python(*words: object, **how: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, **how)  # type: ignore[call-overload,no-any-return]


def test_all_output_comes_through_a_pipe() -> None:
    done = python("-m", "resumerge", "methods", "--json")
    assert done.returncode == 0
    assert len(done.stdout) > 10_000
    assert json.loads(done.stdout)


def test_threads_are_waited_for_and_the_end_is_done() -> None:
    done = python("-c", AT_THE_END, "--version")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1:] == ["a thread", "the end"]


@pytest.mark.parametrize(("words", "code"), [(["nonsense"], 2), (["status", "nothing"], 2)])
def test_the_exit_code_and_the_reason_are_there(
    words: list[str], code: int, tmp_path: Path
) -> None:
    done = python("-m", "resumerge", *words, cwd=tmp_path)
    assert done.returncode == code
    assert words[-1] in done.stderr


def test_output_that_cannot_be_written_is_no_success() -> None:
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-m", "resumerge", "methods"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 75
    assert "full" in done.stderr


def test_a_program_that_uses_the_package_keeps_its_settings() -> None:
    program = "import gc; before = gc.get_threshold(); import resumerge.api; "
    assert python("-c", program + "assert gc.get_threshold() == before").returncode == 0
