"""The quantisation of an output, as the plan holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class QuantisedOutput:
    """The quantisation of the output's weights.

    Args:
        name: the value of ``out_dtype``, which names the scheme.
        kind: the scheme in words, as notes and the model card name it.
        loaders: a sentence for the user, on the programs that load the output.
        config: the quantization_config of the output's config.json.
        tensors: the names of the tensors that hold codes, scales and the like.
    """

    name: str
    kind: str
    loaders: str
    config: Mapping[str, Any]
    tensors: frozenset[str]
