"""Promise: the names that are one tensor are known for every family of transformers, or none is."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import torch
import transformers as tf

from resumerge.sources.tied_names import (
    ALWAYS_TIED,
    SCALING,
    head_is_unknown,
    scales_outputs,
    states_untied,
    tied_groups,
    tied_names,
    untied_config,
)

CLASSES = [
    "AlbertForMaskedLM",
    "BartForConditionalGeneration",
    "BertForMaskedLM",
    "BertForPreTraining",
    "BertForSequenceClassification",
    "BertGenerationDecoder",
    "BertModel",
    "BioGptForCausalLM",
    "BlenderbotForConditionalGeneration",
    "BloomForCausalLM",
    "CTRLLMHeadModel",
    "CohereForCausalLM",
    "ConvBertForMaskedLM",
    "DebertaV2ForMaskedLM",
    "DistilBertForMaskedLM",
    "ElectraForMaskedLM",
    "ElectraForPreTraining",
    "ErnieForMaskedLM",
    "FalconForCausalLM",
    "FunnelForMaskedLM",
    "GPT2LMHeadModel",
    "GPTJForCausalLM",
    "GPTNeoForCausalLM",
    "Gemma2ForCausalLM",
    "GemmaForCausalLM",
    "GitForCausalLM",
    "LEDForConditionalGeneration",
    "LlamaForCausalLM",
    "LlamaForSequenceClassification",
    "LlamaModel",
    "LongT5ForConditionalGeneration",
    "LongformerForMaskedLM",
    "M2M100ForConditionalGeneration",
    "MBartForConditionalGeneration",
    "MPNetForMaskedLM",
    "MT5ForConditionalGeneration",
    "MambaForCausalLM",
    "MarianMTModel",
    "MistralForCausalLM",
    "MobileBertForMaskedLM",
    "ModernBertDecoderForCausalLM",
    "ModernBertForMaskedLM",
    "MoonshineForConditionalGeneration",
    "OPTForCausalLM",
    "OpenAIGPTLMHeadModel",
    "PegasusForConditionalGeneration",
    "PhiForCausalLM",
    "ProphetNetForConditionalGeneration",
    "Qwen2ForCausalLM",
    "RobertaForMaskedLM",
    "RwkvForCausalLM",
    "SpeechT5ForSpeechToText",
    "SwitchTransformersForConditionalGeneration",
    "T5EncoderModel",
    "T5ForConditionalGeneration",
    "T5GemmaForConditionalGeneration",
    "TrOCRForCausalLM",
    "UMT5ForConditionalGeneration",
    "WhisperForConditionalGeneration",
    "XLMRobertaForMaskedLM",
    "XLMWithLMHeadModel",
    "XLNetLMHeadModel",
]
STRANGE = ["T5Gemma2ForConditionalGeneration", "Zamba2ForCausalLM", "SeamlessM4TForTextToText"]
ONE_LAYER = dict.fromkeys(
    (
        *("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"),
        *("decoder_layers", "num_encoder_layers", "num_decoder_layers"),
    ),
    1,
)


def described(name: str) -> tuple[dict[str, Any], set[str], set[str]]:
    """Return a class's config.json, the names in its files, and the names that it ties to them."""
    cls = getattr(tf, name)
    config = cls.config_class()
    for key, value in ONE_LAYER.items():
        if isinstance(getattr(config, key, None), int):
            with suppress(NotImplementedError):
                setattr(config, key, value)
    config.tie_word_embeddings = True
    with torch.device("meta"):
        model = cls(config)
    tied = set(model.all_tied_weights_keys)
    facts = {"model_type": config.model_type, "architectures": [name], "tie_word_embeddings": True}
    return facts, set(model.state_dict()) - tied, tied


@pytest.mark.parametrize("name", CLASSES)
def test_what_a_class_ties_is_known(name: str) -> None:
    config, stored, tied = described(name)
    assert tied_names(config, stored).keys() == tied
    assert not head_is_unknown(config, stored)


@pytest.mark.parametrize("name", STRANGE)
def test_it_is_known_of_which_classes_it_is_not(name: str) -> None:
    config, stored, tied = described(name)
    assert tied and not tied_groups(config, stored)[:1]
    assert head_is_unknown(config, stored)


@pytest.mark.parametrize(
    ("embedding", "config", "head"),
    [
        ("model.language_model.embed_tokens.weight", {}, "lm_head.weight"),
        ("language_model.model.embed_tokens.weight", {}, "language_model.lm_head.weight"),
        (
            "language_model.model.decoder.embed_tokens.weight",
            {"text_config": {"model_type": "opt", "tie_word_embeddings": True}},
            "language_model.lm_head.weight",
        ),
        ("decoder.transformer.wte.weight", {"decoder": {}}, "decoder.lm_head.weight"),
        ("gpt_neox.embed_in.weight", {"model_type": "gpt_neox"}, "embed_out.weight"),
        ("wte.weight", {"architectures": ["GPT2LMHeadModel"]}, "lm_head.weight"),
    ],
)
def test_a_head_stands_where_its_language_model_does(
    embedding: str, config: dict[str, Any], head: str
) -> None:
    facts = {"architectures": ["AnyForConditionalGeneration"], **config}
    assert tied_names(facts, {embedding}) == {head: embedding}


def test_a_head_in_the_file_is_tied_only_where_the_config_says_so() -> None:
    names = {"model.embed_tokens.weight", "lm_head.weight"}
    assert len(tied_groups({"tie_word_embeddings": True}, names)) == 1
    assert not tied_groups({}, names)
    assert not tied_groups({"tie_word_embeddings": False}, names)
    assert not tied_groups({"tie_word_embeddings": True, "model_type": "t5"}, names)


@pytest.mark.parametrize("kind", sorted(SCALING | ALWAYS_TIED))
def test_where_more_follows_from_the_tie_the_config_keeps_it(kind: str) -> None:
    for said in ({}, {"tie_word_embeddings": True}, {"tie_word_embeddings": False}):
        assert untied_config({"model_type": kind, **said}) == {"model_type": kind, **said}
    assert scales_outputs({"model_type": kind}) == (kind in SCALING)
    assert not scales_outputs({"model_type": kind, "tie_word_embeddings": False})


def test_a_config_is_untied_wherever_transformers_looks() -> None:
    config = {
        "tie_embedding": True,
        "text_config": {"model_type": "llama"},
        "vision_config": {"hidden_size": 8},
    }
    found = untied_config(config)
    assert found["tie_word_embeddings"] is found["tie_embedding"] is False
    assert found["text_config"]["tie_word_embeddings"] is False
    assert found["vision_config"] == {"hidden_size": 8}
    assert states_untied(found)
    assert not states_untied({**found, "text_config": {"tie_word_embeddings": True}})
