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
from no_more_uploads import NoMoreUploads
from small_disks import mounted
from waiting import wait_until

WIDE = {**SIX_LAYERS, "hidden_size": 640, "intermediate_size": 1600, "head_dim": 320}
DISK = 48_000_000
"""The size of the disk in bytes; the model is larger, and 30 MB are for files beside the shards."""

RECIPE = "merge_method: passthrough\nmodels: [{model: org/base+org/adapter}]\n"


def test_by_way_of_a_small_disk(hub: Hub, tmp_path: Path) -> None:
    before = commit(hub, tmp_path, WIDE)
    assert sum(map(len, before.values())) > DISK
    (tmp_path / "disk").mkdir()
    with mounted(tmp_path / "disk", DISK) as disk:
        (disk / "recipe.yaml").write_text(RECIPE)
        words = ["run", "recipe.yaml", "out", "--stream"]
        words += ["--mirror", "hf://org/out", "--mirror-then-delete"]
        fault = NoMoreUploads(hub, "org/out")
        killed = start(hub, disk, *words)
        wait_until(lambda: fault.reached, killed)
        killed.send_signal(signal.SIGKILL)
        assert killed.wait() == -signal.SIGKILL
        fault.end()
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


def test_what_was_downloaded_is_the_output(hub: Hub, tmp_path: Path) -> None:
    """A cached file gets another name by --link, and keeps it when the cache removes its own."""
    place = tmp_path / "place"
    place.mkdir()
    before = commit(hub, tmp_path, SIX_LAYERS)
    (place / "recipe.yaml").write_text(RECIPE)
    finish(hub, place, "run", "recipe.yaml", "out", "--link")
    shards = sorted((place / "out").glob("*.safetensors"))
    linked = [path for path in shards if path.stat().st_nlink == 2]
    assert len(linked) == 6
    served = hub.files_served()
    finish(hub, place, "run", "recipe.yaml", "again", "--link")
    assert hub.files_served() == served
    with linked[0].open("r+b") as file:  # the file of the cache, and of both outputs
        file.seek(-1, 2)
        file.write(b"\1")
    finish(hub, place, "verify", "out", expect=75)
    finish(hub, place, "resume", "out")
    for path in linked:
        assert path.read_bytes() == before[path.name], "a damaged file of the cache came anew"
    for blob in (place / "hf").glob("hub/*/blobs/*"):
        blob.unlink()
    finish(hub, place, "verify", "out")
    finish(hub, place, "verify", "again", expect=75)


def test_evicted_downloads_stay_as_the_output(hub: Hub, tmp_path: Path) -> None:
    """A disk with room for the model once is enough."""
    before = commit(hub, tmp_path, WIDE)
    (tmp_path / "disk").mkdir()
    with mounted(tmp_path / "disk", 40_000_000 + sum(map(len, before.values()))) as disk:
        (disk / "recipe.yaml").write_text(RECIPE)
        words = ["run", "recipe.yaml", "out", "--link", "--evict"]
        killed = start(hub, disk, *words)
        wait_until(
            lambda: bool([*(disk / "out").glob("*.safetensors")]) or killed.poll() is not None
        )
        killed.send_signal(signal.SIGKILL)
        assert killed.wait() in (-signal.SIGKILL, 0)
        finish(hub, disk, *words)
        after = {path.name: path.read_bytes() for path in (disk / "out").glob("*.safetensors")}
        touched = [name for name in sorted(after) if after[name] != before[name]]
        assert touched == ["model-00003-of-00008.safetensors", "model-00006-of-00008.safetensors"]
        blobs = [blob for blob in (disk / "hf").glob("hub/*base/blobs/*") if blob.is_file()]
        assert not [blob for blob in blobs if blob.stat().st_size > 1_000_000]


def commit(hub: Hub, folder: Path, config: dict[str, Any]) -> dict[str, bytes]:
    """Commit a model and an adapter of it to the Hub, and return the model's shards."""
    write_adapter(folder / "adapter", write_in_files(folder / "base", config), [1, 4])
    for name in ("base", "adapter"):
        files = {file.name: file.read_bytes() for file in (folder / name).iterdir()}
        hub.commit(f"org/{name}", files)
    return {n: b.data for n, b in newest(hub, "org/base").items() if n.endswith(".safetensors")}


def finish(hub: Hub, place: Path, *words: str, expect: int = 0) -> str:
    """Run the command to its end, and return what it printed to stderr."""
    process = start(hub, place, *words)
    _, stderr = process.communicate()
    assert process.returncode == expect, stderr
    return stderr or "nothing"


def newest(hub: Hub, repo: str) -> Any:
    return [*hub.repos[repo].commits.values()][-1]


def start(hub: Hub, place: Path, *words: str) -> subprocess.Popen[str]:
    """Start the command in one process, with all of its files on a disk."""
    home = {"HF_HOME": str(place / "hf"), "TMPDIR": str(place), "HF_TOKEN": "hf_test"}
    return subprocess.Popen(
        [sys.executable, "-m", "resumerge", *words, "--state-dir", "state"]
        + (["--no-supervise"] if words[0] in ("run", "resume") else []),
        cwd=place,
        env=hub.env(HF_HUB_OFFLINE="0", **home),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
