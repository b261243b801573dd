"""Relations that follow from counts alone: equal, different, and equal where both are finite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from resumerge.comparison.relations.relation import Compared, Details, Relation, tensors_are
from resumerge.sizes import counted


class Equal(Relation):
    """Equal in every number."""

    name = "equal"
    word = "copy"

    def details(self, sums: Mapping[str, Any], not_finite: int) -> Details | None:
        return None if sums["differing"] or not_finite else {}

    def sentence(self, tensors: Sequence[Compared], total: int, first: str, second: str) -> str:
        types = any(tensor["dtypes"][0] != tensor["dtypes"][1] for tensor in tensors)
        stored = ", though some are stored in another type" if types else ""
        return f"{tensors_are(tensors, total)} equal in every number{stored}"


class Different(Relation):
    """Different, without any of the other relations."""

    name = "different"

    def details(self, sums: Mapping[str, Any], not_finite: int) -> Details | None:
        return {} if sums["differing"] else None

    def sentence(self, tensors: Sequence[Compared], total: int, first: str, second: str) -> str:
        measured_tensors = [tensor for tensor in tensors if tensor["relative_l2"] is not None]
        farthest = max(measured_tensors, key=lambda tensor: tensor["relative_l2"], default=None)
        text = f"{tensors_are(tensors, total)} different, by no relation that is looked for"
        if farthest is None:
            return text
        example = f"{farthest['name']}, with a relative L2 of {farthest['relative_l2']:.3g}"
        return f"{text}; most of all {example}"


class NotFinite(Relation):
    """Equal where both tensors have finite numbers; other elements cannot be compared."""

    name = "not finite"

    def details(self, sums: Mapping[str, Any], not_finite: int) -> Details | None:
        return {"elements": not_finite} if not_finite and not sums["differing"] else None

    def sentence(self, tensors: Sequence[Compared], total: int, first: str, second: str) -> str:
        count = sum(tensor["details"]["elements"] for tensor in tensors)
        return (
            f"{tensors_are(tensors, total)} equal where both have finite numbers; "
            f"{counted(count, 'element')} NaN or infinite, like in {tensors[0]['name']}"
        )
