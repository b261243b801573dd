"""More multimodal models, and vision models, for tests of adapters."""

from __future__ import annotations

from typing import Any

from zoo import IMAGE, LLAMA, TOKENS, VISION, Architecture

TEXT: dict[str, Any] = {**LLAMA, "num_hidden_layers": 2, "vocab_size": 64}
LANGUAGE = {kind: {**TEXT, "model_type": kind} for kind in ("llama", "qwen2", "mistral")}
CLIP = {**VISION, "model_type": "clip_vision_model", "projection_dim": 16}
SIGLIP = {**VISION, "model_type": "siglip_vision_model"}
PIXTRAL = {**VISION, "model_type": "pixtral", "head_dim": 8}
IDS = {"image_token_index": 60}
VIDEO = {**IDS, "video_token_index": 61}
GRID = {"image_grid_pinpoints": [[8, 8]]}
MROPE = {"rope_type": "default", "mrope_section": [1, 1, 2]}
QWEN3_EYES = {
    "depth": 2,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_heads": 2,
    "patch_size": 4,
    "out_hidden_size": 16,
    "num_position_embeddings": 16,
    "deepstack_visual_indexes": [0],
}
QWEN3_TEXT = {**TEXT, "head_dim": 8, "rope_parameters": {**MROPE, "rope_theta": 10000.0}}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
INTERN = {
    "model_type": "internvl_vision",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": [8, 8],
    "patch_size": [4, 4],
}
PERCEIVER = {
    "hidden_size": 16,
    "resampler_n_latents": 4,
    "resampler_depth": 1,
    "resampler_n_heads": 2,
    "resampler_head_dim": 8,
    "num_key_value_heads": 1,
}
EARS = {
    "d_model": 16,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "num_mel_bins": 8,
    "max_source_positions": 8,
}
VOX = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_mel_bins": 8,
    "max_source_positions": 8,
}


def _speaking(prefix: str, **options: Any) -> Architecture:
    """Return a model that generates text, and whose input here is text alone."""
    classes = f"{prefix}ForConditionalGeneration", f"{prefix}Config"
    return Architecture(*classes, options, {"input_ids": TOKENS}, stack=None)


def _seeing(model: str, config: str, **options: Any) -> Architecture:
    return Architecture(model, config, {**VISION, **options}, {"pixel_values": IMAGE}, stack=None)


FAMILIES: dict[str, Architecture] = {
    "llava_next": _speaking(
        "LlavaNext", text_config=LANGUAGE["llama"], vision_config=CLIP, **IDS, **GRID
    ),
    "llava_next_video": _speaking(
        "LlavaNextVideo", text_config=LANGUAGE["llama"], vision_config=CLIP, **VIDEO, **GRID
    ),
    "llava_onevision": _speaking(
        "LlavaOnevision", text_config=LANGUAGE["qwen2"], vision_config=SIGLIP, **VIDEO, **GRID
    ),
    "video_llava": _speaking(
        "VideoLlava", text_config=LANGUAGE["llama"], vision_config=CLIP, **VIDEO
    ),
    "mistral3": _speaking(
        "Mistral3", text_config=LANGUAGE["mistral"], vision_config=PIXTRAL, **IDS
    ),
    "internvl": _speaking(
        "InternVL", text_config=LANGUAGE["qwen2"], vision_config=INTERN, image_token_id=60
    ),
    "paligemma": _speaking(
        "PaliGemma",
        text_config={**TEXT, "model_type": "gemma", "head_dim": 8},
        vision_config=SIGLIP,
        projection_dim=16,
        **IDS,
    ),
    "qwen3_vl": _speaking("Qwen3VL", text_config=QWEN3_TEXT, vision_config=QWEN3_EYES),
    "qwen3_vl_moe": _speaking(
        "Qwen3VLMoe", text_config={**QWEN3_TEXT, **EXPERTS}, vision_config=QWEN3_EYES
    ),
    "idefics2": _speaking(
        "Idefics2",
        text_config=LANGUAGE["mistral"],
        vision_config=VISION,
        perceiver_config=PERCEIVER,
        image_token_id=60,
    ),
    "idefics3": _speaking(
        "Idefics3",
        text_config=LANGUAGE["llama"],
        vision_config=VISION,
        scale_factor=2,
        image_token_id=60,
    ),
    "qwen2_audio": _speaking("Qwen2Audio", text_config=LANGUAGE["qwen2"], audio_config=EARS),
    "voxtral": _speaking("Voxtral", text_config=LANGUAGE["llama"], audio_config=VOX),
    "dinov2": _seeing("Dinov2ForImageClassification", "Dinov2Config", num_labels=3),
    "dinov2_swiglu": _seeing(
        "Dinov2ForImageClassification", "Dinov2Config", num_labels=3, use_swiglu_ffn=True
    ),
    "deit": _seeing("DeiTForImageClassification", "DeiTConfig", num_labels=3),
    "beit": _seeing("BeitForImageClassification", "BeitConfig", num_labels=3),
}
