"""Promise: a disk that holds neither the models nor the output is enough, where the output goes to
the mirror and downloads go away when nothing needs them.
"""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback_hub import Hub
from merges import COPIES, Place, layered, output
from small_disks import mounted
from waiting import wait_until

NUMEL = 2_000_000
LAYER = 4 * NUMEL
"""Bytes of a layer, and of each of the sixteen files; a shard has two layers."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small disk"
    folder.mkdir()
    with mounted(folder, 10 * LAYER) as disk:
        yield disk


def test_models_and_output_three_times_as_large_as_their_disk(
    hub: Hub, small_disk: Path, tmp_path: Path
) -> None:
    for name, seed in (("org/math", 1), ("org/code", 2)):
        hub.commit(name, layered(seed, numel=NUMEL))
    calm = Place(hub, tmp_path / "calm", COPIES)
    calm.call("run", "merge.yaml", "out", "--shard-size", "17MB")
    place = Place(hub, tmp_path / "small", COPIES, HF_HOME=str(small_disk / "hf"))
    out, mirror = small_disk / "out", tmp_path / "mirror"
    assert shutil.disk_usage(small_disk).free * 3 < 32 * LAYER
    words = ["--shard-size", "17MB", "--mirror", mirror, "--mirror-rate", "20MB"]
    place.call("run", "merge.yaml", out, "--evict", *words, expect=2)

    hub.sent = 0
    process = place.start("run", "merge.yaml", out, "--evict", "--mirror-then-delete", *words)
    shards = random.Random(1).randint(3, 8)
    wait_until(lambda: len(list(mirror.glob("*.safetensors"))) >= shards, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    place.call("resume")
    found = output(mirror)
    found.pop(".resumerge/done.json")
    assert found == output(calm.folder / "out")
    assert not list(out.glob("*.safetensors"))
    assert not place.events("shard_lost")
    assert hub.sent < 1.5 * 16 * LAYER, "files were downloaded again and again"
