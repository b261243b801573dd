"""The settings that a run derives from its machine, and the options that override them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from resumerge.engine.resources.device import resolve_device
from resumerge.engine.resources.governor import margin
from resumerge.errors import InputError
from resumerge.host.memory import Memory
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.output_path import OutputPath
from resumerge.printable import without_secrets
from resumerge.sizes import show_size

STATE_DIR = "RESUMERGE_STATE_DIR"
AUTO = "auto"
NOTABLE_SHARE = 0.05
"""This process's own memory is mentioned if it is more than this share of the memory budget."""
ALL_CORES_REASON = "the cores that this process may use"
"""The reason for as many threads as cores."""


def choices(
    host: dict[str, Any],
    options: Options,
    *,
    out: OutputPath | None,
    budget: int,
    threads: int | None,
    progress: str = AUTO,
) -> list[dict[str, Any]]:
    """Return the choices: each with ``what``, ``chosen``, ``because``, and ``option`` to override.

    Args:
        host: the document of `describe_host`.
        options: the options that the user set; an option with a value decides its choice.
        out: the output; None if it is not known.
        budget: the limit of the run's RSS, in bytes.
        threads: the number of threads that fit into the budget; None without a plan.
        progress: the requested style of progress, or `AUTO`.
    """
    return [
        _memory(host, options, budget),
        _threads(host, options, threads),
        _device(host, options),
        _progress(host, progress),
        _state(host, options),
        *_mirror(host, options, out),
    ]


def _choice(what: str, chosen: object, because: str, option: str) -> dict[str, Any]:
    return {"what": what, "chosen": chosen, "because": because, "option": option}


def _memory(host: dict[str, Any], options: Options, budget: int) -> dict[str, Any]:
    if budget == options.memory:
        return _choice("memory", budget, "as requested", "--memory SIZE")
    memory = Memory(**host["memory"])
    free_margin = margin(memory.total)
    used_bytes = budget + free_margin - memory.available
    reasons = [
        str(memory),
        f"this process uses {show_size(used_bytes)}" if used_bytes > NOTABLE_SHARE * budget else "",
        f"{show_size(free_margin)} stays free",
        "less than requested" if options.memory is not None else "",
    ]
    return _choice("memory", budget, ", ".join(filter(None, reasons)), "--memory SIZE")


def _threads(host: dict[str, Any], options: Options, threads: int | None) -> dict[str, Any]:
    wanted_threads = options.threads or host["cores"]
    reason = "as requested" if options.threads else ALL_CORES_REASON
    if threads is not None and threads < wanted_threads:
        reason = f"the memory budget is too small for all {wanted_threads} threads"
    return _choice("threads", wanted_threads if threads is None else threads, reason, "--threads N")


def _device(host: dict[str, Any], options: Options) -> dict[str, Any]:
    gpus, device = host["gpus"], options.device
    if device == AUTO:
        with suppress(InputError):
            device = resolve_device(device)
        reason = "auto uses a GPU if there is a usable one"
    elif device != "cpu":
        reason = "as requested"
    elif gpus:
        reason = f"kernels compute on the CPU; {gpus[0]['name']} is for methods that use torch"
    else:
        reason = "there is no GPU"
    return _choice("device", device, reason, "--device DEV")


def _progress(host: dict[str, Any], asked: str) -> dict[str, Any]:
    if asked != AUTO:
        return _choice("progress", asked, "as requested", "--progress STYLE")
    style, reason = {
        "terminal": ("bar", "output goes to a terminal"),
        "cell": ("lines", "output goes to a notebook's cell; resumerge.run() shows a live view"),
        "log": ("lines", "output goes to a file or a pipe"),
    }[host["output"]]
    return _choice("progress", style, reason, "--progress STYLE")


def _state(host: dict[str, Any], options: Options) -> dict[str, Any]:
    folder = RunStore(options.state_dir).folder
    origin = "from RESUMERGE_STATE_DIR" if os.environ.get(STATE_DIR) else "in the working folder"
    reason = origin if options.state_dir is None else "as requested"
    for durable_folder in host["durable"]:
        if durable_folder["kind"] in ("drive", "bucket") and folder.is_relative_to(
            durable_folder["folder"]
        ):
            reason = (
                "a ledger needs locks, which a mounted drive lacks: keep it on this machine's own "
                "disk, and name the drive as --mirror"
            )
    return _choice("state", str(folder), reason, "--state-dir DIR")


def _mirror(
    host: dict[str, Any], options: Options, out: OutputPath | None
) -> Iterator[dict[str, Any]]:
    if options.mirror is not None:
        yield _choice("mirror", without_secrets(options.mirror), "as requested", "--mirror DEST")
        return
    drive_folders = [
        durable_folder["folder"]
        for durable_folder in host["durable"]
        if durable_folder["kind"] == "drive"
    ]
    name = out.model if out is not None else "merged"
    if drive_folders:
        suggested_option = f"--mirror {drive_folders[0]}/{name}"
        yield _choice(
            "mirror",
            None,
            "Google Drive is mounted; its files remain when this VM is removed",
            suggested_option,
        )
    elif host["vanishes"]:
        reason = (
            f"this {host['platform'].capitalize()} machine may be removed at any time, with its "
            "disk"
        )
        yield _choice("mirror", None, reason, "--mirror DEST")
