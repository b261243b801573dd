"""Lines about the numbers of a merge, and their changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def whole_line(accounts: Mapping[str, Any]) -> str:
    """Return a line about the change of all tensors; empty without changes or measurements.

    Args:
        accounts: the part ``accounts`` of the document of a run, of which ``numbers`` is read.
    """
    numbers = accounts["numbers"]
    return ", ".join(_of_all(numbers)) if numbers else ""


def model_lines(accounts: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each model about its part in the change; no line without measurements.

    Args:
        accounts: the part ``accounts`` of the document of a run, of which ``numbers`` is read.
    """
    for model in (accounts["numbers"] or {"models": ()})["models"]:
        if facts := ", ".join(_of_model(model)):
            yield f"{model['model']}: {facts}"


def _of_all(numbers: Mapping[str, Any]) -> Iterator[str]:
    estimate = numbers["estimate"]
    if estimate["moved"] or (numbers["models"] and estimate["moved"] is not None):
        yield f"about {estimate['moved']:.0%} of the elements were to change"
    if estimate["lost"]:
        yield f"{_share(estimate['lost'])} of these did not, because of rounding"
        yield f"the whole change has {estimate['survived']:.0%} of its length"
    if estimate["conflicts"]:
        yield f"models contradict each other in the signs of {_share(estimate['conflicts'])}"


def _of_model(model: Mapping[str, Any]) -> Iterator[str]:
    equal_tensors, estimate = model["exact"]["equal"], model["estimate"]
    if equal_tensors:
        yield f"{equal_tensors} of {model['tensors']} tensors equal {model['reference']}"
    if estimate["differs"]:
        yield f"about {estimate['differs']:.0%} of the elements differ from {model['reference']}"
    if estimate["cosine"] is not None:
        yield f"cosine with the change {estimate['cosine']:.2f}"


def _share(share: float) -> str:
    """Return a share above zero in percent; ``less than 1%`` for one that would be rounded to 0."""
    return f"{share:.0%}" if share >= 0.005 else "less than 1%"
