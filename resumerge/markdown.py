"""Text from elsewhere as Markdown that says the same, whatever is in it."""

from __future__ import annotations

import re

from resumerge.printable import printable


def in_fence(text: str, language: str) -> list[str]:
    """Return the lines of text as a block of code of Markdown, whatever it contains."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return [f"{fence}{language}", text.strip(), fence]


def code_span(text: str, *, in_table: bool = False) -> str:
    """Return text as a code span of Markdown, whatever it contains."""
    text = printable(text)
    if in_table:
        text = text.replace("|", r"\|")  # which ends a cell, also in code
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence} {text} {fence}" if "`" in text else f"`{text}`"


def escaped(name: str) -> str:
    """Return a name as text of Markdown, not as markup or HTML."""
    return re.sub(
        r"[\\`*\[\]<>&|~#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", printable(name)
    )
