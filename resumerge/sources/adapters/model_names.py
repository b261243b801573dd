"""Finds a tensor of a model by any program's name for it.

The names of a model's tensors in its files differ from those in memory, and transformers has
changed both more than once (its `conversion_mapping.py`, and the prefix of a model's class). A name
is therefore reduced to a meaning. It matches the model's tensor whose name has the same meaning,
unless several tensors have it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

Meaning = tuple[frozenset[str], str]
"""The meaning of a tensor's name: the words that name a part of the model, and the text after them.

The words are those before the first number in the name. In a name without a number, they are all
but the last word, which is the text.
"""

_WRAPPERS = re.compile(
    r"^((base_model|model|module|_orig_mod|transformer|backbone|thinker|mamba|bert|roberta|deberta"
    r"|albert|convbert|distilbert|electra|ernie|esm|funnel|gpt_neox|hubert|layoutlm|longformer|luke"
    r"|mobilebert|mpnet|rembert|roformer|vit|deit|beit|dinov2|dinov2_with_registers|swin|swinv2"
    r"|segformer|wav2vec2|wavlm|pixio|videomae)\.)+(?=.)"
)
"""The prefixes that some programs put before all names of a model, and others omit."""

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
"""Patterns of spellings, each with the common spelling that replaces it."""

_COMPILED = tuple((re.compile(pattern), to) for pattern, to in _TENSOR_SPELLINGS)
_FIRST_NUMBER = re.compile(r"\.(?=\d+\.)")
_WORD = re.compile(r"[a-z0-9]+")
_SAME_WORDS = {"visual": "vision", "image": "vision", "vit": "vision", "speech": "audio"}
_WITHOUT_MEANING = frozenset(
    {"model", "base", "transformer", "language", "text", "llm", "thinker"}
    | {"layer", "layers", "block", "blocks", "h"}
)


def spelled(name: str) -> str:
    """Return a name in the common spelling. Its prefix stays."""
    for pattern, common_spelling in _COMPILED:
        name = pattern.sub(common_spelling, name)
    return name


def stripped(name: str) -> str:
    """Return a name without the prefix that some programs put before all names of a model."""
    return _WRAPPERS.sub("", name)


def meaning(name: str) -> Meaning:
    """Return the meaning of a tensor's name."""
    common_name = spelled(stripped(name))
    number_match = _FIRST_NUMBER.search(common_name)
    split_at = number_match.start() if number_match else common_name.rfind(".")
    words = {
        _SAME_WORDS.get(word, word)
        for word in _WORD.findall(common_name[: max(0, split_at)].lower())
    }
    return frozenset(words - _WITHOUT_MEANING), common_name[split_at + 1 :]


class ModelNames:
    """The names of one model's tensors, to find a tensor by any program's name for it.

    Args:
        names: the names of all tensors in the model's files.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._own = frozenset(names)
        self._prefix_change = ("", "")

    def find(self, name: str) -> str | None:
        """Return the name in the model's files of the tensor that a name means.

        None if no tensor matches, or several do.
        """
        if name in self._own:
            return name
        candidates = self._by_meaning.get(meaning(name), [])
        if len(candidates) == 1:
            return candidates[0]
        old_prefix, new_prefix = self._prefix_change
        name_in_files = new_prefix + name.removeprefix(old_prefix)
        return name_in_files if name.startswith(old_prefix) and name_in_files in self._own else None

    def learn_prefix(self, names: Iterable[str]) -> None:
        """Learn an unknown prefix from names if `find` finds no tensor for any of them.

        The method looks for the longest ending of the first name that is also the ending of exactly
        one tensor's name. From then on, `find` replaces the text before this ending in the first
        name by the text before it in the tensor's name.

        Args:
            names: names of tensors in an adapter.
        """
        given_names = list(names)
        if not given_names or any(self.find(name) for name in given_names):
            return
        name_words = given_names[0].split(".")
        for first_word in range(len(name_words) - 1):
            ending = ".".join(name_words[first_word:])
            matching_names = [
                name for name in self._own if name == ending or name.endswith("." + ending)
            ]
            if len(matching_names) == 1:
                self._prefix_change = (
                    given_names[0].removesuffix(ending),
                    matching_names[0].removesuffix(ending),
                )
                return

    @cached_property
    def _by_meaning(self) -> dict[Meaning, list[str]]:
        names: dict[Meaning, list[str]] = {}
        for name in self._own:
            names.setdefault(meaning(name), []).append(name)
        return names
