"""The base classes of relations between two tensors, and of the evidence for them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from resumerge.comparison.values import Two

Details = Mapping[str, Any]
"""The numbers of a relation, as the journal stores them."""

Compared = Mapping[str, Any]
"""The entry of one tensor of a pair in the document."""

FEW_ROWS = 32
"""The most rows of a matrix that all evidence examines first."""

MORE_ROWS = 128
"""The most rows that evidence gets if it asks: they reveal ranks up to about half this number."""

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
            sums: the pair's part of the tensor's row: its sums, and the numbers of the evidence.
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


class Evidence(ABC):
    """The evidence for a relation of two tensors, collected while both are read once."""

    @abstractmethod
    def propose(self, few: Two, more: Callable[[], Two]) -> None:
        """Examine some rows of two matrices that differ in them, before any elements are added.

        Args:
            few: at most about `FEW_ROWS` rows.
            more: returns more rows, at most `MORE_ROWS`.
        """

    @abstractmethod
    def add(self, two: Callable[[], Two]) -> None:
        """Add further elements, of which at least one differs.

        Args:
            two: returns the elements, whole rows of a matrix. Evidence that needs no single
                elements does not call it, because their conversion takes time.
        """

    @abstractmethod
    def as_json(self, change: float, elements: int, differing: int) -> dict[str, Any] | None:
        """Return the numbers for the journal; None without evidence.

        Args:
            change: the sum of squares of the whole difference.
            elements: the number of all elements of the tensor, also of those that do not differ.
            differing: the number of its elements that are not 0.
        """


class MeasuredRelation(Relation):
    """A relation with evidence of its own, which a row of the journal stores under `key`."""

    key: ClassVar[str]

    @abstractmethod
    def new_evidence(self, dtypes: tuple[str, str]) -> Evidence:
        """Return evidence for two tensors, of which no element has been read.

        Args:
            dtypes: the stored types of both tensors, by safetensors' names.
        """

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
