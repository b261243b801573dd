"""Stable Diffusion's checkpoints in one file, under the names that interfaces for images read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

_UNET = {
    r"conv_in": "input_blocks.0.0",
    r"conv_norm_out": "out.0",
    r"conv_out": "out.2",
    r"time_embedding\.linear_1": "time_embed.0",
    r"time_embedding\.linear_2": "time_embed.2",
    r"add_embedding\.linear_1": "label_emb.0.0",
    r"add_embedding\.linear_2": "label_emb.0.2",
    r"mid_block\.resnets\.0": "middle_block.0",
    r"mid_block\.attentions\.0": "middle_block.1",
    r"mid_block\.resnets\.1": "middle_block.2",
}
_RESNET = {
    "norm1": "in_layers.0",
    "conv1": "in_layers.2",
    "time_emb_proj": "emb_layers.1",
    "norm2": "out_layers.0",
    "conv2": "out_layers.3",
    "conv_shortcut": "skip_connection",
}
_VAE = {
    "conv_norm_out": "norm_out",
    "conv_shortcut": "nin_shortcut",
    "mid_block.attentions.0": "mid.attn_1",
    "mid_block.resnets.0": "mid.block_1",
    "mid_block.resnets.1": "mid.block_2",
    "downsamplers.0": "downsample",
    "upsamplers.0": "upsample",
    "down_blocks": "down",
    "resnets": "block",
    "group_norm": "norm",
    "to_out.0": "proj_out",
}


def write_original(pipeline: Any, path: Path) -> None:
    """Save an SDXL pipeline's UNet, VAE and first text encoder in one file.

    Args:
        pipeline: a pipeline of diffusers whose UNet has two blocks of one layer.
    """
    tensors: dict[str, Tensor] = {}
    for name, tensor in pipeline.unet.state_dict().items():
        tensors[f"model.diffusion_model.{_unet_name(name)}"] = tensor.contiguous()
    for name, tensor in pipeline.vae.state_dict().items():
        if re.search(r"attentions.*to_.*weight", name):  # of a convolution there
            tensor = tensor[:, :, None, None]
        tensors[f"first_stage_model.{_vae_name(name)}"] = tensor.contiguous()
    for name, tensor in pipeline.text_encoder.state_dict().items():
        own = name.removeprefix("text_model.")
        tensors[f"conditioner.embedders.0.transformer.text_model.{own}"] = tensor.contiguous()
    save_file(tensors, path)


def _unet_name(name: str) -> str:
    for pattern, ours in _UNET.items():
        name = re.sub(f"^{pattern}(?=\\.)", ours, name)
    name = re.sub(
        r"^down_blocks\.(\d)\.(resnets|attentions)\.0",
        lambda m: f"input_blocks.{1 + 2 * int(m[1])}.{int(m[2] == 'attentions')}",
        name,
    )
    name = re.sub(r"^down_blocks\.0\.downsamplers\.0\.conv", "input_blocks.2.0.op", name)
    name = re.sub(
        r"^up_blocks\.(\d)\.(resnets|attentions)\.(\d)",
        lambda m: f"output_blocks.{2 * int(m[1]) + int(m[3])}.{int(m[2] == 'attentions')}",
        name,
    )
    name = re.sub(r"^up_blocks\.0\.upsamplers\.0", "output_blocks.1.2", name)
    if re.match(r"(input_blocks|output_blocks|middle_block)\.", name):
        for theirs, ours in _RESNET.items():
            name = re.sub(rf"^(\w+\.\d+(?:\.0)?)\.{theirs}(?=\.\w+$)", rf"\1.{ours}", name)
    return name


def _vae_name(name: str) -> str:
    name = re.sub(r"up_blocks\.(\d)", lambda m: f"up.{1 - int(m[1])}", name)
    for theirs, ours in _VAE.items():
        name = name.replace(theirs, ours)
    return re.sub(r"attn_1\.to_(\w)\.", r"attn_1.\1.", name)
