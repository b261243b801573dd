"""Present files are merged while the rest arrives; only what the recipe reads is requested."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from hub_models import shard
from loopback_hub import Hub
from merges import COPIES, Place, layered, output
from waiting import wait_until

QUARTER = """
merge_method: passthrough
dtype: bfloat16
slices:
  - sources: [{model: org/math, layer_range: [2, 4]}]
"""


@pytest.fixture
def filled(hub: Hub) -> Hub:
    for name, seed in (("org/math", 1), ("org/code", 2)):
        hub.commit(name, layered(seed))
    return hub


def file_bytes(hub: Hub) -> dict[str, int]:
    return {k: n for k, n in hub.files_served().items() if k.endswith(".safetensors")}


def test_total_time_is_the_time_of_the_download(hub: Hub, tmp_path: Path, soak: bool) -> None:
    if not soak:
        pytest.skip("it tells only on a quiet machine: with --soak")
    for name, seed in (("org/math", 1), ("org/code", 2)):
        hub.commit(name, layered(seed, numel=3_000_000))
    hub.bytes_per_second = 16e6
    place = Place(hub, tmp_path)
    place.call("plan", "merge.yaml")
    hub.sent = 0
    process = place.start("run", "merge.yaml", "out", "--json")
    assert process.stdout is not None
    began = ended = 0.0
    for line in process.stdout:
        told = json.loads(line)
        if told["kind"] == "fetching":
            began = began or time.monotonic()
            if told["bytes"]["done"] < told["bytes"]["total"]:
                ended = time.monotonic()
        if told["kind"] == "done":
            break
    whole, downloading = time.monotonic() - began, ended - began
    process.communicate()
    assert downloading > 10
    assert whole < 1.15 * downloading, (whole, downloading)
    print(f"the whole took {whole / downloading:.3f} of the download")


def test_a_quarter_of_the_layers_needs_a_quarter_of_the_files(filled: Hub, tmp_path: Path) -> None:
    place = Place(filled, tmp_path, QUARTER)
    place.call("plan", "merge.yaml")
    assert filled.sent < 1_000_000
    filled.forget_requests()
    place.call("run", "merge.yaml", "out")
    size = len(layered(1)[shard(3, 8)])
    assert file_bytes(filled) == {shard(3, 8): size, shard(4, 8): size}


def test_a_plan_moves_less_than_a_megabyte(hub: Hub, tmp_path: Path) -> None:
    for name, seed in (("org/math", 1), ("org/code", 2)):
        hub.commit(name, layered(seed, numel=1_000_000))
    place = Place(hub, tmp_path)
    document = place.document("plan", "merge.yaml")
    assert document["problems"] == []
    assert document["download"]["bytes"] > 50_000_000
    assert sum(request.sent for request in hub.requests) < 1_000_000
    served = sum(request.sent for request in hub.requests)
    place.document("plan", "merge.yaml")
    again = sum(request.sent for request in hub.requests) - served
    assert again < 20_000, "headers are kept"


def test_a_second_run_serves_nothing_and_reads_nothing_again(filled: Hub, tmp_path: Path) -> None:
    place = Place(filled, tmp_path)
    place.call("run", "merge.yaml", "one")
    filled.forget_requests()
    for name in ("org/math", "org/code"):  # a hash would be seen: what is read has wrong bytes now
        blob = place.blob(name, shard(1, 8))
        flip(blob)
        with closing(sqlite3.connect(place.folder / "state" / "remote.db")) as database, database:
            database.execute(
                "UPDATE verdicts SET ctime_ns = ? WHERE path = ?",
                [blob.stat().st_ctime_ns, os.path.realpath(blob)],
            )
    place.call("run", "merge.yaml", "two")
    assert filled.files_served() == {}
    assert place.events("source_damaged") == []


def flip(path: Path, at: int = 5000) -> None:
    """Change a byte of a file, but neither its size nor the time that programs can set."""
    stat = path.stat()
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_answered_though_the_hub_sends_nothing(
    filled: Hub, tmp_path: Path, signum: signal.Signals
) -> None:
    place = Place(filled, tmp_path, HF_HUB_DOWNLOAD_TIMEOUT="600")
    place.call("plan", "merge.yaml")
    filled.fail(shard(8, 8), stall_after=1000, times=None)
    process = place.start("run", "merge.yaml", "out")
    wait_until(lambda: place.committed() >= 14, process)
    process.send_signal(signum)
    told = process.communicate()[1]
    assert process.returncode == 128 + signum
    assert told.splitlines()[-1].startswith("resumerge resume")
    filled.faults.clear()
    filled.over.set()
    place.call("resume")


@pytest.mark.parametrize("part", ["/api/models/org/math", "config.json", shard(1, 8)])
def test_a_signal_is_answered_though_the_hub_says_nothing_of_a_model(
    filled: Hub, tmp_path: Path, part: str
) -> None:
    """A plan needs the list of files, the config and the headers."""
    place = Place(filled, tmp_path, HF_HUB_DOWNLOAD_TIMEOUT="600", HF_HUB_ETAG_TIMEOUT="600")
    filled.fail(part, method="GET", stall_after=0, times=100)
    process = place.start("run", "merge.yaml", "out")
    wait_until(lambda: filled.faults[0].times != 100, process)
    process.send_signal(signal.SIGINT)
    told = process.communicate()[1]
    assert process.returncode == 130, told
    assert not (tmp_path / "out").exists()


def test_network_lost_midway_merges_what_is_there_and_resumes(filled: Hub, tmp_path: Path) -> None:
    place = Place(filled, tmp_path)
    place.call("plan", "merge.yaml")
    last = filled.blob_of("org/code", shard(8, 8)).sha256
    filled.fail(last, stall_after=1000, times=None)
    process = place.start("run", "merge.yaml", "out")
    wait_until(lambda: place.committed() >= 14, process)
    filled.fail(last, status=403, times=None)  # at no time the file can be had
    filled.over.set()
    stderr = process.communicate()[1]
    assert process.returncode == 75
    assert "denied access" in stderr
    assert stderr.strip().splitlines()[-1].startswith("resumerge resume")
    status = place.document("status")["runs"][0]
    assert status["units"]["committed"] == 14
    filled.faults.clear()
    filled.forget_requests()
    place.call("resume")
    assert set(file_bytes(filled)) == {shard(8, 8)}


def test_the_token_is_written_nowhere(filled: Hub, tmp_path: Path) -> None:
    token = "hf_" + "SecretOfTheUser" * 2
    place = Place(filled, tmp_path, COPIES, HF_TOKEN=token)
    filled.fail(shard(8, 8), status=403, times=None)
    place.call("plan", "merge.yaml", expect=2)
    filled.faults.clear()
    done = place.call("run", "merge.yaml", "out", "--json")
    assert token not in done.stdout + done.stderr
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or token.encode() not in path.read_bytes(), path
    carried = {request.host: request.authorization for request in filled.requests}
    assert carried == {"127.0.0.1": f"Bearer {token}", "localhost": None}


def test_a_branch_that_moves_meanwhile_changes_nothing(filled: Hub, tmp_path: Path) -> None:
    calm = Place(filled, tmp_path / "calm")
    calm.call("run", "merge.yaml", "out")
    place = Place(filled, tmp_path / "moved")
    filled.allowance.give(3_000_000)
    process = place.start("run", "merge.yaml", "out")
    wait_until(filled.allowance.is_spent, process)
    process.kill()
    process.wait()
    filled.allowance.give(None)
    filled.commit("org/math", layered(3))
    place.call("resume")
    assert output(place.folder / "out") == output(calm.folder / "out")
