"""The device on which torch computes, from the name that the user passes."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path

from resumerge.errors import InputError, refuse
from resumerge.planning import Estimate

UNUSED = "No GPU is used: the methods of this recipe are computed by kernels on the CPU"


def device_for(estimate: Estimate, asked: str) -> tuple[str, list[str]]:
    """Return the device for a merge, and notes for the user.

    Only methods that compute with torch can use a GPU. Kernels always compute on the CPU: a merge
    with kernels spends most of its time on reading and writing.

    Raises:
        InputError: the name is no device, the merge needs torch and it is not installed, or this
            machine does not have the device.
    """
    if estimate.time.needs_torch:
        check_torch(
            "This merge is computed with torch, which is not installed",
            "torch, for adapters, for gates of hidden states, and for methods that the kernels do "
            "not compute",
        )
    if estimate.uses_torch:
        return resolve_device(asked), []
    _device_number(asked)
    return "cpu", [UNUSED] if asked.startswith("cuda") else []


def check_torch(what: str, expected: str) -> None:
    """Check that torch is installed.

    Args:
        what: the first sentence of the error, which says for what torch is missing.
        expected: the expectation in the error: torch, and its purpose.

    Raises:
        InputError: torch is not installed.
    """
    if not _has_torch():
        raise _no_torch(what, expected)


def resolve_device(asked: str) -> str:
    """Return an explicit device unchanged; for ``auto``, ``cuda`` if there is a GPU, else ``cpu``.

    Raises:
        InputError: the name is no device, this machine does not have the device, or torch is not
            installed.
    """
    device_number = _device_number(asked)
    if asked == "cpu":
        return asked
    if not _has_torch():
        raise _no_torch("The device cannot be used: torch is not installed", "torch, or cpu", asked)
    import torch

    device_count = torch.cuda.device_count()
    if asked == "auto":
        return "cuda" if device_count else "cpu"
    if device_number >= device_count:
        raise refuse(
            "This machine does not have the device",
            expected=f"one of {device_count} CUDA devices"
            if device_count
            else "cpu, for lack of a CUDA device",
            found=asked,
            fix="leave --device out, or write --device auto",
        )
    return asked


def _device_number(asked: str) -> int:
    """Return the number of the CUDA device in a name; 0 if the name has no number.

    Raises:
        InputError: the name is no device.
    """
    name_match = re.fullmatch("cpu|auto|cuda(?::([0-9]+))?", asked)
    if name_match is None:
        raise refuse("Unknown device", expected="cpu, cuda, cuda:1 or auto", found=asked)
    return int(name_match[1] or 0)


def _has_torch() -> bool:
    return find_spec("torch") is not None


def _no_torch(what: str, expected: str, found: str = "") -> InputError:
    is_installed_by_uv = (
        Path(sys.prefix) / "uv-receipt.toml"
    ).exists()  # uv's environment has no pip
    fix = "install resumerge again with `uv tool install`, without --excludes"
    return refuse(
        what, expected=expected, found=found, fix=fix if is_installed_by_uv else "pip install torch"
    )
