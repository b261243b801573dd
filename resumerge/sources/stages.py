"""A stage as a source: the result of a merge that is computed when another one reads it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resumerge.recipe.types import ModelRef
from resumerge.sources.types import Source
from resumerge.tensors import Tensor


def stage_source(
    name: str,
    folder: Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    components: Mapping[str, str],
    number: int,
) -> Source:
    """What a stage would be if it had been written.

    Args:
        folder: with the files beside the weights.
        tensors: of the numbered sources of the plan.
        components: of a pipeline, as in `Source`.
    """
    return Source(
        ModelRef(name, name),
        "stage",
        folder,
        None,
        config,
        tensors,
        components=components,
        number=number,
    )
