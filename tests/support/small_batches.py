"""Merges of small models in many batches, as merges of large models have."""

from __future__ import annotations

import pytest


def use_small_batches(patch: pytest.MonkeyPatch, nbytes: int) -> None:
    """Plan blocks of 512 elements, and set the uncommitted limit to so many bytes.

    No batch ends by time: a merge has the same batches, and the same syncs, on a slow machine, too.
    """
    patch.setattr("resumerge.engine.execute.scheduler.BATCH_SECONDS", float("inf"))
    for module in ("resumerge.tensors.target", "resumerge.engine.execute.uncommitted_shares"):
        patch.setattr(f"{module}.BLOCK_ELEMENTS", 512)
    for name in ("LARGEST_UNCOMMITTED_LIMIT", "SMALLEST_UNCOMMITTED_LIMIT"):
        patch.setattr(f"resumerge.engine.resources.governor.{name}", nbytes)
