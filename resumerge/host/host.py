"""All that is known of this machine, as the field ``host`` of ``plan --json``."""

from __future__ import annotations

import platform as python_platform
import sys
from pathlib import Path
from typing import Any

from resumerge.host.gpu import find_gpus
from resumerge.host.machine import cores, hostname
from resumerge.host.memory import measure_memory
from resumerge.host.persistent_storage import find_durable
from resumerge.host.platform import ROOT, find_platform
from resumerge.host.screen import goes_to


def describe_host(root: Path = ROOT) -> dict[str, Any]:
    """Sizes are bytes. Takes a few milliseconds, and as long as nvidia-smi where there is one.

    Args:
        root: where the file system begins.
    """
    platform, memory = find_platform(root), measure_memory()
    return {
        "name": hostname(),
        "platform": platform.kind,
        "notebook": platform.notebook,
        "scheduler": platform.scheduler,
        "container": platform.container,
        "laptop": platform.laptop,
        "vanishes": platform.vanishes,
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
            {"folder": str(d.folder), "kind": d.kind, "condition": d.condition}
            for d in find_durable(root)
        ],
        "system": python_platform.system(),
        "python": python_platform.python_version(),
    }
