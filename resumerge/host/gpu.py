"""The GPUs of this machine, without importing torch, which takes seconds."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from resumerge.host.system import LINUX

PATIENCE_SECONDS = 5.0
"""The most seconds to wait for nvidia-smi.

It needs half a second, but never ends if the driver hangs.
"""

_QUERY = ("--query-gpu=name,memory.total,memory.free", "--format=csv,noheader,nounits")


@dataclass(frozen=True)
class Gpu:
    """A GPU, with its total and free memory in bytes; None if the driver did not report it."""

    name: str
    total: int | None
    free: int | None


def find_gpus(root: Path = Path("/"), command: str = "nvidia-smi") -> list[Gpu]:
    """Return NVIDIA's GPUs, in the driver's order; empty if none are found, also after an error.

    The call takes at most about `PATIENCE_SECONDS`.

    Args:
        root: the root of the file system, for `/proc/driver/nvidia`.
        command: the program to run first; `/proc` is read if it fails.
    """
    gpus = _ask(command)
    if gpus is not None:
        return gpus
    return _of_driver(root) if LINUX else []


def _ask(command: str) -> list[Gpu] | None:
    try:
        completed = subprocess.run(
            [command, *_QUERY],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if completed.returncode != 0:
        return None
    gpus = []
    for line in completed.stdout.splitlines():
        fields = [field.strip() for field in line.rsplit(",", 2)]
        if len(fields) == 3:
            gpus.append(Gpu(fields[0], _mebibytes(fields[1]), _mebibytes(fields[2])))
    return gpus


def _mebibytes(text: str) -> int | None:
    return int(text) << 20 if text.isdecimal() else None


def _of_driver(root: Path) -> list[Gpu]:
    gpus = []
    for file in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        try:
            lines = file.read_text(errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            key, _, value = line.partition(":")
            if key.strip() == "Model":
                gpus.append(Gpu(value.strip(), None, None))
    return gpus
