"""The evidence for relations that hold for single elements.

The first differing elements propose a relation, which is then counted over all following elements.
The share of agreeing elements in the journal is never an estimate from a sample.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

from resumerge.comparison.relations.relation import Evidence
from resumerge.comparison.values import Two

_FIRST_ELEMENTS = 1 << 12
"""The number of elements, from the first differing one on, that propose relations."""

_PROPOSED = 0.98
"""The least share of these elements that agree with a relation for it to be proposed."""


class ElementCount(ABC):
    """The count of elements that agree with one form of a relation, such as one factor.

    Attributes:
        agreeing: the counted elements that agree.
        counted: all counted elements.
    """

    def __init__(self) -> None:
        self.agreeing = self.counted = 0

    @classmethod
    @abstractmethod
    def proposed(cls, two: Two) -> Self | None:
        """Return a new count for the form that these elements show; None if they show none."""

    @abstractmethod
    def add(self, two: Two) -> None:
        """Count further elements."""

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """Return the numbers for the journal."""

    @property
    def share(self) -> float:
        """The share of the counted elements that agree."""
        return self.agreeing / self.counted

    def is_shown_by(self, two: Two) -> bool:
        """Count these elements, and return whether they propose the form."""
        self.add(two)
        return self.agreeing >= _PROPOSED * self.counted


class ElementEvidence(Evidence):
    """The evidence for a relation of single elements.

    Args:
        kind: the class that counts them.
    """

    def __init__(self, kind: type[ElementCount]) -> None:
        self._kind = kind
        self._count: ElementCount | None = None
        self._has_begun = False

    def propose(self, few: Two, more: Callable[[], Two]) -> None:
        """Do nothing: the first differing elements propose the relation, also in vectors."""

    def add(self, two: Callable[[], Two]) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._count = self._kind.proposed(two().beginning(_FIRST_ELEMENTS))
        if self._count is not None:
            self._count.add(two())

    def as_json(self, change: float, elements: int, differing: int) -> dict[str, Any] | None:
        return None if self._count is None else self._count.as_json()
