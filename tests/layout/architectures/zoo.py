"""Tiny random models of many architectures, built by transformers, which these tests merge.

An entry has a config's arguments, and those of a forward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import Tensor

TEXT = {"vocab_size": 48, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 4}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1}
LLAMA = {**TEXT, **HEADS, "max_position_embeddings": 64}
BERT = {**TEXT, "num_attention_heads": 2, "max_position_embeddings": 64}
VISION = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": 8,
    "patch_size": 4,
}
TOKENS = torch.arange(4, 14).unsqueeze(0)
IMAGE = torch.linspace(-1, 1, 3 * 8 * 8).reshape(1, 3, 8, 8)


@dataclass(frozen=True)
class Architecture:
    """An architecture in transformers.

    Args:
        model: the name of the model's class.
        config: the name of the config's class.
        options: the arguments of the config.
        feed: the arguments of a forward pass.
        stack: the main list of layers, as tensors on disk are named; None if there is none.
        length: the number of layers in that list.
    """

    model: str
    config: str
    options: Mapping[str, Any]
    feed: Mapping[str, Tensor] = field(default_factory=lambda: {"input_ids": TOKENS})
    stack: str | None = "model.layers"
    length: int = 4

    def configured(self) -> Any:
        return getattr(transformers, self.config)(**self.options)

    def build(self, seed: int) -> Any:
        """Build a model with random weights in float32, in evaluation mode."""
        torch.manual_seed(seed)
        model = getattr(transformers, self.model)(self.configured())
        return model.eval()


def _decoders() -> dict[str, Architecture]:
    def llama_like(name: str, **more: Any) -> Architecture:
        options = {**LLAMA, "head_dim": 8, **more}
        return Architecture(f"{name}ForCausalLM", f"{name}Config", options)

    sliding = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
    return {
        "llama": llama_like("Llama"),
        "mistral": llama_like("Mistral"),
        "qwen2": llama_like("Qwen2", tie_word_embeddings=True),
        "qwen3": llama_like("Qwen3"),
        "gemma2": llama_like("Gemma2", layer_types=sliding),
        "gemma3_text": Architecture(
            "Gemma3ForCausalLM",
            "Gemma3TextConfig",
            {**LLAMA, "head_dim": 8, "layer_types": sliding, "sliding_window": 4},
        ),
        "phi3": llama_like("Phi3", pad_token_id=0),
        "stablelm": llama_like("StableLm"),
        "cohere": llama_like("Cohere"),
        "olmo2": llama_like("Olmo2"),
        "granite": llama_like("Granite"),
        "smollm3": llama_like("SmolLM3", no_rope_layers=[1, 1, 0, 1], pad_token_id=0),
        "gpt2": Architecture(
            "GPT2LMHeadModel",
            "GPT2Config",
            {"vocab_size": 48, "n_embd": 16, "n_layer": 4, "n_head": 2, "n_positions": 64},
            stack="transformer.h",
        ),
        "gpt_neox": Architecture(
            "GPTNeoXForCausalLM", "GPTNeoXConfig", BERT, stack="gpt_neox.layers"
        ),
        "gptj": Architecture(
            "GPTJForCausalLM",
            "GPTJConfig",
            {"vocab_size": 48, "n_embd": 16, "n_layer": 4, "n_head": 2, "rotary_dim": 4},
            stack="transformer.h",
        ),
        "gpt_neo": Architecture(
            "GPTNeoForCausalLM",
            "GPTNeoConfig",
            {
                "vocab_size": 48,
                "hidden_size": 16,
                "num_layers": 4,
                "num_heads": 2,
                "attention_types": [[["global", "local"], 2]],
                "max_position_embeddings": 64,
                "window_size": 4,
            },
            stack="transformer.h",
        ),
        "falcon": Architecture(
            "FalconForCausalLM",
            "FalconConfig",
            {"vocab_size": 48, "hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2},
            stack="transformer.h",
        ),
        "bloom": Architecture(
            "BloomForCausalLM",
            "BloomConfig",
            {"vocab_size": 48, "hidden_size": 16, "n_layer": 4, "n_head": 2},
            stack="transformer.h",
        ),
        "opt": Architecture(
            "OPTForCausalLM",
            "OPTConfig",
            {
                "vocab_size": 48,
                "hidden_size": 16,
                "ffn_dim": 24,
                "num_hidden_layers": 4,
                "num_attention_heads": 2,
                "max_position_embeddings": 64,
                "word_embed_proj_dim": 16,
            },
            stack="model.decoder.layers",
        ),
        "mpt": Architecture(
            "MptForCausalLM",
            "MptConfig",
            {"vocab_size": 48, "d_model": 16, "n_layers": 4, "n_heads": 2, "max_seq_len": 64},
            stack="transformer.blocks",
        ),
    }


def _experts() -> dict[str, Architecture]:
    few = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
    deepseek = {
        **LLAMA,
        "num_key_value_heads": 2,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "n_group": 1,
        "topk_group": 1,
        "moe_intermediate_size": 8,
        "first_k_dense_replace": 1,
        "q_lora_rank": 8,
        "kv_lora_rank": 8,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
    }
    return {
        "mixtral": Architecture(
            "MixtralForCausalLM", "MixtralConfig", {**LLAMA, "num_local_experts": 4}
        ),
        "qwen3_moe": Architecture(
            "Qwen3MoeForCausalLM", "Qwen3MoeConfig", {**LLAMA, "head_dim": 8, **few}
        ),
        "qwen2_moe": Architecture(
            "Qwen2MoeForCausalLM",
            "Qwen2MoeConfig",
            {**LLAMA, **few, "shared_expert_intermediate_size": 12},
        ),
        "qwen3_5_moe": Architecture(
            "Qwen3_5MoeForCausalLM",
            "Qwen3_5MoeTextConfig",
            {
                **LLAMA,
                **few,
                "head_dim": 8,
                "shared_expert_intermediate_size": 12,
                **dict.fromkeys(("linear_num_value_heads", "linear_num_key_heads"), 2),
                **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim"), 8),
            },
        ),
        "glm4_moe": Architecture(
            "Glm4MoeForCausalLM",
            "Glm4MoeConfig",
            {
                **{key: deepseek[key] for key in deepseek if "lora" not in key},
                "head_dim": 8,
                "num_key_value_heads": 1,
            },
        ),
        "olmoe": Architecture(
            "OlmoeForCausalLM",
            "OlmoeConfig",
            {**LLAMA, "num_experts": 4, "num_experts_per_tok": 2},
        ),
        "granitemoe": Architecture(
            "GraniteMoeForCausalLM",
            "GraniteMoeConfig",
            {**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2},
        ),
        "phimoe": Architecture(
            "PhimoeForCausalLM",
            "PhimoeConfig",
            {**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2},
        ),
        "deepseek_v2": Architecture("DeepseekV2ForCausalLM", "DeepseekV2Config", deepseek),
        "deepseek_v3": Architecture("DeepseekV3ForCausalLM", "DeepseekV3Config", deepseek),
        "gpt_oss": Architecture(
            "GptOssForCausalLM",
            "GptOssConfig",
            {
                **LLAMA,
                "head_dim": 8,
                "num_local_experts": 4,
                "num_experts_per_tok": 2,
                "layer_types": ["sliding_attention", "full_attention"] * 2,
            },
        ),
    }


def _recurrent() -> dict[str, Architecture]:
    return {
        "mamba": Architecture(
            "MambaForCausalLM",
            "MambaConfig",
            {"vocab_size": 48, "hidden_size": 16, "num_hidden_layers": 4, "state_size": 4},
            stack="backbone.layers",
        ),
        "jamba": Architecture(
            "JambaForCausalLM",
            "JambaConfig",
            {
                **LLAMA,
                "attn_layer_period": 2,
                "attn_layer_offset": 1,
                "expert_layer_period": 2,
                "expert_layer_offset": 1,
                "num_experts": 2,
                "num_experts_per_tok": 1,
                "use_mamba_kernels": False,
                "mamba_d_state": 4,
                "mamba_dt_rank": 4,
            },
        ),
        "lfm2": Architecture(
            "Lfm2ForCausalLM",
            "Lfm2Config",
            {
                **LLAMA,
                "layer_types": ["conv", "full_attention", "conv", "full_attention"],
                "conv_L_cache": 3,
            },
        ),
        "recurrent_gemma": Architecture(
            "RecurrentGemmaForCausalLM",
            "RecurrentGemmaConfig",
            {
                **LLAMA,
                "lru_width": 16,
                "block_types": ["recurrent", "attention"],
                "attention_window_size": 16,
            },
        ),
    }


def _encoders() -> dict[str, Architecture]:
    return {
        "bert": Architecture("BertForMaskedLM", "BertConfig", BERT, stack="bert.encoder.layer"),
        "bert_classifier": Architecture(
            "BertForSequenceClassification", "BertConfig", BERT, stack="bert.encoder.layer"
        ),
        "roberta": Architecture(
            "RobertaForMaskedLM", "RobertaConfig", BERT, stack="roberta.encoder.layer"
        ),
        "distilbert": Architecture(
            "DistilBertForMaskedLM",
            "DistilBertConfig",
            {"vocab_size": 48, "dim": 16, "hidden_dim": 24, "n_layers": 4, "n_heads": 2},
            stack="distilbert.transformer.layer",
        ),
        "deberta": Architecture(
            "DebertaV2ForMaskedLM",
            "DebertaV2Config",
            {**BERT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
            stack="deberta.encoder.layer",
        ),
        "electra": Architecture(
            "ElectraForPreTraining",
            "ElectraConfig",
            {**BERT, "embedding_size": 16},
            stack="electra.encoder.layer",
        ),
        "modernbert": Architecture(
            "ModernBertForMaskedLM",
            "ModernBertConfig",
            {**BERT, "pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2},
        ),
        "vit": Architecture(
            "ViTForImageClassification",
            "ViTConfig",
            {**VISION, "num_hidden_layers": 4},
            {"pixel_values": IMAGE},
            stack="vit.encoder.layer",
        ),
        "wav2vec2": Architecture(
            "Wav2Vec2ForCTC",
            "Wav2Vec2Config",
            {
                **BERT,
                "conv_dim": [8, 8],
                "conv_stride": [5, 2],
                "conv_kernel": [10, 3],
                "num_feat_extract_layers": 2,
                "num_conv_pos_embeddings": 4,
                "num_conv_pos_embedding_groups": 2,
            },
            {"input_values": torch.linspace(-1, 1, 400).reshape(1, 400)},
            stack="wav2vec2.encoder.layers",
        ),
    }


def _encoder_decoders() -> dict[str, Architecture]:
    both = {"input_ids": TOKENS, "decoder_input_ids": TOKENS[:, :4]}
    bart = {
        "vocab_size": 48,
        "d_model": 16,
        "encoder_layers": 3,
        "decoder_layers": 4,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 24,
        "decoder_ffn_dim": 24,
        "max_position_embeddings": 64,
    }
    return {
        "t5": Architecture(
            "T5ForConditionalGeneration",
            "T5Config",
            {
                "vocab_size": 48,
                "d_model": 16,
                "d_kv": 8,
                "d_ff": 24,
                "num_layers": 3,
                "num_decoder_layers": 4,
                "num_heads": 2,
                "decoder_start_token_id": 0,
                "feed_forward_proj": "gated-gelu",
            },
            both,
            stack=None,
        ),
        "bart": Architecture("BartForConditionalGeneration", "BartConfig", bart, both, stack=None),
        "whisper": Architecture(
            "WhisperForConditionalGeneration",
            "WhisperConfig",
            {
                **bart,
                "num_mel_bins": 8,
                "max_source_positions": 8,
                "max_target_positions": 32,
                "decoder_start_token_id": 1,
                "pad_token_id": 0,
                "bos_token_id": 1,
                "eos_token_id": 2,
                "begin_suppress_tokens": None,
            },
            {
                "input_features": torch.linspace(-1, 1, 8 * 16).reshape(1, 8, 16),
                "decoder_input_ids": TOKENS[:, :4],
            },
            stack=None,
        ),
    }


def _composites() -> dict[str, Architecture]:
    image_tokens = torch.tensor([[5, 40, 40, 40, 40, 6, 7]])
    merged = torch.tensor([[5, 41, 40, 42, 6, 7]])
    text = {**LLAMA, "head_dim": 8}
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
    patches = torch.linspace(-1, 1, 4 * 3 * 2 * 4 * 4).reshape(4, -1)
    grid = torch.tensor([[1, 2, 2]])
    ids = {
        "image_token_id": 40,
        "video_token_id": 43,
        "vision_start_token_id": 41,
        "vision_end_token_id": 42,
    }
    qwen_feed = {
        "input_ids": merged,
        "pixel_values": patches,
        "image_grid_thw": grid,
        "mm_token_type_ids": (merged == 40).long(),
    }
    language = "language_model.model.layers"
    return {
        "qwen2_vl": Architecture(
            "Qwen2VLForConditionalGeneration",
            "Qwen2VLConfig",
            {
                "text_config": {**LLAMA, "rope_parameters": rope},
                "vision_config": {
                    "depth": 3,
                    "embed_dim": 16,
                    "hidden_size": 16,
                    "num_heads": 2,
                    "patch_size": 4,
                    "mlp_ratio": 2,
                    "temporal_patch_size": 2,
                },
                **ids,
            },
            qwen_feed,
            stack="model.layers",
        ),
        "qwen2_5_vl": Architecture(
            "Qwen2_5_VLForConditionalGeneration",
            "Qwen2_5_VLConfig",
            {
                "text_config": {**LLAMA, "rope_parameters": rope},
                "vision_config": {
                    "depth": 3,
                    "hidden_size": 16,
                    "out_hidden_size": 16,
                    "intermediate_size": 24,
                    "num_heads": 2,
                    "patch_size": 4,
                    "window_size": 16,
                    "fullatt_block_indexes": [1],
                },
                **ids,
            },
            qwen_feed,
            stack="model.layers",
        ),
        "gemma3": Architecture(
            "Gemma3ForConditionalGeneration",
            "Gemma3Config",
            {
                "text_config": {
                    **text,
                    "layer_types": ["sliding_attention", "full_attention"] * 2,
                    "sliding_window": 4,
                },
                "vision_config": VISION,
                "mm_tokens_per_image": 4,
                "image_token_index": 40,
                "image_token_id": 40,
            },
            {
                "input_ids": image_tokens,
                "pixel_values": IMAGE,
                "token_type_ids": (image_tokens == 40).long(),
            },
            stack=language,
        ),
        "llava": Architecture(
            "LlavaForConditionalGeneration",
            "LlavaConfig",
            {
                "text_config": {**text, "model_type": "llama"},
                "vision_config": {**VISION, "model_type": "clip_vision_model"},
                "image_token_index": 40,
                "image_token_id": 40,
                "vision_feature_layer": -2,
            },
            {"input_ids": image_tokens, "pixel_values": IMAGE},
            stack=language,
        ),
        "clip": Architecture(
            "CLIPModel",
            "CLIPConfig",
            {
                "text_config": {**BERT, "eos_token_id": 13},
                "vision_config": VISION,
                "projection_dim": 8,
            },
            {"input_ids": TOKENS, "pixel_values": IMAGE},
            stack="text_model.encoder.layers",
        ),
        "siglip": Architecture(
            "SiglipModel",
            "SiglipConfig",
            {"text_config": BERT, "vision_config": VISION},
            {"input_ids": TOKENS, "pixel_values": IMAGE},
            stack="text_model.encoder.layers",
        ),
    }


ARCHITECTURES: dict[str, Architecture] = {
    **_decoders(),
    **_experts(),
    **_recurrent(),
    **_encoders(),
    **_encoder_decoders(),
    **_composites(),
}
