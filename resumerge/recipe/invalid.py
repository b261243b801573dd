"""How a reader of one value says that the value is unfit; who called it knows the place."""

from __future__ import annotations

from collections.abc import Sequence


class InvalidValue(Exception):
    """A value that cannot be used.

    Args:
        what: one sentence, what is wrong.
        at: keys and indices that lead from the value handed in to the part that is wrong.

    Attributes:
        further: what else is unfit in the value handed in.
    """

    def __init__(
        self,
        what: str,
        *,
        expected: str = "",
        found: str = "",
        fix: str = "",
        at: Sequence[str | int] = (),
    ) -> None:
        super().__init__(what)
        self.what = what
        self.expected = expected
        self.found = found
        self.fix = fix
        self.at = tuple(at)
        self.further: Sequence[InvalidValue] = ()

    @classmethod
    def all_of(cls, unfits: Sequence[InvalidValue]) -> InvalidValue:
        """The first, which speaks for the others too."""
        unfits[0].further = unfits[1:]
        return unfits[0]


def describe(value: object) -> str:
    """A YAML value in a few words, for `found`."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, dict):
        return "a mapping with the keys " + (", ".join(map(str, value)) or "(none)")
    text = f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else text[:77] + "…"
