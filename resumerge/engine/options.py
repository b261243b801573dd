"""What a user may choose about a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SHARD_SIZE = 5_000_000_000
SEED = 0


@dataclass(frozen=True)
class Options:
    """Options of ``run`` and ``resume``; None takes the default, or what the run began with.

    Args:
        state_dir: where ledgers live.
        memory: budget of RSS in bytes.
        threads: worker threads.
        device: ``cpu``, ``cuda``, ``cuda:1`` or ``auto``.
        shard_size: largest output shard in bytes.
        seed: of randomized methods.
        offline: touch no network.
        restart: give up the unfinished run and start over.
    """

    state_dir: Path | None = None
    memory: int | None = None
    threads: int | None = None
    device: str = "cpu"
    shard_size: int | None = None
    seed: int | None = None
    offline: bool = False
    restart: bool = False
