"""An adapter that adds tokens: all that has a row or an element for each token has to grow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from resumerge.sources.adapters.refusals import Refusals
from resumerge.sources.adapters.weight_tying import AdapterTies
from resumerge.sources.tied_names import is_embedding
from resumerge.sources.tied_weights import is_head
from resumerge.tensors import Stacked, Tensor
from resumerge.tensors.generated.filled import Filled

_PADDED = "final_logits_bias"
"""A bias of the logits that is no parameter of a module: shape (1, tokens)."""


def check_tokens(
    found: Mapping[str, Tensor], of_base: Mapping[str, Tensor], refusals: Refusals
) -> None:
    """Check that embedding and head grow together: each has a row for every token."""
    tables = [name for name in of_base if is_embedding(name) or is_head(name)]
    grown = {
        old.shape: name
        for name in tables
        for old in [of_base[name]]
        if found[name].shape != old.shape and found[name].shape[1:] == old.shape[1:] != ()
    }
    for name in tables:
        other = grown.get(found[name].shape)
        if other is not None:
            refusals.problem(
                "The adapter adds tokens to one of embedding and head alone",
                name,
                expected=f"{found[other].shape[0]} rows, as {other} has with the adapter",
                found=f"{found[name].shape[0]} rows",
                fix="save the adapter again with save_embedding_layers=True, or name both in "
                "modules_to_save",
            )


def grow_biases_of_heads(found: dict[str, Tensor], ties: AdapterTies, refusals: Refusals) -> None:
    """Give a vector with an element for each token as many as the embedding has now.

    One that is tied to such a vector is that one; one that transformers pads with zeros, and
    peft does not save, is padded here. Another one is refused, unless its weight did not grow: then
    it has as many elements as the model has tokens by chance.

    Args:
        found: the model's tensors as the adapter changes them, by name; they are changed here.
        ties: the model's tensors before.
        refusals: what is wrong is added to them.
    """
    grown = {
        old.shape[0]: found[name].shape[0]
        for name, old in ties.tensors.items()
        if is_embedding(name) and found[name].shape[:1] > old.shape[:1] > ()
    }
    for name, info in list(found.items()):
        weight = found.get(f"{name.rpartition('.')[0]}.weight")
        more = grown.get(info.numel)
        if more is None or not name.endswith("bias"):
            continue
        tied = (found[n] for n in ties.others(name) if found[n].numel == more)
        if like := next(tied, None):
            found[name] = replace(like, name=name)
        elif name.endswith(_PADDED) and info.shape[0] == 1:
            zeros = Filled(name, info.dtype, (1, more - info.numel), 0.0)
            found[name] = Stacked.of(name, (1, more), (info, zeros))
        elif weight is None or weight.shape[:1] == (more,):
            refusals.mismatch(name, f"{more} elements, because the adapter adds tokens", info)
