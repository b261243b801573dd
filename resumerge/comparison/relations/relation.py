"""The base class of relations between two tensors, with the sentence on each relation."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

Details = Mapping[str, Any]
"""The numbers of a relation, as the journal stores them."""

Compared = Mapping[str, Any]
"""The entry of one tensor of a pair in the document."""

AGREE = 0.99
"""The least share of elements that agree with a relation for a tensor to have it."""


def at_least(share: float) -> str:
    """Return a share as a lower bound in percent, which is never rounded up."""
    return f"{math.floor(10_000 * share) / 100:.2f}% or more"


class Relation(ABC):
    """A relation that the second of two tensors may have to the first."""

    name: ClassVar[str]
    """The name of the relation in a tensor's entry of the document."""

    word: ClassVar[str] = "different"
    """The word for a pair of models if all their unequal tensors have this relation."""

    @abstractmethod
    def details(self, sums: Mapping[str, Any], not_finite: int) -> Details | None:
        """Return the numbers of the relation if two tensors have it; None if they do not.

        Args:
            sums: the sums of the pair, in the tensor's row.
            not_finite: the number of elements of both that are NaN or infinite.
        """

    @abstractmethod
    def sentence(self, tensors: Sequence[Compared], total: int, first: str, second: str) -> str:
        """Return the sentence on the tensors of a pair that have the relation.

        Args:
            tensors: these tensors, at least one.
            total: the number of all tensors of the pair.
            first: the name of the first model.
            second: the name of the second model.
        """


class MeasuredRelation(Relation):
    """A relation with evidence of its own, which a row of the journal stores under `key`."""

    key: ClassVar[str]

    @abstractmethod
    def holds(self, found: Details) -> bool:
        """Return whether the evidence is sufficient."""

    def details(self, sums: Mapping[str, Any], not_finite: int) -> Details | None:
        found: Details | None = sums.get(self.key)
        return found if sums["differing"] and found is not None and self.holds(found) else None


def tensors_are(tensors: Sequence[Compared], total: int) -> str:
    """Return the subject and the verb of a sentence on some of the pair's tensors."""
    if len(tensors) == total:
        return f"All {total} tensors are" if total > 1 else "The only tensor is"
    return f"{len(tensors)} of {total} tensors " + ("is" if len(tensors) == 1 else "are")


def narrow_and_exact(details: Sequence[Details], first: str, second: str) -> tuple[str, str]:
    """Return the model with the narrower numbers in most tensors, and the other model."""
    forward = sum(found["of_first"] for found in details)
    return (second, first) if 2 * forward >= len(details) else (first, second)
