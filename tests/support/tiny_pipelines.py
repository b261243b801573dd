"""Pipelines of diffusers with random weights, made by diffusers: SDXL-like and Flux-like."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from diffusers import (
    AutoencoderKL,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    FluxPipeline,
    FluxTransformer2DModel,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
)
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPTokenizer,
    T5Config,
    T5EncoderModel,
)


def write_sdxl(folder: Path, seed: int, **options: Any) -> None:
    """Write a pipeline of a UNet, a VAE and two CLIP text encoders.

    Args:
        folder: the folder of the pipeline.
        seed: the seed of its weights.
        options: the options of ``save_pretrained``.
    """
    torch.manual_seed(seed)
    unet = UNet2DConditionModel(
        block_out_channels=(8, 16),
        layers_per_block=1,
        sample_size=16,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=(2, 4),
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=80,
        cross_attention_dim=64,
        norm_num_groups=4,
    )
    tokenizer = _tokenizer(folder)
    StableDiffusionXLPipeline(
        vae=_vae(4),
        text_encoder=CLIPTextModel(_clip()),
        text_encoder_2=CLIPTextModelWithProjection(_clip()),
        tokenizer=tokenizer,
        tokenizer_2=tokenizer,
        unet=unet,
        scheduler=EulerDiscreteScheduler(),
    ).save_pretrained(folder, **options)


def write_flux(folder: Path, seed: int, **options: Any) -> None:
    """Write a pipeline of a transformer, a VAE, a CLIP and a T5 text encoder.

    Args:
        folder: the folder of the pipeline.
        seed: the seed of its weights.
        options: the options of ``save_pretrained``.
    """
    torch.manual_seed(seed)
    transformer = FluxTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=[4, 4, 8],
    )
    t5 = T5Config(vocab_size=99, d_model=32, d_ff=37, num_layers=2, num_heads=4, d_kv=8)
    tokenizer = _tokenizer(folder)
    FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(),
        text_encoder=CLIPTextModel(_clip()),
        tokenizer=tokenizer,
        text_encoder_2=T5EncoderModel(t5),
        tokenizer_2=tokenizer,
        vae=_vae(1),
        transformer=transformer,
    ).save_pretrained(folder, **options)


def _clip() -> CLIPTextConfig:
    return CLIPTextConfig(
        vocab_size=100,
        hidden_size=32,
        intermediate_size=37,
        num_attention_heads=4,
        num_hidden_layers=2,
        projection_dim=32,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )


def _vae(latent: int) -> AutoencoderKL:
    return AutoencoderKL(
        block_out_channels=[8, 16],
        down_block_types=["DownEncoderBlock2D"] * 2,
        up_block_types=["UpDecoderBlock2D"] * 2,
        latent_channels=latent,
        sample_size=32,
        norm_num_groups=4,
    )


def _tokenizer(folder: Path) -> CLIPTokenizer:
    beside = folder.with_name(f"{folder.name}.tokenizer")
    beside.mkdir(parents=True)
    tokens = ["<|startoftext|>", "<|endoftext|>", "a", "b", "a</w>", "b</w>"]
    vocab, merges = beside / "vocab.json", beside / "merges.txt"
    vocab.write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    merges.write_text("#version: 0.2\n")
    return CLIPTokenizer(str(vocab), str(merges), model_max_length=77)
