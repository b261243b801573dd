"""Adapters of small models as peft saves them, with random numbers, and their changes."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import peft
import torch
from torch import Tensor
from tuned_models import MODELS


def make_base(folder: Path, kind: str) -> Any:
    """Write the model `base` into a folder, and return it."""
    torch.manual_seed(0)
    model = MODELS[kind]().eval()
    model.save_pretrained(folder / "base")
    model.set_experts_implementation("eager")  # the others have no float64
    return model


def write_lora(model: Any, folder: Path, seed: int, **options: Any) -> dict[str, Tensor]:
    """Write an adapter of a model, and return how each parameter changes with it, densely.

    Args:
        model: the model; it is not changed.
        folder: the adapter's folder.
        seed: the seed of its numbers.
        options: those of `peft.LoraConfig`.
    """
    drawn = torch.Generator().manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted = peft.get_peft_model(copy.deepcopy(model), peft.LoraConfig(**options))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=drawn))
            elif "modules_to_save" in name or (
                options.get("bias", "none") != "none" and "bias" in name
            ):
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=drawn))
    adapted.save_pretrained(folder)
    return changes_of(model, folder)


def changes_of(model: Any, adapter: Path) -> dict[str, Tensor]:
    """Return the change of each parameter by an adapter, in float64, as peft merges it."""
    before = {name: tensor.double().clone() for name, tensor in model.state_dict().items()}
    merged = loaded(model, adapter).merge_and_unload().state_dict()
    return {name: merged[name].double() - tensor for name, tensor in before.items()}


def loaded(model: Any, adapter: Path) -> Any:
    """Load an adapter by peft into a float64 copy of a model; missing keys are errors."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*missing adapter keys.*")
        return peft.PeftModel.from_pretrained(
            copy.deepcopy(model).double(), adapter, autocast_adapter_dtype=False
        ).double()


def with_changes(
    model: Any, changes: Sequence[Mapping[str, Tensor]], factors: Sequence[float]
) -> Any:
    """Return a float64 copy of a model to which a weighted sum of changes is added densely."""
    other = copy.deepcopy(model).double()
    with torch.no_grad():
        tied: set[int] = set()
        for name, parameter in other.state_dict().items():
            if parameter.is_floating_point() and parameter.data_ptr() not in tied:
                tied.add(parameter.data_ptr())
                for change, factor in zip(changes, factors):
                    parameter += factor * change[name]
    return other.eval()


def logits(model: Any, inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the logits of a model for inputs, in float64."""
    wide = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
    with torch.no_grad():
        found: Tensor = model.eval()(**wide).logits
    return found
