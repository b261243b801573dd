"""The reasons why a tensor of a model is not used."""

from __future__ import annotations

from enum import Enum


class UnusedReason(Enum):
    """A reason why a tensor of a model is not used. The members are all possible reasons.

    The value is the reason's name in ledgers and JSON. `phrase` describes the tensors to the user.
    """

    phrase: str

    def __new__(cls, value: str, phrase: str) -> UnusedReason:
        """Return a member with its name and its phrase."""
        member = object.__new__(cls)
        member._value_, member.phrase = value, phrase
        return member

    COMPUTED = "computed", "buffers that transformers computes"
    TIED = "tied", "tied to another tensor"
    REPLACED = "replaced", "replaced by the adapter"
    NOT_LOADED = "not_loaded", "copies and originals that peft does not load"
    TOKENIZER = "tokenizer", "of a model that gives its tokenizer alone"
    QUANTISATION = "quantisation", "that only say how weights, or activations, are quantised"
    NOT_MERGED = "not_merged", "of a base that the method does not read: it gives the config"
    NOT_CHOSEN = "not_chosen", "of layers or experts that are not chosen"
    FROM_ANOTHER = "from_another", "that the output has from another model"
    UNSHARED = "unshared", "that not all models have (--tensor-intersection)"
    UNCHANGED = "unchanged", "of modules that the base model has alike"
    NOT_EXTRACTED = "not_extracted", "of modules that the adapter is not to have"
    NO_PLACE = "no_place", "for which the architecture of the output has no place"


REASONS = {reason.value: reason for reason in UnusedReason}
"""The reasons by their names in ledgers and JSON."""

HARMLESS = frozenset(
    {
        UnusedReason.COMPUTED,
        UnusedReason.TIED,
        UnusedReason.REPLACED,
        UnusedReason.NOT_LOADED,
        UnusedReason.TOKENIZER,
        UnusedReason.QUANTISATION,
        UnusedReason.UNCHANGED,
    }
)
"""The reasons with which the output loses nothing. The tensor is computed or tied by transformers,
replaced by an adapter, not loaded by peft, or the same as the base's; it only describes a
quantisation; or only the tokenizer of its model is used."""
