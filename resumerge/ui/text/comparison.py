"""The numbers and sentences of a comparison, for terminals and pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resumerge.sizes import counted

CAUTION = (
    "Cosine and sign conflict say how the changes lie to each other, not how good a merge of them "
    "will be: they predict little of it (arXiv 2601.22285)."
)


def labels(document: Mapping[str, Any]) -> list[str]:
    """Return a short name for each model: the last part of its reference.

    Equal names are followed by the index of the model.
    """
    ends = [model["model"].rstrip("/").rpartition("/")[2] for model in document["models"]]
    return [end if ends.count(end) == 1 else f"{end} ({n})" for n, end in enumerate(ends)]


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with `digits` significant digits; a dash for None."""
    return "–" if value is None else f"{value:.{digits}g}"


def part_in_percent(part: int, whole: int) -> str:
    """Return a part of a whole in percent; ``0%`` and ``100%`` only for exact values."""
    if not part or part == whole:
        return "100%" if part else "0%"
    percent = 100 * part / whole
    if percent > 99.9:  # three digits would make it 100
        return ">99.99%" if percent > 99.99 else f"{percent:.2f}%"
    return "<0.01%" if percent < 0.01 else f"{percent:.3g}%"


def tokens_sentence(tokens: Mapping[str, Any] | None) -> str:
    """Return a sentence about two vocabularies; empty if a model has no tokenizer."""
    if tokens is None:
        return ""
    if tokens["same"]:
        return f"The tokenizers have the same {tokens['tokens'][0]:,} tokens"
    parts = [
        f"{counted(tokens[key]['count'], 'token')} {phrase}, like {tokens[key]['examples'][0]!r}"
        for key, phrase in (
            ("moved", "with another id"),
            ("only_first", "only in the first"),
            ("only_second", "only in the second"),
        )
        if tokens[key]["count"]
    ]
    return f"The tokenizers differ: {'; '.join(parts)}"
