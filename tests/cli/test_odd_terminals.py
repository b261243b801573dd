"""A reader that closes its pipe, a terminal without Unicode or a name with markup: no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import DISK_FULL, LINEAR, resumerge
from merging import shards_of

FOLDER = "ö [/b] :smile:\n日本"
RECIPE = "[red] ö.yaml"
NO_UTF8 = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def without_a_reader(stream: str, *words: object, cwd: Path) -> tuple[int, str]:
    """Return the exit code of a command, one output of which nobody reads, and the other output."""
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen(
        [sys.executable, "-m", "resumerge", *map(str, words)],
        cwd=cwd,
        stdout=writing if stream == "stdout" else subprocess.PIPE,
        stderr=writing if stream == "stderr" else subprocess.PIPE,
        text=True,
    )
    os.close(writing)
    said = process.communicate()
    return process.returncode, said[0] or said[1] or ""


@pytest.mark.parametrize(
    "words", ["status", "status --json", "plan linear.yaml", "methods --json", "verify done"]
)
def test_no_reader_is_no_error(words: str, place: Path) -> None:
    code, says = without_a_reader("stdout", *words.split(), cwd=place)
    assert says == ""
    assert code == 0


@pytest.mark.parametrize(("stream", "option"), [("stdout", "--json"), ("stderr", "--offline")])
def test_a_merge_goes_on_without_a_reader(
    stream: str, option: str, place: Path, tmp_path: Path
) -> None:
    out, state = tmp_path / "out", tmp_path / "state"
    words = ["run", "linear.yaml", out, "--state-dir", state, "--threads", 100_000, option]
    code, says = without_a_reader(stream, *words, cwd=place)
    assert code == 0, says
    assert shards_of(out) == shards_of(place / "done")


def test_a_full_disk_below_the_output_is_told(place: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "resumerge", "methods"],
            cwd=place,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 75
    assert "Traceback" not in done.stderr
    assert "disk is full" in done.stderr


@pytest.mark.parametrize("environment", [{}, NO_UTF8], ids=["UTF-8", "ASCII"])
def test_names_full_of_markup_and_letters(
    environment: dict[str, str], place: Path, tmp_path: Path
) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir(parents=True)
    for name in ("math", "code"):
        (folder / name).symlink_to(place / name)
    (folder / RECIPE).write_text(LINEAR)
    for words in (
        ["run", RECIPE, "out"],
        ["status"],
        ["verify"],
        ["plan", RECIPE],
        ["resume", "--threads", 100_000],
    ):
        done = resumerge(*words, cwd=folder, **environment)
        assert done.returncode in ((0, 2) if environment else (0,)), done.stderr
        assert "Traceback" not in done.stderr
        assert "😄" not in done.stdout + done.stderr
    missing = resumerge("status", RECIPE, cwd=folder, **environment)
    assert missing.returncode == 2, missing.stderr


@pytest.mark.parametrize(
    "environment",
    [
        {"LC_ALL": "C"},
        {"PYTHONIOENCODING": "latin-1"},
        {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
    ],
    ids=["C", "latin-1", "ASCII"],
)
def test_the_command_that_resumes_can_be_pasted(
    environment: dict[str, str], place: Path, tmp_path: Path
) -> None:
    folder = tmp_path / f"it's {FOLDER}"
    folder.mkdir(parents=True)
    for name in ("math", "code"):
        (folder / name).symlink_to(place / name)
    (folder / RECIPE).write_text(LINEAR)
    stopped = resumerge("run", RECIPE, "out", cwd=folder, before=DISK_FULL, **environment)
    assert stopped.returncode == 75, stopped.stderr
    last = stopped.stderr.splitlines()[-1]
    assert last.startswith("resumerge resume ")
    shell = f'resumerge() {{ {sys.executable} -m resumerge "$@"; }}; {last}'
    again = subprocess.run(["bash", "-c", shell], cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert shards_of(folder / "out") == shards_of(place / "done")


def test_the_home_of_nobody(place: Path) -> None:
    (place / "nobody.yaml").write_text(LINEAR.replace("math", "~nobody-of-that-name/model"))
    done = resumerge("run", "nobody.yaml", "out", cwd=place)
    assert done.returncode == 2, done.stderr
    assert "folder does not exist" in done.stderr


@pytest.mark.parametrize("command", ["run", "plan"])
def test_what_could_drive_the_terminal_is_spelled_out(
    command: str, place: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "sly.yaml"
    recipe.write_text(
        '"mer\\e[2Jge": 1\nmodels: [{model: "/gone\\e]0;x\\a\\n  do: believe me"}]\n'
        "merge_method: linear\nparameters: {weight: 1}\n"
    )
    words = [sys.executable, "-m", "resumerge", command, recipe, tmp_path / "out"]
    for text in (recipe.read_text(), recipe.read_text().split("\n", 1)[1]):
        recipe.write_text(text)
        done = subprocess.run(words, cwd=place, capture_output=True, text=True)
        assert done.returncode == 2, done.stderr
        assert "\\x1b" in done.stderr
        shown = done.stdout + done.stderr
        assert all(line.isprintable() for line in shown.split("\n")), shown
        assert shown.count("\n  do: ") == 1, shown
