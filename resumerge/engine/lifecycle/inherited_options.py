"""What is not chosen for an attempt is as it was chosen when its run began."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from resumerge.options import Options


def inherited(options: Options, began: Mapping[str, Any], mirror: str | None) -> Options:
    """The options of an attempt.

    Args:
        options: chosen now.
        began: those that the run began with, as its ledger has them.
        mirror: that the run has.
    """
    return replace(
        options,
        memory=options.memory or began.get("memory"),
        threads=options.threads or began.get("threads"),
        evict=options.evict or began.get("evict", False),
        mirror=options.mirror or mirror,
        **_mirror_options(options, began),
    )


def _mirror_options(options: Options, began: Mapping[str, Any]) -> dict[str, Any]:
    """What was chosen now about the mirror, or when the run began."""
    names = ("mirror_then_delete", "mirror_rate", "mirror_wait")
    chosen = {name: getattr(options, name) for name in names}
    if options.bring_back:
        chosen["mirror_then_delete"] = False
    return {name: began.get(name) if now is None else now for name, now in chosen.items()}
