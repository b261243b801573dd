"""The device for dense work, by the name that a user gives."""

from __future__ import annotations

import re

from resumerge.errors import refuse


def resolve_device(asked: str) -> str:
    """``cpu``, ``cuda`` or ``cuda:1`` unchanged; ``auto`` as what this machine has.

    Raises:
        InputError: no such device, or this machine does not have it.
    """
    if asked == "cpu":
        return asked
    named = re.fullmatch("auto|cuda(?::([0-9]+))?", asked)
    if named is None:
        raise refuse("Unknown device", expected="cpu, cuda, cuda:1 or auto", found=asked)
    import torch

    count = torch.cuda.device_count()
    if asked == "auto":
        return "cuda" if count else "cpu"
    if int(named[1] or 0) >= count:
        raise refuse(
            "This machine does not have the device",
            expected=f"one of {count} CUDA devices" if count else "cpu: there is no CUDA device",
            found=asked,
            fix="leave --device out, or write --device auto",
        )
    return asked
