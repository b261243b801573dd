"""Promise: a search that is killed anywhere goes on with the same study, and suggests the same."""

from __future__ import annotations

import os
import random
import select
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from searched import (
    command,
    evaluation,
    files_of,
    history,
    place_of,
    search,
)
from waiting import HANGS_SECONDS

KILLED = """
import os, signal, sys
seen = 0
def event(name, arguments):
    global seen
    if name in ("open", "os.rename", "os.remove", "os.rmdir", "subprocess.Popen"):
        seen += 1
        if seen == {at}:
            os.kill(os.getpid(), signal.SIGKILL)
import atexit, resumerge.cli.search
sys.addaudithook(event)
atexit.register(lambda: print("EVENTS", seen, file=sys.stderr))
"""
"""Kills the process at an operation on files or a start of a process, or counts them."""

TRIALS = 5


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return place_of(tmp_path_factory.mktemp("killed"))


def show(place: Path, out: str, **asked: Any) -> list[Any]:
    """Return the history of a complete search."""
    (place / f"{out}.state").rename(place / "state")
    try:
        return history(search(place, out, trials=TRIALS, **asked))
    finally:
        (place / "state").rename(place / f"{out}.state")


@pytest.mark.parametrize(
    "batch", [(), ("--batch", 3, "--jobs", 2)], ids=["one by one", "in batches"]
)
def test_at_random_points(batch: tuple[Any, ...], place: Path, soak: bool) -> None:
    words = ("--trials", TRIALS, "--seed", 7, *batch)
    calm = command(place, *words, out="calm", before=KILLED.format(at=-1))
    assert calm.returncode == 0, calm.stderr
    events = int(calm.stderr.rpartition("EVENTS")[2])
    draw = random.Random(5)
    kills = 0
    while kills < (10 if soak else 3):
        before = KILLED.format(at=draw.randrange(1, events // 2))
        killed = command(place, *words, out="out", before=before)
        if killed.returncode == 0:  # it was done before
            shutil.rmtree(place / "out")
            shutil.rmtree(place / "out.state")
            continue
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        kills += 1
    done = command(place, *words, out="out")
    assert done.returncode == 0, done.stderr
    assert show(place, "out", seed=7) == show(place, "calm", seed=7)
    calmly, killed_files = files_of(place / "calm"), files_of(place / "out")
    assert killed_files.keys() == calmly.keys()
    assert {n for n in calmly if calmly[n] != killed_files[n]} <= {
        name for name in calmly if name.endswith("README.md")
    }
    for out in ("out", "out.state", "calm", "calm.state"):
        shutil.rmtree(place / out)


KILLED_BETWEEN = """
import os, signal
import optuna
{where}
"""


@pytest.mark.parametrize(
    "where",
    [
        # After one of three parameters was suggested.
        "whole = optuna.trial.Trial._suggest\n"
        "def suggest(self, name, distribution):\n"
        "    value = whole(self, name, distribution)\n"
        "    if self.number == 2 and 'models[0]' in name: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return value\n"
        "optuna.trial.Trial._suggest = suggest\n",
        # After the evaluation, before its value is in the study.
        "whole = optuna.Study.tell\n"
        "def tell(self, trial, *given, **named):\n"
        "    if trial.number == 2: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return whole(self, trial, *given, **named)\n"
        "optuna.Study.tell = tell\n",
    ],
    ids=["suggesting", "telling"],
)
def test_in_the_middle_of_a_trial(where: str, place: Path, tmp_path: Path) -> None:
    words = ("--trials", 3, "--seed", 7)
    killed = command(place, *words, out="middle", before=KILLED_BETWEEN.format(where=where))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = command(place, *words, out="middle")
    assert done.returncode == 0, done.stderr
    assert "trial 2:" in done.stderr and "trial 1:" not in done.stderr
    search(place, "calmly", trials=3, seed=7)
    suggested = [
        (place / out / "trials" / f"{number:04}" / "recipe.yaml").read_text()
        for out in ("middle", "calmly")
        for number in range(3)
    ]
    assert suggested[:3] == suggested[3:]
    for out in ("middle", "middle.state", "calmly", "state"):
        shutil.rmtree(place / out)


def test_a_command_that_outlives_its_search_is_killed(tmp_path: Path) -> None:
    place = place_of(
        tmp_path,
        score="import os, pathlib, signal, sys, time\n"
        "if not pathlib.Path('pid').exists():\n"
        "    pathlib.Path('pid').write_text(str(os.getpid()))\n"
        "    mine = pathlib.Path(sys.argv[1]).with_name('evaluation.pid')\n"
        "    while not mine.exists() or not mine.read_text(): time.sleep(0.01)\n"
        "    os.kill(os.getppid(), signal.SIGKILL)\n"
        "    time.sleep(600)\n"
        "print(1)\n",
    )
    words = ("--trials", 1, "--evaluate", f"exec {evaluation()}")
    killed = command(place, *words)
    assert killed.returncode == -signal.SIGKILL
    # It is no child of this process: whoever collects it may do so at any time.
    outliving = os.pidfd_open(int((place / "pid").read_text()))
    try:
        assert not select.select([outliving], [], [], 0)[0], "it has ended with its search"
        done = command(place, *words)
        assert done.returncode == 0, done.stderr
        assert select.select([outliving], [], [], HANGS_SECONDS)[0], "it still runs"
    finally:
        os.close(outliving)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_the_last_line_goes_on(signum: signal.Signals, tmp_path: Path) -> None:
    place = place_of(
        tmp_path,
        score="import os, pathlib, sys, time\n"
        "if sys.argv[1].endswith('0002/model') and not pathlib.Path('sent').exists():\n"
        "    pathlib.Path('sent').touch()\n"
        f"    os.kill(os.getppid(), {int(signum)})\n"
        "    time.sleep(600)\n"
        "print(sys.argv[1][-8])\n",
    )
    stopped = command(place, "--trials", 4, "--evaluate", f"exec {evaluation()}")
    assert stopped.returncode == 128 + signum, stopped.stderr
    *_, heading, last = stopped.stderr.splitlines()
    assert heading == "To resume:"
    assert last.startswith("resumerge search space.yaml out") and "--chdir" in last
    done = command(place, "--trials", 4, "--evaluate", f"exec {evaluation()}")
    assert done.returncode == 0, done.stderr
    assert "trial 2:" in done.stderr and "trial 1:" not in done.stderr
