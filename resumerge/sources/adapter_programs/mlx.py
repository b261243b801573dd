"""Adapters of MLX (``adapters.safetensors``), converted to PEFT's names and orientation.

MLX multiplies from the right, ``x @ lora_a @ lora_b``, so both matrices are stored transposed. Its
config states the scale itself (``scale``) instead of an alpha. DoRA's magnitude vector is ``m``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from resumerge.errors import refuse
from resumerge.sources.adapter_programs.config import LoraConfig, finite_number
from resumerge.sources.adapter_programs.program import AdapterProgram, Config
from resumerge.sources.tied_names import is_embedding
from resumerge.tensors import Stored, Tensor

_KINDS = ("lora", "dora")
_MATRIX = re.compile(r"(?P<module>.+)\.lora_(?P<matrix>[ab])", re.DOTALL)
_MAGNITUDE = re.compile(r"(?P<module>.+)\.m", re.DOTALL)


def _wrote(config: Config, _names: Iterable[str]) -> bool:
    """Return whether an adapter_config.json was written by MLX."""
    return "peft_type" not in config and isinstance(config.get("lora_parameters"), Mapping)


def _read_config(config: Config, where: str) -> LoraConfig:
    """Parse an adapter's config.

    In MLX a tied head is the embedding itself, so an adapter changes both: `ties_weights` is true.

    Args:
        config: the parsed adapter_config.json.
        where: the file's name in messages.

    Raises:
        InputError: the adapter is neither a LoRA nor a DoRA, a number is invalid, or versions of
            MLX derive different scales from the config.
    """
    kind, parameters = config.get("fine_tune_type", "lora"), config["lora_parameters"]
    rank, scale, alpha = (parameters.get(key) for key in ("rank", "scale", "alpha"))
    if kind not in _KINDS or (alpha is not None and alpha != rank):
        setting = f"fine_tune_type: {kind}" if kind not in _KINDS else f"alpha: {alpha}"
        raise refuse(
            "What MLX trained is not told by this adapter's config",
            where=where,
            expected="fine_tune_type lora or dora, and lora_parameters with rank and scale",
            found=f"{setting[:60]}, rank: {str(rank)[:20]}, scale: {str(scale)[:20]}",
            fix="remove alpha, and make scale the factor that the training used: scale, or in "
            "old versions scale * alpha / rank"
            if kind in _KINDS
            else "fuse it with its model (mlx_lm.fuse) and name the result",
        )
    rank, scale = finite_number(rank, "rank", where), finite_number(scale, "scale", where)
    return LoraConfig(
        alpha=scale * rank,
        alpha_pattern={},
        rslora=False,
        fan_in_fan_out=False,
        dora=kind == "dora",
        rank=rank,
        ties_weights=True,
    )


def _renamed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return an adapter's tensors with peft's names and orientation."""
    peft_tensors: dict[str, Tensor] = {}
    for mlx_name, tensor in tensors.items():
        peft_name = mlx_name
        if match := _MATRIX.fullmatch(mlx_name):
            module, matrix = match["module"], match["matrix"].upper()
            is_table = is_embedding(f"{module}.weight")
            peft_name = f"{module}.lora_" + (
                f"embedding_{matrix}" if is_table else f"{matrix}.weight"
            )
            tensor = _transposed(tensor)
        elif match := _MAGNITUDE.fullmatch(mlx_name):
            peft_name = f"{match['module']}.lora_magnitude_vector"
        peft_tensors[peft_name] = tensor
    return peft_tensors


def _transposed(tensor: Tensor) -> Tensor:
    if not isinstance(tensor, Stored) or len(tensor.shape) != 2:
        return tensor
    (rows, columns), (row, column) = tensor.shape, tensor.strides or (tensor.shape[1], 1)
    return replace(tensor, shape=(columns, rows), strides=(column, row))


MLX = AdapterProgram(
    name="MLX",
    has_config=True,
    wrote=_wrote,
    read_config=_read_config,
    renamed=_renamed,
    weight_files=("adapters.safetensors",),
)
