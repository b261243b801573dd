"""A file is sent and fetched in pieces, however large it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from loopback_hub import Hub
from repo_of_the_hub import URL, shard

pytestmark = pytest.mark.cold_start

ROOT = Path(__file__).parents[3]
MEMORY = f"""
import resource, sys
from pathlib import Path
from resumerge.mirror.stores.hub import HubStore
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
small, large, back = map(Path, sys.argv[1:])
place = HubStore({URL!r})
place.upload("small.safetensors", small, lambda nbytes: None)
place.download("small.safetensors", back, lambda nbytes: None)
before = peak()
place.upload("large.safetensors", large, lambda nbytes: None)
place.put({{"a": b"1"}})
place.download("large.safetensors", back, lambda nbytes: None)
print(peak() - before)
"""


@pytest.mark.parametrize("part_bytes", [None, 16_000_000])
def test_a_large_file_takes_little_memory(hub: Hub, tmp_path: Path, part_bytes: int | None) -> None:
    hub.part_bytes = part_bytes
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            MEMORY,
            shard(tmp_path, 100_000),
            shard(tmp_path, 40_000_000, seed=1),
            tmp_path / "back",
        ],
        env=hub.env(PYTHONPATH=str(ROOT), HF_HUB_OFFLINE="0"),
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    assert int(ended.stdout) < 12_000_000
    assert (tmp_path / "back").stat().st_size == 40_000_000
