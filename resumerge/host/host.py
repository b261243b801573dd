"""The facts about this machine in the field ``host`` of ``plan --json``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from resumerge.host.gpu import find_gpus
from resumerge.host.machine import cores, hostname
from resumerge.host.memory import measure_memory
from resumerge.host.persistent_storage import find_persistent
from resumerge.host.platform import ROOT, find_platform, goes_to


def describe_host(root: Path = ROOT) -> dict[str, Any]:
    """Return the facts about this machine. Sizes are in bytes.

    The call takes a few milliseconds, plus the time of nvidia-smi if it is installed.

    Args:
        root: the root of the file system.
    """
    platform, memory = find_platform(root), measure_memory()
    return {
        "name": hostname(),
        "platform": platform.kind,
        "notebook": platform.notebook,
        "vanishes": platform.ephemeral,
        "output": goes_to(sys.stderr),
        "cores": cores(),
        "memory": {
            "total": memory.total,
            "available": memory.available,
            "bound": memory.bound,
        },
        "gpus": [
            {"name": gpu.name, "total": gpu.total, "free": gpu.free} for gpu in find_gpus(root)
        ],
        "durable": [
            {
                "folder": str(persistent.folder),
                "kind": persistent.kind,
                "condition": persistent.condition,
            }
            for persistent in find_persistent(root)
        ],
    }
