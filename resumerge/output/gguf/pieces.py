"""The scores of SentencePiece's pieces, from the merges of a tokenizer.json.

llama.cpp joins the two neighbours whose joined piece has the highest score. A BPE of tokenizer.json
joins the two whose merge comes first. The results are the same if all merges that make a piece
follow each other, and if every pair of pieces that makes a piece is a merge: as in transformers'
conversions of SentencePiece's models. That is checked here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

import numpy as np

_BYTE = re.compile("<0x[0-9A-F]{2}>")

LOWEST = -1000.0
"""The score of tokens that joining text never makes, as in llama.cpp's converter."""


def scores_of(
    ids: Mapping[str, int], merges: Iterable[tuple[str, str]], rows: int
) -> np.ndarray | None:
    """Return the scores of pieces, float32; None if no scores are equivalent to the merges.

    Args:
        ids: the numbers of the pieces that joining text can make.
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
