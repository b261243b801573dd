"""Rows of single tokens that an adapter trains, in the place of the embedding's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from resumerge.sources.adapter_programs.config import TokenIndices
from resumerge.tensors import Gathered, Rounded, Tensor
from resumerge.tensors.rows import Rows


def tokens_of(module: str, indices: TokenIndices) -> Sequence[int]:
    """Return the tokens whose rows of a module are trained; none if the config names none."""
    if not isinstance(indices, Mapping):
        return indices
    named = [end for end in indices if f".{module}".endswith(f".{end}")]
    return indices[max(named, key=len)] if named else ()


def with_rows(name: str, table: Tensor, delta: Tensor, tokens: Sequence[int]) -> Tensor | None:
    """Return a table in which the rows of some tokens are those of an adapter.

    Args:
        name: the result's name.
        table: shape (tokens, width).
        delta: the new rows: shape (len(tokens), width).
        tokens: the number of the row that each of the new rows replaces.

    Returns:
        the table, in its dtype; None if the rows do not fit.
    """
    rows = table.shape[0] if len(table.shape) == 2 else 0
    fits = delta.shape == (len(tokens), *table.shape[1:]) and len(set(tokens)) == len(tokens)
    if not tokens or not fits or not all(0 <= token < rows for token in tokens):
        return None
    origins, firsts = np.zeros(rows, np.int64), np.arange(rows, dtype=np.int64)
    origins[list(tokens)] = 1
    firsts[list(tokens)] = np.arange(len(tokens))
    none = (np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))
    gathered = Gathered.of(name, table.shape, (table, delta), Rows.of(origins, firsts, rows, none))
    return Rounded.of(gathered, table.dtype, takes_operand=True)
