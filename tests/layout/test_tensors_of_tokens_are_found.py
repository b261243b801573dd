"""The tensors of a model of transformers that grow with the vocabulary are found by names, shapes
and neighbours; those that are not found are reported as undecided.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from resumerge.layout import infer_layers
from resumerge.layout.vocabulary_tensors import VocabularyTensors, find_vocabulary
from resumerge.recipe.types import ModelRef
from resumerge.sources.types import Source
from resumerge.tensors import Stored

FOUND = (
    "BartForConditionalGeneration",
    "BertForPreTraining",
    "BioGptForCausalLM",
    "BloomForCausalLM",
    "CTRLLMHeadModel",
    "DebertaV2ForMaskedLM",
    "DistilBertForMaskedLM",
    "ElectraForMaskedLM",
    "FlaubertWithLMHeadModel",
    "GPTJForCausalLM",
    "MarianMTModel",
    "MPNetForMaskedLM",
    "MambaForCausalLM",
    "OpenAIGPTLMHeadModel",
    "OPTForCausalLM",
    "PhiForCausalLM",
    "RobertaPreLayerNormForMaskedLM",
    "T5ForConditionalGeneration",
    "VisualBertForPreTraining",
    "WhisperForConditionalGeneration",
    "XLMWithLMHeadModel",
    "XLNetLMHeadModel",
)
UNDECIDED = {
    "MobileBertForMaskedLM": "cls.predictions.dense.weight",
    "CpmAntForCausalLM": "cpmant.input_embedding.weight",
    "MoshiForCausalLM": "model.embed_tokens.weight",
}
"""Tokens are columns, or the embedding has rows for something else after them."""

Shapes = dict[str, tuple[int, ...]]


def built(name: str, tokens: int) -> tuple[Any, Shapes, set[str]]:
    """Return the config, the shapes and the tied tensors of a model on the meta device."""
    kind = getattr(transformers, name)
    config = kind.config_class()
    for key in {"vocab_size", "decoder_vocab_size"} & config.to_dict().keys():
        setattr(config, key, tokens)
    with torch.device("meta"):
        model = kind(config)
    shapes = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
    return config, shapes, set(model.all_tied_weights_keys)


def inferred(facts: dict[str, Any], shapes: Shapes, whole: str = "") -> VocabularyTensors:
    """Return the tensors of tokens that are found in a model.

    Args:
        facts: the model's config.json.
        shapes: the shapes of its tensors.
        whole: the name of a tensor of whole numbers.
    """
    tensors = {
        n: Stored(n, "I64" if n == whole else "F32", shape, "a", 0) for n, shape in shapes.items()
    }
    source = Source(
        ref=ModelRef("a", "a"),
        kind="local",
        folder=Path(),
        revision=None,
        config=facts,
        tensors=tensors,
    )
    return find_vocabulary(source, infer_layers(tensors, facts))


@pytest.mark.parametrize("name", [*FOUND, *UNDECIDED])
@pytest.mark.parametrize("saved", ["all", "without what is tied"])
def test_they_are_found_or_known_to_be_undecided(name: str, saved: str) -> None:
    config, shapes, tied = built(name, 80_021)
    _, longer, _ = built(name, 80_023)
    if saved != "all":
        shapes = {key: shape for key, shape in shapes.items() if key not in tied}
    grown = {key for key, shape in shapes.items() if shape != longer[key]}
    vocabulary = inferred(json.loads(config.to_json_string(use_diff=False)), shapes)
    assert vocabulary.size == 80_021
    undecided = {UNDECIDED[name]} if name in UNDECIDED else set()
    assert vocabulary.found == grown - undecided
    assert set(vocabulary.undecided) == undecided


LLAMA = {"vocab_size": 64, "num_hidden_layers": 2}
SQUARE: Shapes = {
    "model.embed_tokens.weight": (64, 64),
    "model.layers.0.mlp.weight": (64, 64),
    "model.layers.1.mlp.weight": (64, 64),
    "model.norm.weight": (64,),
    "pooler.dense.weight": (64, 64),
    "pooler.dense.bias": (64,),
    "lm_head.weight": (64, 64),
    "lm_head.bias": (64,),
    "lm_head.layer_norm.weight": (64,),
}


def test_where_layers_are_as_wide_as_the_vocabulary_only_names_tell() -> None:
    vocabulary = inferred(LLAMA, SQUARE)
    assert vocabulary.found == {"model.embed_tokens.weight", "lm_head.weight", "lm_head.bias"}
    assert set(vocabulary.undecided) == {"pooler.dense.weight", "pooler.dense.bias"}


def test_a_table_of_whole_numbers_inside_the_layers_is_undecided() -> None:
    """The table may name, for example, the expert of each token."""
    name = "model.layers.1.gate.experts_of_tokens"
    shapes = {"model.embed_tokens.weight": (70, 64), "model.layers.0.mlp.weight": (64, 64)}
    shapes |= {"model.layers.1.mlp.weight": (64, 64), name: (70, 6)}
    vocabulary = inferred({**LLAMA, "vocab_size": 70}, shapes, name)
    assert vocabulary.found == {"model.embed_tokens.weight"}
    assert vocabulary.undecided == (name,)


def test_a_composite_models_vocabulary_is_that_with_room_for_the_tokens() -> None:
    facts = {"text_config": {"vocab_size": 90}, "audio_config": {"vocab_size": 70}}
    shapes: Shapes = {"audio.embed.weight": (70, 8), "text.embed.weight": (90, 8)}
    sizes = {n: sized(facts, shapes, n) for n in (0, 70, 71, 90, 200)}
    assert sizes == {0: 70, 70: 70, 71: 90, 90: 90, 200: 90}


def sized(facts: dict[str, Any], shapes: Shapes, tokens: int) -> int | None:
    tensors = {n: Stored(n, "F32", shape, "a", 0) for n, shape in shapes.items()}
    source = Source(
        ref=ModelRef("a", "a"),
        kind="local",
        folder=Path(),
        revision=None,
        config=facts,
        tensors=tensors,
    )
    return find_vocabulary(source, infer_layers(tensors, facts), tokens).size


EMBEDDING = "model.embed_tokens.weight"


@pytest.mark.parametrize(
    ("facts", "shapes", "size"),
    [
        ({"vocab_size": 64}, {EMBEDDING: (64, 8)}, 64),
        ({"vocab_size": 64}, {EMBEDDING: (68, 8)}, 64),  # a 16th more
        ({"vocab_size": 64}, {EMBEDDING: (69, 8)}, None),
        ({"vocab_size": 64}, {EMBEDDING: (63, 8)}, None),
        ({}, {EMBEDDING: (64, 8), "lm_head.weight": (70, 8)}, 64),
        ({"vocab_size": 64}, {"output.weight": (64, 8)}, 64),
        ({"vocab_size": True}, {EMBEDDING: (64, 8)}, 64),
        ({"type_vocab_size": 2, "vocab_size": 64}, {EMBEDDING: (64, 8), "x.emb": (2, 8)}, 64),
        ({"entity_vocab_size": 90, "vocab_size": 64}, {EMBEDDING: (64, 8), "e.emb": (90, 8)}, 64),
        ({"n_words": 64}, {EMBEDDING: (64, 8)}, 64),
        ({"vocab_size": 64}, {"wpe.weight": (64, 8)}, None),
        ({"vocab_size": 64, "other_vocab_size": 60}, {EMBEDDING: (64, 8), "a.out": (60, 8)}, 64),
    ],
)
def test_the_number_of_rows(facts: dict[str, Any], shapes: Shapes, size: int | None) -> None:
    assert sized(facts, shapes, 0) == size


def test_a_bias_is_a_heads_where_its_weight_is_a_table_or_is_not_there() -> None:
    shapes: Shapes = {EMBEDDING: (64, 8), "lm_head.bias": (64,), "prompt.weight": (9, 8)}
    shapes |= {"other.weight": (9, 64), "other.bias": (64,), "decoder.norm.scale": (64,)}
    vocabulary = inferred({"vocab_size": 64}, shapes)
    assert vocabulary.found == {EMBEDDING, "lm_head.bias"}
    assert "other.bias" in vocabulary.undecided
    square = {"model.layers.0.w": (64, 64), "model.layers.1.w": (64, 64)}
    shapes = {EMBEDDING: (64, 64), "x.bias": (64,), **square}
    assert inferred(LLAMA, shapes).found == {EMBEDDING}
    shapes = {EMBEDDING: (64, 8), "x.bias": (64,)}
    assert inferred(LLAMA, shapes).found == {EMBEDDING, "x.bias"}, "nothing else is as long"


def test_tables_are_embeddings_and_heads_and_no_biases() -> None:
    shapes: Shapes = {EMBEDDING: (64, 8), "lm_head.weight": (64, 8), "lm_head.bias": (64,)}
    shapes["final_logits_bias"] = (1, 64)
    tensors = {n: Stored(n, "F32", shape, "a", 0) for n, shape in shapes.items()}
    source = Source(
        ref=ModelRef("a", "a"),
        kind="local",
        folder=Path(),
        revision=None,
        config={"vocab_size": 64},
        tensors=tensors,
    )
    vocabulary = find_vocabulary(source, infer_layers(tensors, source.config))
    assert vocabulary.found == shapes.keys()
    assert sorted(vocabulary.tables(source)) == ["lm_head.weight", EMBEDDING]


def test_a_table_with_a_few_rows_more_is_undecided_and_a_buffer_is_not() -> None:
    shapes: Shapes = {EMBEDDING: (64, 8), "prompt_embed.weight": (66, 8), "x.inv_freq": (64,)}
    vocabulary = inferred({"vocab_size": 64}, shapes)
    assert vocabulary.undecided == ("prompt_embed.weight",)
    shapes = {EMBEDDING: (64, 8), "odd.matrix": (8, 64)}
    assert inferred({"vocab_size": 64}, shapes).undecided == ("odd.matrix",)
    layers = {"model.layers.0.w": (64, 8), "model.layers.1.w": (64, 8)}
    assert inferred(LLAMA, {**shapes, **layers}).undecided == (), "many things are that long"


def test_a_table_without_a_telling_name_is_one_if_it_is_like_the_embedding() -> None:
    shapes: Shapes = {EMBEDDING: (64, 8), "x.matrix": (64, 8), "y.matrix": (64, 16)}
    vocabulary = inferred({"vocab_size": 64}, shapes)
    assert vocabulary.found == {EMBEDDING, "x.matrix"} and vocabulary.undecided == ("y.matrix",)
    grid: Shapes = {EMBEDDING: (64, 16), "lm_head.grid": (8, 8)}
    assert inferred({"vocab_size": 64}, grid).found == {EMBEDDING}, "as many elements, no axis"


def test_whole_numbers_inside_the_layers_make_no_width() -> None:
    whole = "model.layers.1.order"
    shapes: Shapes = {EMBEDDING: (70, 8), "x.bias": (70,), "model.layers.0.w": (8, 8)}
    shapes[whole] = (70, 6)
    facts = {**LLAMA, "vocab_size": 70}
    assert inferred(facts, shapes, whole).found == {EMBEDDING, "x.bias"}
    assert inferred(facts, shapes).found == {EMBEDDING}, "but other numbers do"
