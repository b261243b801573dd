"""The scores of SentencePiece's pieces, from the merges of a tokenizer.json.

llama.cpp joins the two neighbours whose joined piece has the highest score. A BPE of tokenizer.json
joins the two neighbours whose merge comes first in the list. The results are equal under two
conditions: all merges that make the same piece are adjacent in the list, and every pair of pieces
that makes a piece is a merge. Transformers' conversions of SentencePiece's models meet both
conditions. `scores_of` checks them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

import numpy as np

_BYTE = re.compile("<0x[0-9A-F]{2}>")

LOWEST = -1000.0
"""The score of tokens that merges never produce, as in llama.cpp's converter."""


def scores_of(
    ids: Mapping[str, int], merges: Iterable[tuple[str, str]], rows: int
) -> np.ndarray | None:
    """Return the scores of pieces, float32; None if no scores are equivalent to the merges.

    Args:
        ids: the id of each piece that merges can produce.
        merges: the two pieces of each merge, in order of priority.
        rows: the number of scores to return, one for each token id.
    """
    scores = np.full(rows, LOWEST, np.float32)
    known_cuts: dict[str, set[int]] = {}
    last_piece = ""
    for left, right in merges:
        piece = left + right
        if piece != last_piece:
            if piece in known_cuts or piece not in ids:
                return None
            scores[ids[piece]] = -float(len(known_cuts))
            known_cuts[piece], last_piece = set(), piece
        known_cuts[piece].add(len(left))
    is_equivalent = all(known_cuts.get(piece, set()) == _cuts(piece, ids) for piece in ids)
    return scores if is_equivalent else None


def _cuts(piece: str, ids: Collection[str]) -> set[int]:
    """Return the positions at which a piece can be divided into two other pieces."""
    return {n for n in range(1, len(piece)) if piece[:n] in ids and piece[n:] in ids}


def is_byte(token: str) -> bool:
    """Return whether a token represents one byte, such as ``<0x0A>``."""
    return _BYTE.fullmatch(token) is not None
