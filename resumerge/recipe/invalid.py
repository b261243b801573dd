"""The error that a reader of one value raises. The caller adds the file and the line."""

from __future__ import annotations

from collections.abc import Sequence

Location = tuple[str | int, ...]
"""The keys and list indices that lead from the top of a document to a value."""


class InvalidValue(Exception):
    """The error for a value that cannot be used.

    Args:
        what: the mistake, in one sentence.
        expected: a description of valid values.
        found: the value, as text.
        fix: advice on the correction.
        paste: lines that can be copied into the recipe.
        at: the keys and list indices that lead from the value to its invalid part.
    """

    def __init__(
        self,
        what: str,
        *,
        expected: str = "",
        found: str = "",
        fix: str = "",
        paste: str = "",
        at: Sequence[str | int] = (),
    ) -> None:
        super().__init__(what)
        self.what = what
        self.expected = expected
        self.found = found
        self.fix = fix
        self.paste = paste
        self.at: Location = tuple(at)


class Findings(list[InvalidValue]):
    """The errors in a document, and in `ignored` the locations of keys that nothing reads."""

    def __init__(self) -> None:
        super().__init__()
        self.ignored: list[Location] = []


def describe(value: object) -> str:
    """Return a YAML value as text of at most about 80 characters, for `InvalidValue.found`."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, dict):
        return "a mapping with the keys " + (", ".join(map(str, value)) or "(none)")
    text = f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else text[:77] + "…"
