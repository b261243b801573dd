"""The type of a model, from its config.json. The file is untrusted: any value may have any type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def model_type(config: Mapping[str, Any]) -> str:
    """Return the model type that selects a class in transformers; empty if config.json has none."""
    value = config.get("model_type")
    return value if isinstance(value, str) else ""


def class_names(config: Mapping[str, Any]) -> list[str]:
    """Return the names of the model's classes; empty if config.json has none."""
    value = config.get("architectures")
    return [str(name) for name in value] if isinstance(value, list) else []
