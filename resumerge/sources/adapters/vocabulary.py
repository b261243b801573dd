"""Adapters that change rows of tokens, or add tokens.

With new tokens, tensors with a row or an element for each token grow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from resumerge.sources.adapter_programs.config import TokenIndices
from resumerge.sources.adapters.refusals import Refusals
from resumerge.sources.adapters.weight_tying import AdapterTies
from resumerge.sources.tied_names import is_embedding
from resumerge.sources.tied_weights import is_head
from resumerge.tensors import Gathered, Rounded, Stacked, Tensor
from resumerge.tensors.generated.filled import Filled
from resumerge.tensors.rows import Rows

_PADDED = "final_logits_bias"
"""The name of a bias of the logits that belongs to no module; its shape is (1, tokens)."""


def check_tokens(
    tensors: Mapping[str, Tensor], of_base: Mapping[str, Tensor], refusals: Refusals
) -> None:
    """Check that an adapter with new tokens extends both embedding and head.

    Args:
        tensors: the model's tensors as the adapter changes them, by name.
        of_base: the model's tensors without the adapter, by name.
        refusals: the collector of problems, to which misfits are added; none is raised.
    """
    tables = [name for name in of_base if is_embedding(name) or is_head(name)]
    grown_by_old_shape = {
        base.shape: name
        for name in tables
        for base in [of_base[name]]
        if tensors[name].shape != base.shape and tensors[name].shape[1:] == base.shape[1:] != ()
    }
    for name in tables:
        larger = grown_by_old_shape.get(tensors[name].shape)
        if larger is not None:
            refusals.problem(
                "The adapter adds tokens to one of embedding and head alone",
                name,
                expected=f"{tensors[larger].shape[0]} rows, as {larger} has with the adapter",
                found=f"{tensors[name].shape[0]} rows",
                fix="save the adapter again with save_embedding_layers=True, or name both in "
                "modules_to_save",
            )


def grow_biases_of_heads(tensors: dict[str, Tensor], ties: AdapterTies, refusals: Refusals) -> None:
    """Extend biases with an element for each token to the number of rows of the grown embedding.

    A bias that is tied to a bias of the new length is replaced by this bias. The bias that
    transformers pads with zeros and peft does not save is padded. Any other bias is refused, except
    if its weight did not grow: its length then equals the number of tokens only by chance.

    Args:
        tensors: the model's tensors as the adapter changes them, by name; biases are replaced in
            place.
        ties: the model's tensors before the adapter.
        refusals: the collector of problems, to which misfits are added; none is raised.
    """
    new_row_counts = {
        base.shape[0]: tensors[name].shape[0]
        for name, base in ties.tensors.items()
        if is_embedding(name) and tensors[name].shape[:1] > base.shape[:1] > ()
    }
    for name, bias in list(tensors.items()):
        weight = tensors.get(f"{name.rpartition('.')[0]}.weight")
        token_count = new_row_counts.get(bias.numel)
        if token_count is None or not name.endswith("bias"):
            continue
        tied_biases = (tensors[n] for n in ties.others(name) if tensors[n].numel == token_count)
        if extended_bias := next(tied_biases, None):
            tensors[name] = replace(extended_bias, name=name)
        elif name.endswith(_PADDED) and bias.shape[0] == 1:
            zeros = Filled(name, bias.dtype, (1, token_count - bias.numel), 0.0)
            tensors[name] = Stacked.of(name, (1, token_count), (bias, zeros))
        elif weight is None or weight.shape[:1] == (token_count,):
            refusals.mismatch(
                name, f"{token_count} elements, because the adapter adds tokens", bias
            )


def tokens_of(module: str, indices: TokenIndices) -> Sequence[int]:
    """Return the tokens whose rows of a module are trained; empty if the config lists none."""
    if not isinstance(indices, Mapping):
        return indices
    matching_endings = [ending for ending in indices if f".{module}".endswith(f".{ending}")]
    return indices[max(matching_endings, key=len)] if matching_endings else ()


def with_rows(name: str, table: Tensor, delta: Tensor, tokens: Sequence[int]) -> Tensor | None:
    """Return a table in which an adapter's rows replace the rows of some tokens.

    Args:
        name: the name of the new table; the model's name of the old one.
        table: shape (tokens, width).
        delta: the new rows: shape (len(tokens), width).
        tokens: for each new row, the number of the row that it replaces.

    Returns:
        the new table, in the old table's dtype; None if the rows do not fit.
    """
    row_count = table.shape[0] if len(table.shape) == 2 else 0
    has_fitting_rows = delta.shape == (len(tokens), *table.shape[1:]) and len(set(tokens)) == len(
        tokens
    )
    if not tokens or not has_fitting_rows or not all(0 <= token < row_count for token in tokens):
        return None
    origins, firsts = np.zeros(row_count, np.int64), np.arange(row_count, dtype=np.int64)
    origins[list(tokens)] = 1
    firsts[list(tokens)] = np.arange(len(tokens))
    no_averages = (np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))
    gathered_rows = Gathered.of(
        name, table.shape, (table, delta), Rows.of(origins, firsts, row_count, no_averages)
    )
    return Rounded.of(gathered_rows, table.dtype, takes_operand=True)
