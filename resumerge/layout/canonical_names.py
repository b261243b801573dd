"""The names that transformers gives to loaded tensors, if they differ from the files' names.

transformers 5 renames tensors while it loads them (its `conversion_mapping.py`, and the prefix of
a model's class), and packs the experts of a layer into one tensor for each projection. Recipes
written for mergekit filter by those names. The renames here are the ones that our tests observe in
46 architectures. All other names remain unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from resumerge.config_json import class_names, model_type

Renames = Iterator[tuple[str, str]]
"""Pairs of a pattern, which may match anywhere in a name, and its replacement."""

_PREFIXES = {
    "transformer": (
        *("bloom", "codegen", "ctrl", "dbrx", "falcon", "flaubert", "gpt-sw3", "gpt2"),
        *("gpt_bigcode", "gpt_neo", "gptj", "mpt", "openai-gpt", "xlm", "xlnet"),
    ),
    "backbone": ("falcon_mamba", "mamba", "mamba2"),
    "bert": ("bert", "big_bird", "megatron-bert"),
    "deberta": ("deberta", "deberta-v2"),
    "roberta": ("camembert", "roberta", "xlm-roberta", "xlm-roberta-xl", "xmod"),
    **{
        name: (name,)
        for name in (
            *("albert", "convbert", "distilbert", "electra", "ernie", "esm", "funnel", "gpt_neox"),
            *("hubert", "layoutlm", "longformer", "luke", "mobilebert", "mpnet", "rembert"),
            *("roformer", "vit", "wav2vec2", "wavlm"),
        )
    },
}
"""The model types of each prefix that a model with a head adds; others may add ``model``."""

_MODEL = re.compile(r"(embed_tokens|((en|de)coder\.)?layers\.\d+)\.")
"""Names in a language model without a prefix; with a head, they have the prefix ``model``."""
_HEAD = (
    r"(lm_head|cls|score|classifier|pre_classifier|qa_outputs|embed_out|vocab_\w+|lm_loss"
    r"|pred_layer|generator_\w+|discriminator_\w+|predictions|lm_predictions|head)\."
    r"|decoder\.(weight|bias)$|final_logits_bias$"
)
_EXPERT = r"\.experts\.\d+\."
GATES, UPS, DOWNS = ("gate_proj", "w1"), ("up_proj", "w3"), ("down_proj", "w2")
"""The names of an expert's projections."""


class CanonicalNames:
    """The names that transformers has for the tensors of one model.

    Args:
        names: the names of all tensors of the model on disk.
        config: the model's config.json, whose model type and class names decide which renames
            apply.
    """

    def __init__(self, names: Collection[str], config: Mapping[str, Any]) -> None:
        renames = (
            *_parts(names),
            *_words(names, config),
            *_experts(names),
            *_prefix(names, config),
        )
        self._renames = [(re.compile(pattern), replacement) for pattern, replacement in renames]
        self._known: dict[str, str] = {}

    def of(self, name: str) -> str:
        """Return transformers' name of a tensor. The layer's number need not exist on disk."""
        if name not in self._known:
            canonical_name = name
            for pattern, replacement in self._renames:
                canonical_name = pattern.sub(replacement, canonical_name)
            self._known[name] = canonical_name
        return self._known[name]


def _parts(names: Collection[str]) -> Renames:
    """Yield the renames of models with a vision tower: LLaVA and similar models, and Qwen2-VL."""
    if any(name.startswith("language_model.model.") for name in names):
        yield r"^language_model\.lm_head\.", "lm_head."
        yield r"^language_model\.model\.", "model.language_model."
        yield r"^(vision_tower|multi_modal_projector)\.", r"model.\1."
    elif any(name.startswith("visual.") for name in names):
        yield r"^model\.(?!language_model\.|visual\.)", "model.language_model."
        yield r"^visual\.", "model.visual."


def _words(names: Collection[str], config: Mapping[str, Any]) -> Renames:
    yield r"LayerNorm\.gamma$", "LayerNorm.weight"
    yield r"LayerNorm\.beta$", "LayerNorm.bias"
    if model_type(config).startswith("granitemoe"):
        yield r"\.block_sparse_moe\.input_linear\.weight$", ".block_sparse_moe.experts.gate_up_proj"
        yield r"\.block_sparse_moe\.output_linear\.weight$", ".block_sparse_moe.experts.down_proj"
        yield r"\.router\.layer\.weight$", ".router.weight"
    else:
        yield r"\.block_sparse_moe\.", ".mlp."
    if model_type(config) == "phimoe":
        yield r"\.mlp\.gate\.weight$", ".mlp.router.weight"
    if model_type(config) == "gpt_neox":
        yield r"^embed_out\.", "lm_head."
    if model_type(config) == "vit":
        yield (
            r"\bencoder\.layer\.(\d+)\.attention\.attention\.(q|k|v)(uery|ey|alue)\.",
            (r"layers.\1.attention.\2_proj."),
        )
        yield r"\bencoder\.layer\.(\d+)\.attention\.output\.dense\.", r"layers.\1.attention.o_proj."
        yield r"\bencoder\.layer\.(\d+)\.intermediate\.dense\.", r"layers.\1.mlp.fc1."
        yield r"\bencoder\.layer\.(\d+)\.output\.dense\.", r"layers.\1.mlp.fc2."
        yield r"\bencoder\.layer\.", "layers."


def _experts(names: Collection[str]) -> Renames:
    """Yield the renames of experts to packed tensors.

    Experts without a gate have only ``up_proj``.
    """
    gate_pattern = re.compile(rf"{_EXPERT}({'|'.join(GATES)})\.weight$")
    up_name = "gate_up_proj" if any(gate_pattern.search(name) for name in names) else "up_proj"
    yield rf"{_EXPERT}({'|'.join((*GATES, *UPS))})\.weight$", f".experts.{up_name}"
    yield rf"{_EXPERT}({'|'.join(DOWNS)})\.weight$", ".experts.down_proj"


def _prefix(names: Collection[str], config: Mapping[str, Any]) -> Renames:
    """Yield the rename that adds the prefix of a model with a head, if the files lack it."""
    kind = model_type(config)
    has_head = any(map(_is_head, class_names(config)))
    prefix = next((p for p, kinds in _PREFIXES.items() if kind in kinds), None)
    if prefix is None and any(_MODEL.match(name) for name in names):
        prefix = "model"
    if has_head and prefix and not any(name.startswith(f"{prefix}.") for name in names):
        yield rf"^(?!{_HEAD})", f"{prefix}."


def _is_head(name: str) -> bool:
    """Return whether a class of transformers is a model with a head."""
    return not name.endswith("Model") or name.endswith(("HeadModel", "HeadsModel"))
