"""Finds a tensor of a model by its name, whichever program spells it.

A model's tensors have other names in its files than in memory, and transformers has changed both
more than once (its `conversion_mapping.py`, and the prefix of a model's class). A name of another
program means the tensor of the model whose name has the same meaning, if there is only one such.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

Meaning = tuple[frozenset[str], str]
"""The words before the first number, which name the part of the model, and the text after them.

Without a number: the words before the last one, and the last one.
"""

_WRAPPERS = re.compile(
    r"^((base_model|model|module|_orig_mod|transformer|backbone|thinker|mamba|bert|roberta|deberta"
    r"|albert|convbert|distilbert|electra|ernie|esm|funnel|gpt_neox|hubert|layoutlm|longformer|luke"
    r"|mobilebert|mpnet|rembert|roformer|vit|deit|beit|dinov2|dinov2_with_registers|swin|swinv2"
    r"|segformer|wav2vec2|wavlm|pixio|videomae)\.)+(?=.)"
)
"""The prefixes that one program puts before all names of a model, and another does not."""

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
"""Patterns of spellings, each with the spelling that replaces it."""

_COMPILED = tuple((re.compile(pattern), to) for pattern, to in _TENSOR_SPELLINGS)
_FIRST_NUMBER = re.compile(r"\.(?=\d+\.)")
_WORD = re.compile(r"[a-z0-9]+")
_SAME_WORDS = {"visual": "vision", "image": "vision", "vit": "vision", "speech": "audio"}
_WITHOUT_MEANING = frozenset(
    {"model", "base", "transformer", "language", "text", "llm", "thinker"}
    | {"layer", "layers", "block", "blocks", "h"}
)


def spelled(name: str) -> str:
    """Return a name in the one spelling that replaces all others, with its prefix."""
    for pattern, to in _COMPILED:
        name = pattern.sub(to, name)
    return name


def stripped(name: str) -> str:
    """Return a name without the prefix before all names of a model, if it has one."""
    return _WRAPPERS.sub("", name)


def meaning(name: str) -> Meaning:
    """Return the meaning of a tensor's name."""
    common = spelled(stripped(name))
    number = _FIRST_NUMBER.search(common)
    cut = number.start() if number else common.rfind(".")
    words = {_SAME_WORDS.get(word, word) for word in _WORD.findall(common[: max(0, cut)].lower())}
    return frozenset(words - _WITHOUT_MEANING), common[cut + 1 :]


class ModelNames:
    """The names of one model's tensors, which finds a tensor by any program's name for it.

    Args:
        names: the names of all tensors in the model's files.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._own = frozenset(names)
        self._prefix_change = ("", "")

    def find(self, name: str) -> str | None:
        """Return the tensor's name in the files; None if no tensor, or several, may be meant."""
        if name in self._own:
            return name
        candidates = self._by_meaning.get(meaning(name), [])
        if len(candidates) == 1:
            return candidates[0]
        dropped, added = self._prefix_change
        in_files = added + name.removeprefix(dropped)
        return in_files if name.startswith(dropped) and in_files in self._own else None

    def learn_prefix(self, names: Iterable[str]) -> None:
        """Learn an unknown prefix from names, if no tensor is found by any of them.

        It is the beginning of the first name, before the longest rest that is the end of exactly
        one tensor's name. `find` replaces it by what that tensor's name has before this end.
        """
        unknown = list(names)
        if not unknown or any(self.find(name) for name in unknown):
            return
        parts = unknown[0].split(".")
        for k in range(len(parts) - 1):
            ending = ".".join(parts[k:])
            fitting = [name for name in self._own if name == ending or name.endswith("." + ending)]
            if len(fitting) == 1:
                self._prefix_change = (
                    unknown[0].removesuffix(ending),
                    fitting[0].removesuffix(ending),
                )
                return

    @cached_property
    def _by_meaning(self) -> dict[Meaning, list[str]]:
        names: dict[Meaning, list[str]] = {}
        for name in self._own:
            names.setdefault(meaning(name), []).append(name)
        return names
