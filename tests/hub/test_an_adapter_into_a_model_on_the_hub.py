"""Promise: an adapter goes into a model on the Hub, and the result into another repo, by way of a
disk that is smaller than the model; files that stay the same are not sent again."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from loopback_hub import Hub
from models_in_files import SIX_LAYERS, write_adapter, write_in_files
from small_disks import mounted
from waiting import wait_until

WIDE = {**SIX_LAYERS, "hidden_size": 640, "intermediate_size": 1600, "head_dim": 320}
DISK = 48_000_000
"""Bytes; the model is larger. 30 MB are kept for the files beside the shards."""

RECIPE = "merge_method: passthrough\nmodels: [{model: org/base+org/adapter}]\n"


def test_by_way_of_a_small_disk(hub: Hub, tmp_path: Path) -> None:
    write_adapter(tmp_path / "adapter", write_in_files(tmp_path / "base", WIDE), [1, 4])
    for name in ("base", "adapter"):
        files = {file.name: file.read_bytes() for file in (tmp_path / name).iterdir()}
        hub.commit(f"org/{name}", files)
    before = {n: b.data for n, b in newest(hub, "org/base").items() if n.endswith(".safetensors")}
    assert sum(map(len, before.values())) > DISK
    (tmp_path / "disk").mkdir()
    with mounted(tmp_path / "disk", DISK) as disk:
        (disk / "recipe.yaml").write_text(RECIPE)
        words = ["run", "recipe.yaml", "out", "--stream"]
        words += ["--mirror", "hf://org/out", "--mirror-then-delete"]
        killed = start(hub, disk, *words)
        wait_until(lambda: hub.received > 0 or killed.poll() is not None)
        killed.send_signal(signal.SIGKILL)
        assert killed.wait() == -signal.SIGKILL
        resumed = start(hub, disk, "resume", "out", "--take-over")
        _, stderr = resumed.communicate()
        assert resumed.returncode == 0, stderr
        assert not list((disk / "out").glob("*.safetensors"))
    after = {n: b.data for n, b in newest(hub, "org/out").items() if n.endswith(".safetensors")}
    assert after.keys() == before.keys()
    touched = [name for name in after if after[name] != before[name]]
    assert touched == ["model-00003-of-00008.safetensors", "model-00006-of-00008.safetensors"]
    sent = sum(len(after[name]) for name in touched)
    assert hub.received < 2 * sent + 2_000_000, "the Hub has the contents of the others"


def newest(hub: Hub, repo: str) -> Any:
    return [*hub.repos[repo].commits.values()][-1]


def start(hub: Hub, place: Path, *words: str) -> subprocess.Popen[str]:
    """The command in one process, with all of its files on a disk."""
    home = {"HF_HOME": str(place / "hf"), "TMPDIR": str(place), "HF_TOKEN": "hf_test"}
    return subprocess.Popen(
        [sys.executable, "-m", "resumerge", *words, "--state-dir", "state", "--no-supervise"],
        cwd=place,
        env=hub.env(HF_HUB_OFFLINE="0", **home),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
