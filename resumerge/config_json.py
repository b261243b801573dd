"""What config.json says a model is. Anybody may have written it: any value may be there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def model_type(config: Mapping[str, Any]) -> str:
    """Return the kind of model that transformers knows it by; empty if config.json names none."""
    found = config.get("model_type")
    return found if isinstance(found, str) else ""


def class_names(config: Mapping[str, Any]) -> list[str]:
    """Return the names of the model's classes; empty if config.json names none."""
    found = config.get("architectures")
    return [str(name) for name in found] if isinstance(found, list) else []
