"""Tied tensors: the groups of names that a model has for one tensor, and configs without ties.

Source of the facts: transformers 5.23, where classes have `_tied_weights_keys`, and configurations
and models derive settings from ``tie_word_embeddings``. Files have at least one name of a group.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from resumerge.config_json import class_names, model_type

_SHARED = ("shared", "encoder.embed_tokens", "decoder.embed_tokens")
"""The names of an embedding that encoder and decoder share; the first is the name in files."""

_SHARED_OF = {
    "fsmt": ("decoder.embed_tokens", "encoder.embed_tokens", "decoder.output_projection"),
    "prophetnet": ("word_embeddings", "encoder.word_embeddings", "decoder.word_embeddings"),
}
"""The names of a shared embedding in model types that do not use `_SHARED`."""

_BESIDE = (
    ("cls.predictions.transform.dense.weight", "cls.predictions.decoder"),
    ("generator_predictions.dense.weight", "generator_lm_head"),
    ("lm_head.dense.weight", "lm_head.decoder"),
    ("lm_loss.bias", "lm_loss"),
    ("mlm_score.transform.dense.weight", "mlm_score.decoder"),
    ("pred_layer.proj.bias", "pred_layer.proj"),
    ("predictions.dense.weight", "predictions.decoder"),
    ("vocab_transform.weight", "vocab_projector"),
)
"""Heads that are found by a tensor beside them: the tensor in files, and the head's module."""

_HEAD_OF = {
    "bert-generation": "lm_head.decoder",
    "biogpt": "output_projection",
    "git": "output",
    "gpt_neox": "embed_out",
    "gpt_neox_japanese": "embed_out",
    "modernbert": "decoder",
    "modernbert-decoder": "decoder",
    "rwkv": "head",
    "speecht5": "text_decoder_postnet.lm_head",
    "t5gemma": "lm_head.out_proj",
    "trocr": "output_projection",
    **dict.fromkeys(
        ("canary", "cohere_asr", "moonshine", "moonshine_streaming", "whisper"), "proj_out"
    ),
    **dict.fromkeys(("eurobert", "funnel", "modernvbert"), "lm_head"),
}
"""The module of the language model's head, by model type; ``lm_head`` for all others."""

_HEADED = re.compile(
    r"(ForCausalLM|LMHeadModel|DoubleHeadsModel|ForConditionalGeneration|MarianMTModel|BertGenerationDecoder"
    r"|ForSpeechToText|ForVisionText2Text|ForCausalImageModeling|EncoderDecoderModel)$"
)
"""The endings of the names of classes with a language model's head."""

_OWN_BIAS = frozenset({"bridgetower", "esm", "gte", "lxmert", "vilt"})
"""Model types whose head does not share its bias with the layer around it."""

_UNKNOWN = frozenset(
    {"blt", "csm", "diffusion_gemma", "luke", "neomme", "pix2struct", "pix2struct_text_model"}
    | {"seamless_m4t", "seamless_m4t_v2", "t5gemma2", "ultrabert", "zamba", "zamba2"}
)
"""Model types whose ties are not known here."""

_WHOLE_INSIDE = re.compile(
    r"^(language_model|text_model|text_decoder|decoder|llm)\."
    r"(?=(model|transformer|gpt_neox|backbone|bert|roberta|shared)\.)"
)
"""The prefix of the names of a complete language model inside another model."""

SCALING = frozenset({"t5", "longt5", "pop2piano", "switch_transformers"})
"""Model types that scale the decoder's output by ``d_model**-0.5``.

They do so unless config.json states ``tie_word_embeddings: false``.
"""

ALWAYS_TIED = frozenset({"t5", "longt5", "pop2piano", "mt5", "umt5", "udop", "vilt"})
"""Model types that are tied even if config.json states otherwise.

Tensors that a file has separately are not tied.
"""

_SECTIONS = ("text_config", "decoder", "language_config", "llm_config")
"""The keys of nested configs of language models."""


def tied_groups(config: Mapping[str, Any], names: Collection[str]) -> list[tuple[str, ...]]:
    """Return the groups of names that a model has for one tensor.

    If several names of a group are in the files, the group keeps only the first of them, unless
    config.json states that the model is tied.

    Args:
        config: the model's config.json.
        names: the names of the tensors in its files.

    Returns:
        Groups of two or more names. At least one name of each group is in the files. The other
        names begin with the same prefix as the names in the files.
    """
    kind = model_type(config)
    if states_untied(config) and kind not in ALWAYS_TIED:
        return []
    are_copies_tied = bool(states_tied(config)) and kind not in ALWAYS_TIED
    possible_groups = [_embedding(config, names), *_biases(config, names)]
    found_groups = []
    for group in possible_groups:
        stored_names = [name for name in group if name in names]
        names_of_tensor = [
            n for n in group if n not in names or are_copies_tied or n == stored_names[0]
        ]
        if stored_names and len(names_of_tensor) > 1:
            found_groups.append(tuple(names_of_tensor))
    return found_groups


def tied_names(config: Mapping[str, Any], names: Collection[str]) -> dict[str, str]:
    """Return the names of tied tensors that are not in the files.

    Args:
        config: the model's config.json.
        names: the names of the tensors in its files.

    Returns:
        For each name that is not in the files, the name of the same tensor in the files.
    """
    return {
        name: next(stored for stored in group if stored in names)
        for group in tied_groups(config, names)
        for name in group
        if name not in names
    }


def head_is_unknown(config: Mapping[str, Any], names: Collection[str]) -> bool:
    """Return whether a model may tie a head whose name is unknown to its embedding."""
    return not states_untied(config) and _is_strange(config, names)


def states_tied(config: Mapping[str, Any]) -> bool | None:
    """Return whether config.json, or else a nested config, ties the head; None if unstated.

    The nested configs are those under `_SECTIONS`.
    """
    stated_tie = config.get("tie_word_embeddings")
    if stated_tie is None:
        stated_tie = next(
            (nested_tie for nested_tie in _nested(config) if nested_tie is not None), None
        )
    return None if stated_tie is None else bool(stated_tie)


def states_untied(config: Mapping[str, Any]) -> bool:
    """Return whether config.json states that the head is not tied to the embedding.

    As in transformers, a nested config that states a tie overrules the outer config.
    """
    return states_tied(config) is False and not any(_nested(config))


def scales_outputs(config: Mapping[str, Any]) -> bool:
    """Return whether a model scales its decoder's output, as it does by default if it is tied.

    transformers 5 also writes this setting into config.json (``scale_decoder_outputs``).
    """
    stated_scaling = config.get("scale_decoder_outputs")
    if isinstance(stated_scaling, bool):
        return stated_scaling
    return model_type(config) in SCALING and config.get("tie_word_embeddings") is not False


def untied_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of the same model with a head that is not tied to the embedding.

    The config stays unchanged for model types in which ``tie_word_embeddings`` determines other
    settings as well. transformers 5 does not tie tensors that are stored separately and differ.
    """
    if model_type(config) in SCALING | ALWAYS_TIED:
        return dict(config)
    config_without_ties = _without_ties(config)
    for key in _SECTIONS:
        nested_config = config_without_ties.get(key)
        if (
            isinstance(nested_config, Mapping)
            and model_type(nested_config) not in SCALING | ALWAYS_TIED
        ):
            config_without_ties[key] = {**nested_config, "tie_word_embeddings": False}
    return {**config_without_ties, "tie_word_embeddings": False}


def _without_ties(config: Mapping[str, Any]) -> dict[str, Any]:
    if model_type(config) in SCALING | ALWAYS_TIED:
        return dict(config)
    tie_keys = ("tie_word_embeddings", "tie_embedding")
    return {
        key: _without_ties(value)
        if isinstance(value, Mapping)
        else (False if key in tie_keys and value is True else value)
        for key, value in config.items()
    }


def _nested(config: Mapping[str, Any]) -> Iterator[Any]:
    for key in _SECTIONS:
        nested_config = config.get(key)
        if isinstance(nested_config, Mapping):
            yield nested_config.get("tie_word_embeddings")


def _embedding(config: Mapping[str, Any], names: Collection[str]) -> tuple[str, ...]:
    """Return the names of the embedding, and of the head that is tied to it, if any."""
    if model_type(config) in _UNKNOWN:
        return ()
    tied_embeddings = _shared(config, names) or _decoders([n for n in names if is_embedding(n)])
    head = _head(config, names, tied_embeddings[0]) if tied_embeddings else None
    return (*tied_embeddings, f"{head}.weight") if head else tied_embeddings


def _shared(config: Mapping[str, Any], names: Collection[str]) -> tuple[str, ...]:
    """Return the names of the embedding that encoder and decoder share, if any."""
    name_in_files, *side_names = _SHARED_OF.get(model_type(config), _SHARED)
    ending = f"{name_in_files}.weight"
    stored_names = [name for name in names if f".{name}".endswith(f".{ending}")]
    if len(stored_names) != 1 or (
        name_in_files != "shared" and model_type(config) not in _SHARED_OF
    ):
        return ()
    start = stored_names[0].removesuffix(ending)
    shared_names = tuple(
        f"{start}{side}.weight"
        for side in side_names
        if any(name.startswith(f"{start}{side.partition('.')[0]}.") for name in names)
    )
    return (stored_names[0], *shared_names)


def _decoders(embeddings: list[str]) -> tuple[str, ...]:
    """Return the embedding that a head is tied to; empty unless there is exactly one candidate.

    If one of the embeddings is an encoder's, only the others are candidates.
    """
    if any("encoder." in name for name in embeddings):
        embeddings = [name for name in embeddings if "encoder." not in name]
    return tuple(embeddings) if len(embeddings) == 1 else ()


def _head(config: Mapping[str, Any], names: Collection[str], embedding: str) -> str | None:
    """Return the name of the language model's head (a module); None without a head."""
    prefix_match = _WHOLE_INSIDE.match(embedding)
    head_prefix = prefix_match.group() if prefix_match and model_type(config) != "florence2" else ""
    head_of_type = _HEAD_OF.get(model_type(_section(config) if prefix_match else config))
    for neighbour, head in () if head_of_type else _BESIDE:
        for name in names:
            if f".{name}".endswith(f".{neighbour}"):
                return name.removesuffix(neighbour) + head
    return (
        f"{head_prefix}{head_of_type or 'lm_head'}"
        if prefix_match or _has_head(config, embedding)
        else None
    )


def _has_head(config: Mapping[str, Any], embedding: str) -> bool:
    """Return whether a model's class has a language model's head."""
    classes = class_names(config)
    if not classes:
        return "." in embedding.removesuffix(".weight")  # without a head, names have no prefix
    class_name, kind = classes[0], model_type(config)
    return bool(_HEADED.search(class_name)) or (
        class_name.endswith("ForMaskedLM") and kind in _HEAD_OF
    )


def _is_strange(config: Mapping[str, Any], names: Collection[str]) -> bool:
    class_name = next(iter(class_names(config)), "")
    if model_type(config) in _UNKNOWN:
        return True
    return class_name.endswith("ForMaskedLM") and len(_embedding(config, names)) < 2


def _section(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((s for key in _SECTIONS if isinstance(s := config.get(key), Mapping)), config)


def _biases(config: Mapping[str, Any], names: Collection[str]) -> Iterator[tuple[str, ...]]:
    """Yield the two names of a head's bias: in the layer around the head, and in the head."""
    embedding = _embedding(config, names)
    head = embedding[-1].removesuffix(".weight") if len(embedding) > 1 else ""
    outer_layer, _, last_word = head.rpartition(".")
    if last_word == "decoder" and outer_layer and model_type(config) not in _OWN_BIAS:
        yield f"{outer_layer}.bias", f"{head}.bias"


_EMBEDDING = re.compile(
    r"(^|\.)(embed_tokens|wte|word_embeddings?|embed_in|tok_embeddings|tokens_embed|shared"
    r"|embeddings)\.weight$|^(transformer\.)?w\.weight$"
)


def is_embedding(name: str) -> bool:
    """Return whether a tensor is an embedding of tokens, by its name."""
    return bool(_EMBEDDING.search(name))
