"""Lines about the used tensors of the models, and the reasons for unused tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from resumerge.sizes import some
from resumerge.tensor_uses import REASONS

SHOWN = 2
"""The most patterns of names that a line lists."""


def account_lines(accounts: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line about the models whose tensors are all used, then a line for each other model.

    Args:
        accounts: the part ``accounts`` of the document of a plan or a run.
    """
    models = accounts["sources"]
    fully_used = [model for model in models if model["used"] == model["tensors"]]
    if fully_used:
        yield "every tensor is used: " + ", ".join(
            f"{model['tensors']} of {model['model']}" for model in fully_used
        )
    for model in models:
        if model["used"] < model["tensors"]:
            reasons = "; ".join(map(reason_line, model["reasons"]))
            used_text = (
                f"{model['used']} of {model['tensors']} tensors of {model['model']} are used"
            )
            yield f"{used_text}; not used: {reasons}"


def reason_line(reason: Mapping[str, Any]) -> str:
    """Return the number of tensors with a reason, the reason, and names of them, as text."""
    phrase = REASONS[reason["reason"]].phrase
    return f"{reason['tensors']} {phrase} ({some(reason['names'], most=SHOWN)})"
