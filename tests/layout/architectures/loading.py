"""Opening a merged model with transformers, strictly, and running it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from zoo import ARCHITECTURES


def loaded(name: str, folder: Path) -> Any:
    """Load a model, and check that transformers finds every tensor and no other."""
    model, info = getattr(transformers, ARCHITECTURES[name].model).from_pretrained(
        folder, output_loading_info=True
    )
    problems = {key: info[key] for key in info if "keys" in key and info[key]}
    assert not problems, problems
    return model.eval()


def output(name: str, model: Any) -> Tensor:
    """Return the output of a forward pass, and check that every number is finite."""
    with torch.no_grad():
        found: Tensor = model(**ARCHITECTURES[name].feed)[0]
    assert found.isfinite().all()
    return found
