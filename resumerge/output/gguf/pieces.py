"""The scores of SentencePiece's pieces, from the merges of a tokenizer.json.

llama.cpp joins the two neighbours whose piece has the highest score, whatever they are; a BPE of
tokenizer.json joins those whose merge comes first. Both do the same if the merges of a piece follow
each other, and every way to make a piece of two others is a merge: as in what transformers converts
SentencePiece's models to. That is checked here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

import numpy as np

_BYTE = re.compile("<0x[0-9A-F]{2}>")

LOWEST = -1000.0
"""The score of tokens that text is never joined to, as in llama.cpp's converter."""


def scores_of(
    ids: Mapping[str, int], merges: Iterable[tuple[str, str]], rows: int
) -> np.ndarray | None:
    """Return the scores of pieces, float32; None if no scores do what the merges do.

    Args:
        ids: the numbers of the pieces that text is joined to.
        merges: the merges, in their order.
        rows: the number of scores.
    """
    scores = np.full(rows, LOWEST, np.float32)
    ways: dict[str, set[int]] = {}
    last = ""
    for left, right in merges:
        piece = left + right
        if piece != last:
            if piece in ways or piece not in ids:
                return None
            scores[ids[piece]] = -float(len(ways))
            ways[piece], last = set(), piece
        ways[piece].add(len(left))
    made = all(ways.get(piece, set()) == _cuts(piece, ids) for piece in ids)
    return scores if made else None


def _cuts(piece: str, ids: Collection[str]) -> set[int]:
    """Return the places where a piece can be cut into two others."""
    return {n for n in range(1, len(piece)) if piece[:n] in ids and piece[n:] in ids}


def is_byte(token: str) -> bool:
    """Return whether a token stands for one byte."""
    return _BYTE.fullmatch(token) is not None
