"""A repo of the loopback Hub as a mirror, for several tests."""

from __future__ import annotations

import random
from pathlib import Path

from loopback_hub import Hub

URL, REPO = "hf://org/merged", "org/merged"
SHARD = "model-00001-of-00002.safetensors"


def nothing(nbytes: int) -> None:
    """Ignore the number of bytes that were moved."""


def shard(folder: Path, nbytes: int = 300_000, seed: int = 0) -> Path:
    """Make a file to upload, whose bytes depend on the seed."""
    path = folder / f"shard-{seed}.safetensors"
    path.write_bytes(random.Random(seed).randbytes(nbytes))
    return path


def commits(hub: Hub) -> int:
    """Return the number of commits, without the one that every repo begins with."""
    return len(hub.repos[REPO].commits) - 1
