"""Matches the tensor names of two models that differ by a wrapper, like ``bert.``.

There is no table of prefixes. Two names match if their ends are equal, and if one beginning is the
other with added or reordered words (``model.language_model.`` and ``language_model.model.``,
``bert.`` and nothing). The most common difference is applied first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Rename:
    """A prefix of names in one model, and the prefix that replaces it in another."""

    ours: str
    theirs: str

    def __str__(self) -> str:
        return f"the prefix {self.theirs or '(none)'} in place of {self.ours or '(none)'}"


def match_names(
    ours: Collection[str], theirs: Collection[str]
) -> tuple[dict[str, str], list[Rename]]:
    """Find another model's names for our tensors whose names the other model lacks.

    Returns:
        The other model's name by our name, for the tensors that were found; and the prefixes that
        differ, the most common first. Each name of the other model is used once.
    """
    unmatched_names = set(theirs) - set(ours)
    missing_names = [name for name in ours if name not in theirs]
    if not unmatched_names or not missing_names:
        return {}, []
    names_by_end: dict[str, list[str]] = defaultdict(list)
    for name in unmatched_names:
        for _, end in _cuts(name):
            names_by_end[end].append(name)
    votes: Counter[Rename] = Counter()
    for name in missing_names:
        rename = _longest_end(name, names_by_end)
        if rename is not None:
            votes[rename] += 1
    names: dict[str, str] = {}
    used_renames: list[Rename] = []
    for rename, _ in sorted(votes.items(), key=lambda item: (-item[1], str(item[0]))):
        for name in missing_names:
            if name in names or not name.startswith(rename.ours):
                continue
            their_name = rename.theirs + name.removeprefix(rename.ours)
            if their_name in unmatched_names:
                unmatched_names.discard(their_name)
                names[name] = their_name
                if rename not in used_renames:
                    used_renames.append(rename)
    return names, used_renames


def _longest_end(name: str, by_end: dict[str, list[str]]) -> Rename | None:
    """Return the rename with the longest common end, if the names differ by one wrapper."""
    for beginning, end in _cuts(name):
        if end in by_end:
            candidates = by_end[end]
            if len(candidates) > 1:
                return None
            rename = Rename(beginning, candidates[0].removesuffix(end))
            return rename if _is_wrapper(rename) else None
    return None


def _cuts(name: str) -> Iterator[tuple[str, str]]:
    """Yield the cuts of a name into (beginning, end).

    The end always contains the layer's number or, in a name without numbers, the last two words.
    """
    parts = name.split(".")
    numbers = [i for i, part in enumerate(parts) if part.isdecimal()]
    last_cut = numbers[0] if numbers else max(len(parts) - 2, 0)
    for i in range(last_cut + 1):
        yield "".join(part + "." for part in parts[:i]), ".".join(parts[i:])


def _is_wrapper(rename: Rename) -> bool:
    ours, theirs = (Counter(side.split(".")) for side in (rename.ours, rename.theirs))
    return not (ours - theirs) or not (theirs - ours)
