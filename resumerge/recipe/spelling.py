"""The search for the known name that an unknown name resembles, abbreviates or misspells."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable

SHORTEST = 3
"""The length of the shortest names that are compared; shorter names resemble too many others."""


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most similar to `name`, regardless of case; None if none is close."""
    names = {word.lower(): word for word in known}
    near_names = difflib.get_close_matches(name.lower(), list(names), n=1)
    return names[near_names[0]] if near_names else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``Did you mean 'x'?`` with the closest known name; "" if no known name is close."""
    match = closest(name, known)
    return f"Did you mean '{match}'?" if match else ""


def misspelled(name: str, known: Iterable[str]) -> str | None:
    """Return the known name of which `name` is a misspelling, or None.

    A misspelling differs from a known name by at most one edit for every four letters of the known
    name; one edit is always allowed. Case, dashes, spaces, quotation marks, invisible characters,
    and the text after a colon are ignored.
    """
    plain_name = _plain(name)
    most_edits = {word: max(1, len(word) // 4) for word in known}
    candidates = [
        word
        for word in most_edits
        if min(len(word), len(plain_name)) >= SHORTEST
        and abs(len(word) - len(plain_name)) <= most_edits[word]  # a letter more or less is an edit
    ]
    distances = {word: edits(plain_name, _plain(word)) for word in candidates}
    near_words = [word for word, n in distances.items() if n <= most_edits[word]]
    return min(near_words, key=distances.__getitem__, default=None)


def abbreviated(name: str, known: Iterable[str]) -> str | None:
    """Return the only known name that starts with `name` without its final ``s``, or None.

    For example, ``param`` and ``params`` are abbreviations of ``parameters``.
    """
    stem = name.lower().rstrip("s")
    matches = [word for word in known if word.startswith(stem)]
    return matches[0] if len(stem) > SHORTEST and len(matches) == 1 else None


def edits(a: str, b: str) -> int:
    """Return the smallest number of edits between two texts.

    An edit inserts, deletes or replaces a letter, or swaps it with the next letter. The number is
    the optimal string alignment distance (Damerau 1964, Levenshtein 1966): no letter is edited
    twice.
    """
    rows = [list(range(len(b) + 1))]
    for i, letter in enumerate(a, 1):
        row = [i]
        for j, other_letter in enumerate(b, 1):
            fewest_edits = min(
                rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (letter != other_letter)
            )
            if i > 1 and j > 1 and letter == b[j - 2] and a[i - 2] == other_letter:
                fewest_edits = min(fewest_edits, rows[-2][j - 2] + 1)
            row.append(fewest_edits)
        rows.append(row)
    return rows[-1][-1]


def correction(name: str, meant: str) -> str:
    """Return advice on a key that differs from the known key in more than letters; else "".

    Such a key runs into its value, or contains characters that look like others or are invisible.

    Args:
        name: the key as the recipe has it, with any character around or after it.
        meant: the known key that `misspelled` returned for `name`.
    """
    if ":" in name:
        return f"Write '{meant}: …', with a space after the colon"
    strange_letters = [letter for letter in name if not letter.isascii()]
    if strange_letters:
        codes = ", ".join(dict.fromkeys(f"U+{ord(letter):04X}" for letter in strange_letters))
        return f"Did you mean '{meant}'? The key has {codes}, as formatted text has: type it again"
    return ""


def _plain(name: str) -> str:
    """Return the letters, digits and underscores of a name: ``a_b`` for ``“a b”:{c``."""
    key = unicodedata.normalize("NFKC", name).lower().partition(":")[0]
    return re.sub(r"\W+", "_", key).strip("_")
