"""The relation of the second model of a pair to the first, as a word and as sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from resumerge.comparison.models import Models
from resumerge.comparison.relations import RELATIONS
from resumerge.comparison.relations.relation import Compared
from resumerge.sizes import counted


def findings_of(models: Models, pair: Mapping[str, Any]) -> dict[str, Any]:
    """Return the relation of a pair as a word, and the findings as sentences.

    Args:
        models: the models.
        pair: the pair's part of the document.
    """
    first, second = (models.names[pair[key]] for key in ("first", "second"))
    groups: dict[str, list[Compared]] = {}
    for tensor in pair["tensors"]:
        groups.setdefault(tensor["relation"], []).append(tensor)
    total = pair["total"]["tensors"]
    sentences = [
        relation.sentence(groups[name], total, first, second)
        for name, relation in RELATIONS.items()
        if name in groups
    ]
    sentences += _on_rows(pair, first, second)
    sentences += _on_missing(pair, first, second)
    return {"relation": _word(pair, groups), "findings": sentences}


def _word(pair: Mapping[str, Any], groups: Mapping[str, Sequence[Compared]]) -> str:
    """Return the word for the relation of two models; ``different`` if no relation holds."""
    unmatched = pair["only_first"] or pair["only_second"] or pair["not_comparable"]
    relations = groups.keys() - {"equal"}
    if not pair["tensors"]:
        return "nothing in common"
    rows = any(tensor["rows"] for tensor in pair["tensors"])
    if unmatched or len(relations) > 1:
        return "different"
    if rows:
        return "vocabulary extended" if not relations else "different"
    return RELATIONS[next(iter(relations), "equal")].word


def _on_rows(pair: Mapping[str, Any], first: str, second: str) -> list[str]:
    """Return the sentences on tables of tokens with different numbers of rows."""
    tables = [tensor for tensor in pair["tensors"] if tensor["rows"]]
    sentences = []
    for tensor in tables:
        (a, b), longer = tensor["rows"], second
        if a > b:
            (a, b), longer = (b, a), first
        sentences.append(
            f"{longer} has {counted(b - a, 'row')} more in {tensor['name']}; the first {a} are "
            + ("equal" if tensor["relation"] == "equal" else f"compared: {tensor['relation']}")
        )
    tokens = pair["vocabulary"]
    if tables and tokens and (tokens["second_extends_first"] or tokens["first_extends_second"]):
        longer, shorter = (second, first) if tokens["second_extends_first"] else (first, second)
        new = tokens["only_second" if longer is second else "only_first"]["count"]
        sentences.append(
            f"The tokenizer of {longer} extends that of {shorter} by {counted(new, 'token')}: all "
            "others have the same ids"
        )
    return sentences


def _on_missing(pair: Mapping[str, Any], first: str, second: str) -> list[str]:
    sentences = []
    for name, key in ((first, "only_first"), (second, "only_second")):
        if names := pair[key]:
            sentences.append(f"{counted(len(names), 'tensor')} only in {name}, like {names[0]}")
    if unlike := pair["not_comparable"]:
        example = unlike[0]
        shapes = " and ".join("×".join(map(str, shape)) for shape in example["shapes"])
        sentences.append(
            f"{counted(len(unlike), 'tensor')} of another shape or kind, like {example['name']} "
            f"({shapes}, {' and '.join(example['dtypes'])})"
        )
    return sentences
