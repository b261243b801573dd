"""The names that a model has for one tensor: ties of transformers, and configs that untie them.

Facts of transformers 5.23: `_tied_weights_keys` of its classes, and what its configurations and
models derive from ``tie_word_embeddings``. Files have one name of each group, or a few.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from resumerge.config_json import class_names, model_type

_SHARED = ("shared", "encoder.embed_tokens", "decoder.embed_tokens")
"""The names of the one embedding of an encoder and a decoder; the first is the source."""

_SHARED_OF = {
    "fsmt": ("decoder.embed_tokens", "encoder.embed_tokens", "decoder.output_projection"),
    "prophetnet": ("word_embeddings", "encoder.word_embeddings", "decoder.word_embeddings"),
}
"""Other such names, by model type."""

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
"""A tensor that files have beside a tied head, and the head."""

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
"""The head of the language model, by model type; for most it is ``lm_head``."""

_HEADED = re.compile(
    r"(ForCausalLM|LMHeadModel|DoubleHeadsModel|ForConditionalGeneration|MarianMTModel|BertGenerationDecoder"
    r"|ForSpeechToText|ForVisionText2Text|ForCausalImageModeling|EncoderDecoderModel)$"
)
"""The ends of the names of classes that have a language model's head."""

_OWN_BIAS = frozenset({"bridgetower", "esm", "gte", "lxmert", "vilt"})
"""Model types whose head has no bias beside that of the layer around it."""

_UNKNOWN = frozenset(
    {"blt", "csm", "diffusion_gemma", "luke", "neomme", "pix2struct", "pix2struct_text_model"}
    | {"seamless_m4t", "seamless_m4t_v2", "t5gemma2", "ultrabert", "zamba", "zamba2"}
)
"""Model types whose ties are not known here."""

_WHOLE_INSIDE = re.compile(
    r"^(language_model|text_model|text_decoder|decoder|llm)\."
    r"(?=(model|transformer|gpt_neox|backbone|bert|roberta|shared)\.)"
)
"""The prefix of a language model that is contained whole in another model."""

SCALING = frozenset({"t5", "longt5", "pop2piano", "switch_transformers"})
"""Model types that scale the decoder's output by ``d_model**-0.5`` unless config.json says that
they are not tied."""

ALWAYS_TIED = frozenset({"t5", "longt5", "pop2piano", "mt5", "umt5", "udop", "vilt"})
"""Model types that are tied whatever config.json says, except tensors that a file has apart."""

_SECTIONS = ("text_config", "decoder", "language_config", "llm_config")
"""The keys of nested configs of language models."""


def tied_groups(config: Mapping[str, Any], names: Collection[str]) -> list[tuple[str, ...]]:
    """Return the names of each tensor that a model has several names for.

    Of names that files have, a group has only the first one, unless config.json says that the model
    is tied.

    Args:
        config: the model's config.json.
        names: the names of the tensors in its files.

    Returns:
        Groups of two names or more. The files have at least one name of a group; its other names
        have the same prefix as the names in the files.
    """
    kind = model_type(config)
    if says_untied(config) and kind not in ALWAYS_TIED:
        return []
    copies = bool(says_tied(config)) and kind not in ALWAYS_TIED
    groups = [_embedding(config, names), *_biases(config, names)]
    tied = []
    for group in groups:
        stored = [name for name in group if name in names]
        names_of_tensor = [n for n in group if n not in names or copies or n == stored[0]]
        if stored and len(names_of_tensor) > 1:
            tied.append(tuple(names_of_tensor))
    return tied


def tied_names(config: Mapping[str, Any], names: Collection[str]) -> dict[str, str]:
    """Return the names of a model for tensors of its files, besides the names in the files.

    Args:
        config: the model's config.json.
        names: the names of the tensors in its files.

    Returns:
        The name in the files, by the other name.
    """
    return {
        name: next(stored for stored in group if stored in names)
        for group in tied_groups(config, names)
        for name in group
        if name not in names
    }


def head_is_unknown(config: Mapping[str, Any], names: Collection[str]) -> bool:
    """Return whether a model may tie a head of unknown name to its embedding."""
    return not says_untied(config) and _is_strange(config, names)


def says_tied(config: Mapping[str, Any]) -> bool | None:
    """Return whether config.json (or its text_config) ties the head; None if it does not say."""
    found = config.get("tie_word_embeddings")
    if found is None:
        found = next((said for said in _nested(config) if said is not None), None)
    return None if found is None else bool(found)


def says_untied(config: Mapping[str, Any]) -> bool:
    """Return whether config.json says that the head is not tied to the embedding.

    A nested config that states a tie overrules the outer config, as in transformers.
    """
    return says_tied(config) is False and not any(_nested(config))


def scales_outputs(config: Mapping[str, Any]) -> bool:
    """Return whether a model scales its decoder's output because config.json says it is tied.

    transformers 5 writes what it derived into config.json, too.
    """
    written = config.get("scale_decoder_outputs")
    if isinstance(written, bool):
        return written
    return model_type(config) in SCALING and config.get("tie_word_embeddings") is not False


def untied_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of the same model with a head of its own.

    If transformers derives other settings than ties from ``tie_word_embeddings``, the config stays
    unchanged: transformers 5 does not tie tensors that a file has apart and that differ.
    """
    if model_type(config) in SCALING | ALWAYS_TIED:
        return dict(config)
    found = _without_ties(config)
    for key in _SECTIONS:
        nested = found.get(key)
        if isinstance(nested, Mapping) and model_type(nested) not in SCALING | ALWAYS_TIED:
            found[key] = {**nested, "tie_word_embeddings": False}
    return {**found, "tie_word_embeddings": False}


def _without_ties(config: Mapping[str, Any]) -> dict[str, Any]:
    if model_type(config) in SCALING | ALWAYS_TIED:
        return dict(config)
    ties = ("tie_word_embeddings", "tie_embedding")
    return {
        key: _without_ties(value)
        if isinstance(value, Mapping)
        else (False if key in ties and value is True else value)
        for key, value in config.items()
    }


def _nested(config: Mapping[str, Any]) -> Iterator[Any]:
    for key in _SECTIONS:
        nested = config.get(key)
        if isinstance(nested, Mapping):
            yield nested.get("tie_word_embeddings")


def _embedding(config: Mapping[str, Any], names: Collection[str]) -> tuple[str, ...]:
    """Return the names of the embedding and of the head that is tied to it, if there is one."""
    if model_type(config) in _UNKNOWN:
        return ()
    members = _shared(config, names) or _decoders([n for n in names if is_embedding(n)])
    head = _head(config, names, members[0]) if members else None
    return (*members, f"{head}.weight") if head else members


def _shared(config: Mapping[str, Any], names: Collection[str]) -> tuple[str, ...]:
    """Return the names of the embedding that an encoder and a decoder share; none without one."""
    source, *side_names = _SHARED_OF.get(model_type(config), _SHARED)
    ends = f"{source}.weight"
    stored = [name for name in names if f".{name}".endswith(f".{ends}")]
    if len(stored) != 1 or (source != "shared" and model_type(config) not in _SHARED_OF):
        return ()
    start = stored[0].removesuffix(ends)
    sides = tuple(
        f"{start}{side}.weight"
        for side in side_names
        if any(name.startswith(f"{start}{side.partition('.')[0]}.") for name in names)
    )
    return (stored[0], *sides)


def _decoders(embeddings: list[str]) -> tuple[str, ...]:
    """Return the embedding that a head is tied to: beside an encoder's, the decoder's."""
    if any("encoder." in name for name in embeddings):
        embeddings = [name for name in embeddings if "encoder." not in name]
    return tuple(embeddings) if len(embeddings) == 1 else ()


def _head(config: Mapping[str, Any], names: Collection[str], embedding: str) -> str | None:
    """Return the name of the module that is the head over the vocabulary; None without one."""
    outer = _WHOLE_INSIDE.match(embedding)
    start = outer.group() if outer and model_type(config) != "florence2" else ""
    known = _HEAD_OF.get(model_type(_section(config) if outer else config))
    for beside, head in () if known else _BESIDE:
        for name in names:
            if f".{name}".endswith(f".{beside}"):
                return name.removesuffix(beside) + head
    return f"{start}{known or 'lm_head'}" if outer or _has_head(config, embedding) else None


def _has_head(config: Mapping[str, Any], embedding: str) -> bool:
    """Return whether a model's class has a head over the vocabulary."""
    classes = class_names(config)
    if not classes:
        return "." in embedding.removesuffix(".weight")  # the names of a model without one are bare
    name, kind = classes[0], model_type(config)
    return bool(_HEADED.search(name)) or (name.endswith("ForMaskedLM") and kind in _HEAD_OF)


def _is_strange(config: Mapping[str, Any], names: Collection[str]) -> bool:
    name = next(iter(class_names(config)), "")
    if model_type(config) in _UNKNOWN:
        return True
    return name.endswith("ForMaskedLM") and len(_embedding(config, names)) < 2


def _section(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((s for key in _SECTIONS if isinstance(s := config.get(key), Mapping)), config)


def _biases(config: Mapping[str, Any], names: Collection[str]) -> Iterator[tuple[str, ...]]:
    """Yield the names of a head's bias, which stands in the head and in the layer around it."""
    embedding = _embedding(config, names)
    head = embedding[-1].removesuffix(".weight") if len(embedding) > 1 else ""
    around, _, last = head.rpartition(".")
    if last == "decoder" and around and model_type(config) not in _OWN_BIAS:
        yield f"{around}.bias", f"{head}.bias"


_EMBEDDING = re.compile(
    r"(^|\.)(embed_tokens|wte|word_embeddings?|embed_in|tok_embeddings|tokens_embed|shared"
    r"|embeddings)\.weight$|^(transformer\.)?w\.weight$"
)


def is_embedding(name: str) -> bool:
    """Return whether a tensor is an embedding of the vocabulary, by its name."""
    return bool(_EMBEDDING.search(name))
