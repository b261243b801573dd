"""Promise: with --detach a merge continues when the terminal closes, and reports its outcome."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from small_disks import fill, mounted
from supervised import SLOWLY, Supervised
from terminals import ended, in_a_terminal
from waiting import wait_until

from resumerge.ledger.run_store import RunStore


def detach(merge: Supervised, *words: str) -> tuple[dict[str, object], str]:
    """Run a merge with `--detach --json`; return its document and its text for people."""
    process = merge.start("--detach", "--json", *words)
    stdout, stderr = process.communicate()
    assert process.returncode == 0, stderr
    (line,) = stdout.splitlines()
    return json.loads(line), stderr


def run_folder(merge: Supervised) -> Path:
    (run,) = RunStore(merge.state).runs()
    return run


@pytest.mark.parametrize("more", [[], ["--no-supervise"]])
def test_the_terminal_closes(
    merge: Supervised, reference: dict[str, bytes], more: list[str]
) -> None:
    command = [*merge.command, "--detach", *more]
    code, said = ended(*in_a_terminal(command, merge.models, merge.options["env"]))
    assert code == 0, said
    wait_until(merge.outcomes)  # it returns once the run is locked, before there is an attempt
    assert merge.outcomes() == [None], "it returns while the merge works"
    assert said.splitlines()[-1].endswith("--watch")
    merge.go_on()
    wait_until(lambda: merge.outcomes() == ["done"])
    log = run_folder(merge) / "detached.log"
    wait_until(lambda: "Done in" in log.read_text())
    assert merge.files() == reference
    assert not list(merge.state.glob("*detached*"))


def test_what_it_tells_is_how_to_stop_it_and_its_output(
    merge: Supervised, reference: dict[str, bytes]
) -> None:
    told, stderr = detach(merge)
    run = run_folder(merge)
    assert (told["kind"], told["run"]) == ("detached", run.name)
    assert f"kill {told['pid']}" in stderr
    assert stderr.splitlines()[-1] == told["watch"]
    wait_until(lambda: merge.committed())
    os.kill(int(str(told["pid"])), signal.SIGTERM)
    wait_until(lambda: merge.outcomes() == ["interrupted"])
    log = Path(str(told["log"]))
    wait_until(lambda: "resumerge resume" in log.read_text())
    lines = (run / "detached.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["exit_code"] == 143
    merge.resume()
    assert merge.files() == reference


def test_a_run_that_is_refused_says_so_here(merge: Supervised) -> None:
    (merge.folder / "recipe.yaml").write_text(
        "merge_method: slowly\nmodels: [{model: nowhere}, {model: math}]\n"
    )
    process = merge.start("--detach", "--json")
    stdout, stderr = process.communicate()
    assert process.returncode == 2
    assert "nowhere" in stderr
    told = [json.loads(line) for line in stdout.splitlines()]
    (refused,) = (line for line in told if line["kind"] != "alive")  # a slow one says it is alive
    assert refused["exit_code"] == 2
    assert not list(merge.state.iterdir())


def test_another_process_works_on_the_run(merge: Supervised, reference: dict[str, bytes]) -> None:
    process = merge.start()
    worker = merge.wait_until_committed(process)
    os.kill(worker, signal.SIGSTOP)
    second = merge.start("--detach")
    _, stderr = second.communicate()
    assert second.returncode == 2
    assert "Another process is working on this run" in stderr
    os.kill(worker, signal.SIGCONT)
    _, stderr = merge.end(process)
    assert process.returncode == 0, stderr
    assert merge.files() == reference


def ignores_hangup(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    ignored = next(line for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(ignored.split()[1], 16) >> signal.SIGHUP - 1 & 1)


def test_the_terminal_closes_before_there_is_a_run(merge: Supervised, tmp_path: Path) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    method = tmp_path / "waits.py"
    wait = f"import os, time\nopen({str(begun)!r}, 'w').close()\n"
    wait += f"while not os.path.exists({str(go)!r}): time.sleep(0.02)\n"
    method.write_text(wait + SLOWLY.read_text())
    merge.environment["RESUMERGE_METHODS"] = str(method)
    command = [*merge.command, "--detach"]
    pid, terminal = in_a_terminal(command, merge.models, merge.options["env"])
    wait_until(begun.exists)
    wait_until(lambda: ignores_hangup(pid))  # it has forked, and moves the logs when there is a run
    os.close(terminal)
    go.touch()
    os.waitpid(pid, 0)
    merge.go_on()  # not before: of a merge that has ended it would move no logs
    wait_until(lambda: merge.outcomes() == ["done"])
    wait_until(lambda: "Done in" in (run_folder(merge) / "detached.log").read_text())
    assert not list(merge.state.glob("*detached*"))


def test_a_full_disk_is_told_though_it_takes_no_log(merge: Supervised) -> None:
    merge.state.mkdir()
    with mounted(merge.state, 1 << 16) as small:
        fill(small / "full")
        process = merge.start("--detach")
        _, stderr = process.communicate()
    assert process.returncode == 75
    assert "Is the disk of" in stderr


def test_ctrl_c_stops_what_has_no_run_yet(merge: Supervised, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    method = tmp_path / "long.py"
    method.write_text(f"import time\nopen({str(begun)!r}, 'w').close()\ntime.sleep(600)\n")
    merge.environment["RESUMERGE_METHODS"] = str(method)
    process = merge.start("--detach")
    wait_until(begun.exists)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate()
    assert process.returncode == 130, stderr
    assert not list(merge.state.iterdir())
