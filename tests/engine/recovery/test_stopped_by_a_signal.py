"""Promise: Ctrl-C and SIGTERM stop a run within two seconds, and it says how to go on.

How long it takes is measured with --soak, on a machine that has nothing else to do.
"""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import (
    COMMITTING,
    ENV,
    WORDS,
    call_line,
    calm_merge,
    committed,
    has_mapped,
    hashes,
    held,
    listens,
    start,
    state_of,
)
from crashing import Bench, Merge
from slow_average import MEAN
from slow_average import RECIPE as BY_TORCH
from waiting import wait_until

SIGNALS = [signal.SIGINT, signal.SIGTERM]


@pytest.fixture(scope="module")
def small_models(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return calm_merge(tmp_path_factory.mktemp("small merge"), models)


@pytest.fixture(scope="module")
def slow_models(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return calm_merge(tmp_path_factory.mktemp("slow merge"), models, BY_TORCH)


@pytest.fixture
def small(small_models: Path) -> Path:
    """Return a working folder without the files of earlier tests."""
    return cleared(small_models)


@pytest.fixture
def slow(slow_models: Path) -> Path:
    """Return a working folder of a slow merge, without the files of earlier tests."""
    return cleared(slow_models)


def cleared(folder: Path) -> Path:
    for name in ("merged", "ledgers"):
        shutil.rmtree(folder / name, ignore_errors=True)
    return folder


def stop(process: subprocess.Popen[str], signum: int, quiet: bool) -> str:
    """Send a signal, check how the process ends, and return the last line on stderr.

    Args:
        quiet: whether the machine has nothing else to do.
    """
    sent = time.monotonic()
    process.send_signal(signum)
    _, stderr = process.communicate()
    took = time.monotonic() - sent
    assert process.returncode == 128 + signum, stderr
    assert took < 2.0 or not quiet
    assert "Traceback" not in stderr
    return stderr.splitlines()[-1]


def test_stopped_again_and_again_while_it_merges(
    many_blocks: Path, tmp_path: Path, soak: bool
) -> None:
    """Every stop commits the computed blocks, and the printed command continues from there."""
    folder = calm_merge(tmp_path, many_blocks, MEAN)
    ledgers = folder / "ledgers"
    words = WORDS
    for number in range(3):
        before = committed(ledgers)
        process = held(words, folder, COMMITTING)
        wait_until(lambda before=before: committed(ledgers) > before, process)
        line = stop(process, SIGNALS[number % 2], soak)
        assert line.startswith("resumerge resume merged-")
        assert state_of("merged", ledgers, folder) == "interrupted"
        assert committed(ledgers) > before
        words = shlex.split(line)[1:]
    done = call_line(line, folder)
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    assert hashes(folder / "merged") == hashes(folder / "calm" / "merged")
    assert state_of("merged", ledgers, folder) == "done"
    size = sum(path.stat().st_size for path in (folder / "merged").glob("*.safetensors"))
    assert committed(ledgers) < size, "no block was committed twice"


def test_stopped_at_every_operation(
    bench: Bench, reference: dict[str, bytes], operations: int, soak: bool
) -> None:
    """Computed blocks are committed, so that no later attempt writes them again."""
    stopped = []

    def check(merge: Merge, at: int) -> None:
        ended = merge.run(at, "stop")
        assert ended.code in (128 + signal.SIGTERM, 0), ended.stderr
        stopped.append(ended.code != 0)
        merge.assert_finals_are(reference)
        if ended.code and merge.runs() and merge.query("SELECT 1 FROM attempts"):
            assert merge.query("SELECT state FROM run")[0]["state"] == "interrupted"
        merge.finish()
        merge.assert_done(reference)
        assert merge.rewritten() == 0

    bench.each(range(1, operations + 1, 1 if soak else 10), check)
    print(f"stopped at {sum(stopped)} operations")
    assert sum(stopped) > 0.8 * len(stopped)


@pytest.mark.cold_start
@pytest.mark.parametrize(
    "signum, moment",
    [
        (signal.SIGINT, lambda folder, process: listens(process)),
        (signal.SIGTERM, lambda folder, process: has_mapped(process, "_xxhash")),
        (signal.SIGINT, lambda folder, process: (folder / "ledgers").exists()),
        (signal.SIGTERM, lambda folder, process: has_mapped(process, "libtorch")),
    ],
    ids=[
        "it just listens",
        "the engine is imported, SIGTERM",
        "it plans",
        "torch is imported, SIGTERM",
    ],
)
def test_before_it_merges(
    slow: Path,
    signum: int,
    moment: Callable[[Path, subprocess.Popen[str]], bool],
    soak: bool,
) -> None:
    folder = slow
    process = held(WORDS, folder, 0)
    wait_until(lambda: moment(folder, process), process, every=0.001)
    line = stop(process, signum, soak)
    done = call_line(line, folder)
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    assert hashes(folder / "merged") == hashes(folder / "calm" / "merged")


@pytest.mark.parametrize("signum", SIGNALS)
def test_while_it_reads_the_recipe(
    small: Path, signum: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, soak: bool
) -> None:
    """A file of merge methods takes long to be imported, and planning waits for it."""
    begun = tmp_path / "begun"
    (tmp_path / "sleepy.py").write_text(
        f"import time\nopen({str(begun)!r}, 'w').close()\ntime.sleep(1000)\n"
    )
    monkeypatch.setitem(ENV, "RESUMERGE_METHODS", str(tmp_path / "sleepy.py"))
    (small / "sleepy.yaml").write_text("merge_method: sleepy\nmodels: [{model: base}]\n")
    process = start(["run", "sleepy.yaml", "merged", "--state-dir", "ledgers"], small)
    wait_until(begun.exists, process)
    line = stop(process, signum, soak)
    assert line.startswith("resumerge run sleepy.yaml merged --state-dir ledgers --chdir ")
    assert not (small / "merged").exists()
    assert not (small / "ledgers").exists()
