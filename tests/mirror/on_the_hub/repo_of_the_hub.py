"""A repo of the loopback Hub as a mirror, for several tests."""

from __future__ import annotations

import random
from pathlib import Path

from loopback_hub import Hub

URL, REPO = "hf://org/merged", "org/merged"
SHARD = "model-00001-of-00002.safetensors"


def nothing(nbytes: int) -> None:
    """Moved, and nobody cares."""


def shard(folder: Path, nbytes: int = 300_000, seed: int = 0) -> Path:
    """A file to upload; its bytes differ by the seed."""
    path = folder / f"shard-{seed}.safetensors"
    path.write_bytes(random.Random(seed).randbytes(nbytes))
    return path


def commits(hub: Hub) -> int:
    """How many there are, without the one that every repo begins with."""
    return len(hub.repos[REPO].commits) - 1
