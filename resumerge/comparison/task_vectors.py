"""Task vectors of several fine-tunes of one base: their cosines, and conflicts of signs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from resumerge.comparison.models import MatchedTensor, Models


def task_vectors_of(
    models: Models,
    tensors: Sequence[MatchedTensor],
    rows: Mapping[str, Mapping[str, Any]],
    places: Mapping[str, str],
) -> dict[str, Any] | None:
    """Return the matrices of cosine and sign conflict over tensors that all models have.

    A sign conflict is an element that two models changed in opposite directions. The matrix has its
    share of the elements that both models changed.

    Args:
        models: the compared models; without a base there are no task vectors.
        tensors: the tensors that at least two models have; those that not all models have are left
            out.
        rows: the rows of the journal by the tensor's name, one for each of `tensors`.
        places: the layer of each tensor, as the document calls it, by the tensor's name.

    Returns:
        `models`, the numbers of the fine-tunes; `tensors`, their count; `cosine`, `sign_conflict`
        and `both_changed`, matrices over the fine-tunes, None where nothing was changed; `norms`;
        and the same values `by_layer`. None without a base, or with one fine-tune.
    """
    tuned_models = list(range(1, len(models.sources)))
    if not models.has_base or len(tuned_models) < 2:
        return None
    layers_and_vectors = [
        (places[matched.name], rows[matched.name]["task_vectors"])
        for matched in tensors
        if (rows[matched.name]["task_vectors"] or {}).get("models") == tuned_models
    ]
    layers = dict.fromkeys(layer_of_tensor for layer_of_tensor, _ in layers_and_vectors)
    return {
        "models": tuned_models,
        "tensors": len(layers_and_vectors),
        **_matrices(tuned_models, (vectors for _, vectors in layers_and_vectors)),
        "by_layer": [
            {
                "layer": layer,
                **_matrices(
                    tuned_models,
                    (
                        vectors
                        for layer_of_tensor, vectors in layers_and_vectors
                        if layer_of_tensor == layer
                    ),
                ),
            }
            for layer in layers
        ],
    }


def _matrices(tuned: Sequence[int], found: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    count = len(tuned)
    products = np.zeros((count, count))
    changed_counts, opposed_counts = np.zeros((2, count, count), np.int64)
    for vectors in found:
        products += np.array(vectors["products"])
        for first_model, second_model, both_changed, conflicts in vectors["signs"]:
            matrix_index = tuned.index(first_model), tuned.index(second_model)
            changed_counts[matrix_index] += both_changed
            opposed_counts[matrix_index] += conflicts
    changed_counts = changed_counts + changed_counts.T
    opposed_counts = opposed_counts + opposed_counts.T
    norms = [math.sqrt(square) for square in np.diag(products)]
    return {
        "norms": norms,
        "cosine": [
            [_share(products[i, j], norms[i] * norms[j]) for j in range(count)]
            for i in range(count)
        ],
        "sign_conflict": [
            [
                _share(opposed_counts[i, j], changed_counts[i, j]) if i != j else None
                for j in range(count)
            ]
            for i in range(count)
        ],
        "both_changed": changed_counts.tolist(),
    }


def _share(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None
