"""The document of ``compare --json``, computed from the rows of all tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from resumerge.comparison.facts import compared_configs, compared_vocabularies
from resumerge.comparison.findings import findings_of
from resumerge.comparison.models import MatchedTensor, Models, Pair
from resumerge.comparison.relations import relation_of
from resumerge.comparison.task_vectors import task_vectors_of
from resumerge.comparison.totals import PairTotals
from resumerge.layout.groups import kind_of, layer_key, layer_names
from resumerge.tokenizers.vocabulary import Vocabulary

Rows = Mapping[str, Mapping[str, Any]]
"""The rows of a journal, by the tensor's name."""


def document_of(
    models: Models,
    tensors: Sequence[MatchedTensor],
    rows: Rows,
    vocabularies: Sequence[Vocabulary | None],
) -> dict[str, Any]:
    """Return the document: models, configs, every pair, and with a base the task vectors.

    Unknown numbers, and numbers that are not finite, are null.
    """
    layers = layer_names(layer_key(matched.name) for matched in tensors)
    sorted_tensors = sorted(tensors, key=lambda matched: layer_key(matched.name))
    places = {matched.name: layers[layer_key(matched.name)] for matched in sorted_tensors}
    return {
        "models": [
            {
                "model": source.ref.text,
                "role": "base" if models.has_base and not number else "model",
                "kind": source.kind,
                "revision": source.revision,
                "tensors": len(source.tensors),
                "parameters": sum(tensor.numel for tensor in source.tensors.values()),
                "bytes": sum(tensor.nbytes for tensor in source.tensors.values()),
                "dtypes": sorted({tensor.dtype for tensor in source.tensors.values()}),
            }
            for number, source in enumerate(models.sources)
        ],
        "config": compared_configs(models),
        "pairs": [
            _pair(models, pair, tensors, rows, places, vocabularies) for pair in models.pairs
        ],
        "task_vectors": task_vectors_of(models, tensors, rows, places),
        "notes": [*chain(*(source.notes for source in models.sources), models.stages.notes())],
    }


def _pair(
    models: Models,
    pair: Pair,
    tensors: Sequence[MatchedTensor],
    rows: Rows,
    places: Mapping[str, str],
    vocabularies: Sequence[Vocabulary | None],
) -> dict[str, Any]:
    first_number, second_number = pair
    compared_tensors = [
        _tensor(matched, pair, rows[matched.name], places)
        for matched in tensors
        if _has(matched, pair)
    ]
    compared_names = {tensor["name"] for tensor in compared_tensors}
    pairs_by_name = {
        name: (tensors_of_models[first_number], tensors_of_models[second_number])
        for name, tensors_of_models in models.by_name.items()
    }
    incomparable_tensors = [
        {
            "name": name,
            "shapes": [list(first_tensor.shape), list(second_tensor.shape)],
            "dtypes": [first_tensor.dtype, second_tensor.dtype],
        }
        for name, (first_tensor, second_tensor) in pairs_by_name.items()
        if first_tensor is not None and second_tensor is not None and name not in compared_names
    ]
    document: dict[str, Any] = {
        "first": first_number,
        "second": second_number,
        "only_first": [
            name
            for name, (first_tensor, second_tensor) in pairs_by_name.items()
            if first_tensor is not None and second_tensor is None
        ],
        "only_second": [
            name
            for name, (first_tensor, second_tensor) in pairs_by_name.items()
            if first_tensor is None and second_tensor is not None
        ],
        "not_comparable": incomparable_tensors,
        "vocabulary": compared_vocabularies(pair, vocabularies),
        "total": _total(compared_tensors),
        "by_layer": _groups(compared_tensors, "layer", dict.fromkeys(places.values())),
        "by_kind": _groups(compared_tensors, "kind"),
        "tensors": [
            {field: value for field, value in tensor.items() if field != "sums"}
            for tensor in compared_tensors
        ],
    }
    return {**findings_of(models, document), **document}


def _has(matched: MatchedTensor, pair: Pair) -> bool:
    return all(matched.tensors[number] is not None for number in pair)


def _tensor(
    matched: MatchedTensor, pair: Pair, row: Mapping[str, Any], places: Mapping[str, str]
) -> dict[str, Any]:
    """Return the entry of one tensor of a pair, with its `sums`."""
    first_number, second_number = pair
    sums = row["pairs"][f"{first_number}-{second_number}"]
    first_tensor, second_tensor = matched.tensors[first_number], matched.tensors[second_number]
    assert first_tensor is not None and second_tensor is not None
    totals = PairTotals.of(row, pair)
    relation, details = relation_of(
        sums, row["not_finite"][first_number] + row["not_finite"][second_number]
    )
    rows = [tensor.shape[0] if tensor.shape else 1 for tensor in (first_tensor, second_tensor)]
    return {
        "name": matched.name,
        "layer": places[matched.name],
        "kind": kind_of(matched.name),
        "shape": list(first_tensor.shape),
        "dtypes": [first_tensor.dtype, second_tensor.dtype],
        "rows": rows if first_tensor.shape != second_tensor.shape else None,
        "relation": relation.name,
        "details": details or None,
        **totals.as_json(),
        "sums": totals,
    }


def _groups(
    tensors: Iterable[Mapping[str, Any]], by: str, order: Iterable[str] = ()
) -> list[dict[str, Any]]:
    groups: dict[str, list[Mapping[str, Any]]] = {name: [] for name in order}
    for tensor in tensors:
        groups.setdefault(tensor[by], []).append(tensor)
    return [
        {by: name, **_total(tensors_of_group)}
        for name, tensors_of_group in groups.items()
        if tensors_of_group
    ]


def _total(tensors: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    totals = sum((tensor["sums"] for tensor in tensors), PairTotals())
    count_by_relation: dict[str, int] = {}
    for tensor in tensors:
        count_by_relation[tensor["relation"]] = count_by_relation.get(tensor["relation"], 0) + 1
    return {"tensors": len(tensors), "relations": count_by_relation, **totals.as_json()}
