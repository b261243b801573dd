"""Promise: logits are those of the adapted model in peft, unmerged, whatever the base ties."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from merging import merge, tensors_of
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor

from resumerge.errors import InputError

COPY = "merge_method: passthrough\nmodels: [{model: base+adapter}]\n"
TOKENS, MORE = 48, 52

DECODER: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
SEQ2SEQ: dict[str, Any] = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 32,
    "forced_eos_token_id": None,
}
T5: dict[str, Any] = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2}
ENCODER: dict[str, Any] = {k: v for k, v in DECODER.items() if "key" not in k and k != "head_dim"}
GPT: dict[str, Any] = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32}

MODELS: dict[str, tuple[str, dict[str, Any], str, str, str]] = {
    "llama": ("LlamaForCausalLM", DECODER, "q_proj", "embed_tokens", "lm_head"),
    "mistral": ("MistralForCausalLM", DECODER, "q_proj", "embed_tokens", "lm_head"),
    "qwen2": ("Qwen2ForCausalLM", DECODER, "q_proj", "embed_tokens", "lm_head"),
    "gemma2": ("Gemma2ForCausalLM", DECODER, "q_proj", "embed_tokens", "lm_head"),
    "phi3": ("Phi3ForCausalLM", DECODER, "o_proj", "embed_tokens", "lm_head"),
    "gpt2": ("GPT2LMHeadModel", GPT, "c_attn", "wte", "lm_head"),
    "gpt_neox": ("GPTNeoXForCausalLM", ENCODER, "dense", "embed_in", "lm_head"),
    "bloom": ("BloomForCausalLM", GPT | {"hidden_size": 16}, "dense", "word_embeddings", "lm_head"),
    "opt": (
        "OPTForCausalLM",
        ENCODER | {"ffn_dim": 24, "max_position_embeddings": 32, "word_embed_proj_dim": 16},
        *("q_proj", "embed_tokens", "lm_head"),
    ),
    "mamba": ("MambaForCausalLM", ENCODER, "in_proj", "embeddings", "lm_head"),
    "bert": ("BertForMaskedLM", ENCODER, "query", "word_embeddings", "cls.predictions.decoder"),
    "roberta": ("RobertaForMaskedLM", ENCODER, "query", "word_embeddings", "lm_head.decoder"),
    "electra": (
        "ElectraForMaskedLM",
        ENCODER | {"embedding_size": 16},
        *("query", "word_embeddings", "generator_lm_head"),
    ),
    "distilbert": (
        "DistilBertForMaskedLM",
        {"dim": 16, "hidden_dim": 24, "n_layers": 1, "n_heads": 2},
        *("q_lin", "word_embeddings", "vocab_projector"),
    ),
    "t5": ("T5ForConditionalGeneration", T5, "q", "decoder.embed_tokens", "lm_head"),
    "umt5": ("UMT5ForConditionalGeneration", T5, "q", "encoder.embed_tokens", "lm_head"),
    "switch": ("SwitchTransformersForConditionalGeneration", T5, "q", "shared", "lm_head"),
    "bart": ("BartForConditionalGeneration", SEQ2SEQ, "q_proj", "decoder.embed_tokens", "lm_head"),
    "marian": ("MarianMTModel", SEQ2SEQ, "q_proj", "encoder.embed_tokens", "lm_head"),
    "whisper": (
        "WhisperForConditionalGeneration",
        SEQ2SEQ | {"num_mel_bins": 8, "max_source_positions": 8, "max_target_positions": 32},
        *("q_proj", "embed_tokens", "proj_out"),
    ),
}
"""By name: the class, its config, a module inside a layer, an embedding, and the head."""

KINDS = ("embedding", "head", "both", "save embedding", "save head", "save both")


def options(kind: str, inside: str, embedding: str, head: str) -> dict[str, Any]:
    """Return the options of an adapter that changes embedding or head, or saves them whole."""
    if kind == "inside":
        return {"target_modules": [inside]}
    changed = {"embedding": [embedding], "head": [head], "both": [embedding, head]}
    if kind == "tied":
        return {"target_modules": [inside, embedding], "ensure_weight_tying": True}
    if kind == "tokens":
        return {"target_modules": [inside], "trainable_token_indices": {embedding: [5, 3, 9]}}
    if kind == "save tied":
        saved = {"modules_to_save": [embedding], "ensure_weight_tying": True}
        return {"target_modules": [inside], **saved}
    if kind in changed:
        return {"target_modules": [inside, *changed[kind]]}
    saved = changed[kind.removeprefix("save ")]
    return {"target_modules": [inside], "modules_to_save": saved}


def write_base(folder: Path, name: str) -> None:
    kind, config, *_ = MODELS[name]
    torch.manual_seed(0)
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    cls = getattr(tf, kind)
    made = cls.config_class(vocab_size=TOKENS, **config, **ids)
    made.tie_word_embeddings = True
    model = cls(made)
    for parameter in model.parameters():
        parameter.data = torch.randn_like(parameter) * 0.1
    model.save_pretrained(folder)


def logits(model: Any) -> Tensor:
    ids = torch.arange(3, 23)[None]
    config = model.get_base_model().config if isinstance(model, PeftModel) else model.config
    given = {"input_ids": ids}
    if config.model_type == "whisper":
        given = {"input_features": torch.linspace(-1, 1, 8 * 16).reshape(1, 8, 16)}
    if config.is_encoder_decoder:
        given["decoder_input_ids"] = ids.flip(1)
    with torch.no_grad():
        return model.eval()(**given).logits


def adapted(folder: Path, name: str, kind: str, rows: int | None = None) -> Tensor:
    """Write an adapter; return the logits of the model with it in peft, loaded again."""
    cls, inside, embedding, head = getattr(tf, MODELS[name][0]), *MODELS[name][2:]
    torch.manual_seed(1)

    def base() -> Any:
        torch.manual_seed(2)
        model = cls.from_pretrained(folder / "base")
        if rows:
            model.resize_token_embeddings(rows, mean_resizing=False)
        return model

    made = LoraConfig(r=2, init_lora_weights=False, **options(kind, inside, embedding, head))
    model = get_peft_model(base(), made)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data += torch.randn_like(parameter) * 0.1
    model.save_pretrained(folder / "adapter")
    return logits(PeftModel.from_pretrained(base(), folder / "adapter"))


@pytest.fixture(scope="module", params=MODELS)
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp(request.param)
    write_base(folder / "base", request.param)
    yield request.param, folder / "base"


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_the_adapted_model(
    kind: str, model: tuple[str, Path], tmp_path: Path
) -> None:
    name, base = model
    (tmp_path / "base").symlink_to(base)
    want = adapted(tmp_path, name, kind)
    out = merge(tmp_path, COPY, tmp_path / "out")
    opened, info = getattr(tf, MODELS[name][0]).from_pretrained(out, output_loading_info=True)
    assert not (info["missing_keys"] or info["unexpected_keys"] or info["mismatched_keys"])
    torch.testing.assert_close(logits(opened), want, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", ["tied", "save tied", "tokens"])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_what_peft_keeps_tied_stays_one_tensor(name: str, kind: str, tmp_path: Path) -> None:
    """peft knows embeddings by the name ``embed_tokens``; others are no longer tied."""
    write_base(tmp_path / "base", name)
    want = adapted(tmp_path, name, kind)
    out = merge(tmp_path, COPY, tmp_path / "out")
    tied = name == "llama" or kind == "tokens"
    assert ("lm_head.weight" not in tensors_of(out)) == tied
    assert config_of(out)["tie_word_embeddings"] == tied
    opened = getattr(tf, MODELS[name][0]).from_pretrained(out)
    torch.testing.assert_close(logits(opened), want, rtol=0, atol=1e-4)


GROWN = ("llama", "gpt2", "opt", "bert", "roberta", "t5", "bart", "whisper")


@pytest.mark.parametrize("name", GROWN)
@pytest.mark.parametrize("kind", ["inside", "embedding", "head", "both", "save both"])
def test_a_grown_vocabulary(name: str, kind: str, tmp_path: Path) -> None:
    write_base(tmp_path / "base", name)
    want = adapted(tmp_path, name, kind, rows=MORE)
    out = merge(tmp_path, COPY, tmp_path / "out")
    assert config_of(out)["vocab_size"] == MORE
    opened, info = getattr(tf, MODELS[name][0]).from_pretrained(out, output_loading_info=True)
    assert not (info["missing_keys"] or info["unexpected_keys"] or info["mismatched_keys"])
    torch.testing.assert_close(logits(opened), want, rtol=0, atol=1e-4)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("alone", ["embed_tokens", "lm_head"])
def test_an_adapter_that_grows_one_of_embedding_and_head_alone_is_refused(
    alone: str, tied: bool, tmp_path: Path
) -> None:
    model = tf.LlamaForCausalLM(
        tf.LlamaConfig(**DECODER, vocab_size=TOKENS, tie_word_embeddings=tied)
    )
    model.save_pretrained(tmp_path / "base")
    model.resize_token_embeddings(MORE, mean_resizing=False)
    made = LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=[alone])
    get_peft_model(model, made).save_pretrained(tmp_path / "adapter", save_embedding_layers=False)
    with pytest.raises(InputError, match="adds tokens to one of embedding and head alone") as told:
        merge(tmp_path, COPY, tmp_path / "out")
    [problem] = told.value.problems
    assert problem.expected.startswith(f"{MORE} rows") and alone in problem.expected
    assert problem.found.endswith(f"{TOKENS} rows")


def config_of(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "config.json").read_text())
    return found
