"""Files of LoRA adapters whose matrices are merged like any other tensors, each by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from resumerge.recipe import ModelRef, Recipe
from resumerge.sources.adapters.adapter_names import has_matrices
from resumerge.sources.types import Source


def reminder_of_matrices(recipe: Recipe, sources: Mapping[ModelRef, Source]) -> Iterator[str]:
    """Yield a note if the matrices of adapters are merged each by itself, instead of as products.

    This is correct for checkpoints of one training, but not for two different adapters.
    """
    merged_refs = dict.fromkeys(recipe.merged_models)
    adapter_refs = [ref for ref in merged_refs if has_matrices(sources[ref].tensors)]
    if adapter_refs and len(merged_refs) > 1:
        yield (
            f"{adapter_refs[0]} is a LoRA adapter without an adapter_config.json: its matrices A "
            "and B are merged each by itself, which is no merge of what two adapters change (A "
            "times B); for that, write each file after its model, like model+adapter"
        )
