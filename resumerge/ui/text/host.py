"""Descriptions of the machine, and of the settings that a run derives from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from resumerge.sizes import counted, show_size

Facts = Mapping[str, Any]

_KINDS = {
    "colab": "Google Colab",
    "kaggle": "Kaggle",
    "notebook": "a Jupyter notebook",
    "machine": "a server or workstation",
}

_DURABLE = {
    "drive": "Google Drive",
    "kaggle": "Kaggle's output folder",
    "network": "a network disk",
    "bucket": "a mounted bucket",
}


def host_rows(host: Facts) -> Iterator[tuple[str, str]]:
    """Yield (property, value) for each line about a machine."""
    cores = [counted(host["cores"], "core"), *([] if host["gpus"] else ["no GPU"])]
    yield "machine", f"{_KINDS[host['platform']]}: {', '.join(cores)}"
    memory, disk = host["memory"], host["disk"]
    yield (
        "memory",
        f"{show_size(memory['available'])} of {show_size(memory['total'])} available"
        f"{'' if memory['bound'] == 'the machine' else ', limited by ' + memory['bound']}",
    )
    speeds = [
        f"{verb} {show_size(disk[key])}/s"
        for verb, key in (("reads", "read_bytes_per_s"), ("writes", "write_bytes_per_s"))
        if disk[key]
    ]
    yield "disk", ", ".join([f"{show_size(disk['free'])} free", *speeds])
    for gpu in host["gpus"]:
        size = f", {show_size(gpu['total'])}" if gpu["total"] else ""
        yield "GPU", f"{gpu['name']}{size}"
    for durable_folder in host["durable"]:
        condition = f" ({durable_folder['condition']})" if durable_folder["condition"] else ""
        yield (
            "persistent",
            f"{durable_folder['folder']}: {_DURABLE[durable_folder['kind']]}{condition}",
        )


def choice_rows(choices: list[Facts]) -> Iterator[tuple[str, str, str, str]]:
    """Yield (name, chosen value, reason, option that overrides it) of each setting."""
    for choice in choices:
        chosen_value = choice["chosen"]
        if choice["what"] == "memory":
            value_text = show_size(chosen_value)
        else:
            value_text = "none" if chosen_value is None else str(chosen_value)
        yield choice["what"], value_text, choice["because"], choice["option"]
