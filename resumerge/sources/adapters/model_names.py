"""Finds a tensor of a model by its name, whichever program spells it.

A model's tensors have other names in its files than in memory, and transformers has changed both
more than once (its `conversion_mapping.py`, and the prefix of a model's class). Two names of one
model that have the same meaning here are names of one tensor, unless a third has it too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

Meaning = tuple[frozenset[str], str]
"""The words before the first number, which say the part of the model, and what follows them."""

_WRAPPERS = re.compile(
    r"^((base_model|model|module|_orig_mod|transformer|backbone|thinker|mamba|bert|roberta|deberta"
    r"|albert|convbert|distilbert|electra|ernie|esm|funnel|gpt_neox|hubert|layoutlm|longformer|luke"
    r"|mobilebert|mpnet|rembert|roformer|vit|deit|beit|dinov2|dinov2_with_registers|swin|swinv2"
    r"|segformer|wav2vec2|wavlm|pixio|videomae)\.)+(?=.)"
)
"""What stands before a whole model's names, or does not."""

_TENSOR_SPELLINGS: tuple[tuple[str, str], ...] = (
    (r"LayerNorm\.gamma$", "LayerNorm.weight"),
    (r"LayerNorm\.beta$", "LayerNorm.bias"),
    (r"^(.*\.)?embed_out\.", "lm_head."),
    (r"^mlp_AR\.", "projector."),
    # vision models of transformers 5
    (r"\bencoder\.layer\.(?=\d)", "layers."),
    (r"\bencoder\.patch_embeddings\.(\d+)\.", r"stages.\1.patch_embeddings."),
    (r"\bencoder\.block\.(\d+)\.(?=\d)", r"stages.\1.blocks."),
    (r"\bencoder\.layer_norm\.(\d+)\.", r"stages.\1.layer_norm."),
    (r"\battention\.self\.sr\b", "attention.sequence_reduction.sequence_reduction"),
    (r"\battention\.self\.layer_norm\b", "attention.sequence_reduction.layer_norm"),
    (r"\blayer_norm_1\b", "layernorm_before"),
    (r"\blayer_norm_2\b", "layernorm_after"),
    (r"\battention\.(?:attention\.|self\.)?(q|k|v)(?:uery|ey|alue)\b", r"attention.\1_proj"),
    (r"\battention\.output\.dense\b", "attention.o_proj"),
    (r"\battention\.attention\b", "attention"),
    (r"\bintermediate\.dense\b", "mlp.fc1"),
    (r"(?<!attention\.)\boutput\.dense\b", "mlp.fc2"),
    (r"\bmlp\.weights_out\b", "mlp.down_proj"),
    (r"\bmlp\.dense([12])\b", r"mlp.fc\1"),
    (r"\bmlp\.dense_h_to_4h\b", "mlp.fc1"),
    (r"\bmlp\.dense_4h_to_h\b", "mlp.fc2"),
    (r"(\blayers\.\d+)\.fc([12])\b", r"\1.mlp.fc\2"),
    (r"\bout_proj\b", "o_proj"),
    # mixtures of experts
    (r"\bblock_sparse_moe\.", "mlp."),
    (r"\bmlp\.input_linear\.weight$", "mlp.experts.gate_up_proj"),
    (r"\bmlp\.output_linear\.weight$", "mlp.experts.down_proj"),
    (r"\bexperts\.fc1\.weight$", "experts.gate_up_proj"),
    (r"\bexperts\.fc2\.weight$", "experts.down_proj"),
    (r"\bmlp\.router\.(layer\.|gate\.)?weight$", "mlp.gate.weight"),
    (r"\bexperts\.(\d+)\.w1\b", r"experts.\1.gate_proj"),
    (r"\bexperts\.(\d+)\.w3\b", r"experts.\1.up_proj"),
    (r"\bexperts\.(\d+)\.w2\b", r"experts.\1.down_proj"),
    (r"\bshared?_expert\.", "shared_experts."),
)
"""Spellings of one thing, and the one that stands for all of them."""

_COMPILED = tuple((re.compile(pattern), to) for pattern, to in _TENSOR_SPELLINGS)
_FIRST_NUMBER = re.compile(r"\.(?=\d+\.)")
_WORD = re.compile(r"[a-z0-9]+")
_SAME_WORDS = {"visual": "vision", "image": "vision", "vit": "vision", "speech": "audio"}
_WITHOUT_MEANING = frozenset(
    {"model", "base", "transformer", "language", "text", "llm", "thinker"}
    | {"layer", "layers", "block", "blocks", "h"}
)


def spelled(name: str) -> str:
    """Return the one spelling of a name that stands for all of them, with its prefix."""
    for pattern, to in _COMPILED:
        name = pattern.sub(to, name)
    return name


def stripped(name: str) -> str:
    """Return a name without what stands before a whole model's names, or does not."""
    return _WRAPPERS.sub("", name)


def meaning(name: str) -> Meaning:
    """Return the meaning of a tensor's name."""
    common = spelled(stripped(name))
    number = _FIRST_NUMBER.search(common)
    cut = number.start() if number else common.rfind(".")
    words = {_SAME_WORDS.get(word, word) for word in _WORD.findall(common[: max(0, cut)].lower())}
    return frozenset(words - _WITHOUT_MEANING), common[cut + 1 :]


class ModelNames:
    """The names of one model's tensors, each found by any name that the tensor has.

    Args:
        names: the names of all its tensors in its files.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._own = frozenset(names)
        self._prefix_change = ("", "")

    def find(self, name: str) -> str | None:
        """Return the name in the files of a tensor; None if none or several may be meant."""
        if name in self._own:
            return name
        found = self._by_meaning.get(meaning(name), [])
        if len(found) == 1:
            return found[0]
        dropped, added = self._prefix_change
        moved = added + name.removeprefix(dropped)
        return moved if name.startswith(dropped) and moved in self._own else None

    def learn_prefix(self, names: Iterable[str]) -> None:
        """Learn a prefix that nobody knows: that of names of which none is known.

        It is what the first name begins with, if only one tensor ends as that name does.
        """
        several = list(names)
        if not several or any(self.find(name) for name in several):
            return
        parts = several[0].split(".")
        for k in range(len(parts) - 1):
            rest = ".".join(parts[k:])
            fitting = [name for name in self._own if name == rest or name.endswith("." + rest)]
            if len(fitting) == 1:
                self._prefix_change = several[0].removesuffix(rest), fitting[0].removesuffix(rest)
                return

    @cached_property
    def _by_meaning(self) -> dict[Meaning, list[str]]:
        known: dict[Meaning, list[str]] = {}
        for name in self._own:
            known.setdefault(meaning(name), []).append(name)
        return known
