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
        models: all compared models; `pair` contains indices of them.
        pair: the pair's part of the document, complete but for the findings.
    """
    first_name, second_name = (models.names[pair[key]] for key in ("first", "second"))
    grouped_tensors: dict[str, list[Compared]] = {}
    for tensor in pair["tensors"]:
        grouped_tensors.setdefault(tensor["relation"], []).append(tensor)
    total = pair["total"]["tensors"]
    sentences = [
        relation.sentence(grouped_tensors[name], total, first_name, second_name)
        for name, relation in RELATIONS.items()
        if name in grouped_tensors
    ]
    sentences += _on_rows(pair, first_name, second_name)
    sentences += _on_missing(pair, first_name, second_name)
    return {"relation": _word(pair, grouped_tensors), "findings": sentences}


def _word(pair: Mapping[str, Any], groups: Mapping[str, Sequence[Compared]]) -> str:
    """Return the word for the relation of two models; ``different`` if no relation holds."""
    unmatched_tensors = pair["only_first"] or pair["only_second"] or pair["not_comparable"]
    change_relations = groups.keys() - {"equal"}
    if not pair["tensors"]:
        return "nothing in common"
    has_other_rows = any(tensor["rows"] for tensor in pair["tensors"])
    if unmatched_tensors or len(change_relations) > 1:
        return "different"
    if has_other_rows:
        return "vocabulary extended" if not change_relations else "different"
    return RELATIONS[next(iter(change_relations), "equal")].word


def _on_rows(pair: Mapping[str, Any], first: str, second: str) -> list[str]:
    """Return the sentences on tables of tokens with different numbers of rows."""
    token_tables = [tensor for tensor in pair["tensors"] if tensor["rows"]]
    sentences = []
    for tensor in token_tables:
        (fewer_rows, more_rows), longer_model = tensor["rows"], second
        if fewer_rows > more_rows:
            (fewer_rows, more_rows), longer_model = (more_rows, fewer_rows), first
        sentences.append(
            f"{longer_model} has {counted(more_rows - fewer_rows, 'row')} more in "
            f"{tensor['name']}; the first {fewer_rows} are "
            + ("equal" if tensor["relation"] == "equal" else f"compared: {tensor['relation']}")
        )
    tokens = pair["vocabulary"]
    if (
        token_tables
        and tokens
        and (tokens["second_extends_first"] or tokens["first_extends_second"])
    ):
        longer_model, shorter_model = (
            (second, first) if tokens["second_extends_first"] else (first, second)
        )
        new_tokens = tokens["only_second" if longer_model is second else "only_first"]["count"]
        sentences.append(
            f"The tokenizer of {longer_model} extends that of {shorter_model} by "
            f"{counted(new_tokens, 'token')}: all others have the same ids"
        )
    return sentences


def _on_missing(pair: Mapping[str, Any], first: str, second: str) -> list[str]:
    sentences = []
    for name, key in ((first, "only_first"), (second, "only_second")):
        if names := pair[key]:
            sentences.append(f"{counted(len(names), 'tensor')} only in {name}, like {names[0]}")
    if misfits := pair["not_comparable"]:
        example = misfits[0]
        shapes = " and ".join("×".join(map(str, shape)) for shape in example["shapes"])
        sentences.append(
            f"{counted(len(misfits), 'tensor')} of another shape or kind, like {example['name']} "
            f"({shapes}, {' and '.join(example['dtypes'])})"
        )
    return sentences
