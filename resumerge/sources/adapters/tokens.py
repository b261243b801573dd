"""Rows of single tokens that an adapter trains to replace rows of the embedding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from resumerge.sources.adapter_programs.config import TokenIndices
from resumerge.tensors import Gathered, Rounded, Tensor
from resumerge.tensors.rows import Rows


def tokens_of(module: str, indices: TokenIndices) -> Sequence[int]:
    """Return the tokens whose rows of a module are trained; empty if the config lists none."""
    if not isinstance(indices, Mapping):
        return indices
    endings = [end for end in indices if f".{module}".endswith(f".{end}")]
    return indices[max(endings, key=len)] if endings else ()


def with_rows(name: str, table: Tensor, delta: Tensor, tokens: Sequence[int]) -> Tensor | None:
    """Return a table in which an adapter's rows replace the rows of some tokens.

    Args:
        name: the result's name.
        table: shape (tokens, width).
        delta: the new rows: shape (len(tokens), width).
        tokens: for each new row, the number of the row that it replaces.

    Returns:
        the new table, in the old table's dtype; None if the rows do not fit.
    """
    rows = table.shape[0] if len(table.shape) == 2 else 0
    fits = delta.shape == (len(tokens), *table.shape[1:]) and len(set(tokens)) == len(tokens)
    if not tokens or not fits or not all(0 <= token < rows for token in tokens):
        return None
    origins, firsts = np.zeros(rows, np.int64), np.arange(rows, dtype=np.int64)
    origins[list(tokens)] = 1
    firsts[list(tokens)] = np.arange(len(tokens))
    no_averages = (np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))
    gathered = Gathered.of(
        name, table.shape, (table, delta), Rows.of(origins, firsts, rows, no_averages)
    )
    return Rounded.of(gathered, table.dtype, takes_operand=True)
