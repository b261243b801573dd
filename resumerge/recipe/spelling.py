"""Finds the known name that is most similar to an unknown one, or that was misspelled."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable

SHORTEST = 3
"""The length of the shortest names that are compared: shorter names are similar to too many."""


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to `name`; None if no name is close.

    Case does not count.
    """
    names = {word.lower(): word for word in known}
    near = difflib.get_close_matches(name.lower(), list(names), n=1)
    return names[near[0]] if near else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``Did you mean 'x'?``, or an empty text where no known name is close."""
    found = closest(name, known)
    return f"Did you mean '{found}'?" if found else ""


def misspelled(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` is a misspelling of, or None.

    A misspelling is one edit away, or one for every four letters; case, dashes, spaces, quotation
    marks and characters that cannot be seen do not count, nor does what follows a colon.
    """
    written = _plain(name)
    most = {word: max(1, len(word) // 4) for word in known}
    candidates = [
        word
        for word in most
        if min(len(word), len(written)) >= SHORTEST
        and abs(len(word) - len(written)) <= most[word]  # each difference in length is an edit
    ]
    distances = {word: edits(written, _plain(word)) for word in candidates}
    near = [word for word, n in distances.items() if n <= most[word]]
    return min(near, key=distances.__getitem__, default=None)


def abbreviated(name: str, known: Iterable[str]) -> str | None:
    """Return the one known name that begins as `name` does, like ``parameters`` for ``params``."""
    stem = name.lower().rstrip("s")
    found = [word for word in known if word.startswith(stem)]
    return found[0] if len(stem) > SHORTEST and len(found) == 1 else None


def edits(a: str, b: str) -> int:
    """Return the least number of letters to insert, delete, replace, or swap with the next one.

    Optimal string alignment (Damerau 1964, Levenshtein 1966): no letter is edited twice.
    """
    rows = [list(range(len(b) + 1))]
    for i, letter in enumerate(a, 1):
        row = [i]
        for j, other in enumerate(b, 1):
            best = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == b[j - 2] and a[i - 2] == other:
                best = min(best, rows[-2][j - 2] + 1)
            row.append(best)
        rows.append(row)
    return rows[-1][-1]


def correction(name: str, meant: str) -> str:
    """Return how to write a key that is more than misspelled, or an empty text.

    It runs into its value, or has characters that look like others, or like nothing.

    Args:
        name: the key that is written.
        meant: what `misspelled` returned for it.
    """
    if ":" in name:
        return f"Write '{meant}: …', with a space after the colon"
    strange = [letter for letter in name if not letter.isascii()]
    if strange:
        codes = ", ".join(dict.fromkeys(f"U+{ord(letter):04X}" for letter in strange))
        return f"Did you mean '{meant}'? The key has {codes}, as formatted text has: type it again"
    return ""


def _plain(name: str) -> str:
    """Return the letters, digits and underscores of a name: of ``“a b”:{c`` the text ``a_b``."""
    key = unicodedata.normalize("NFKC", name).lower().partition(":")[0]
    return re.sub(r"\W+", "_", key).strip("_")
