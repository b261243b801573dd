"""What the second model of a pair is to the first: a relation for each tensor, and sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from resumerge.comparison.models import Models
from resumerge.sizes import counted

AGREE = 0.99
"""The least share of elements that agree with a relation for a tensor to have it."""

_SAME_FACTOR = 1e-5
"""A factor that is closer to 1 is no scaling."""

_SPREAD = 0.01
"""Factors of tensors that differ by less are told as one: of 16 numbers in bfloat16 none is known
better than that."""

_LITTLE = 0.3
"""The least share of the energy of a change that makes its rank worth telling, where rounding may
have made the rest."""

_HOLDS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "rounded": lambda found: found["share"] >= AGREE,
    "scaled": lambda found: found["share"] >= AGREE and abs(found["factor"] - 1) > _SAME_FACTOR,
    "quantised": lambda found: found["nearest"] >= 0.5,
    "low_rank": lambda found: (
        found["rank"] <= found["of"] // 4
        and found["energy"] >= (_LITTLE if found["rounding"] else AGREE)
    ),
}
"""Whether a tensor has a relation, from its numbers; the first that holds is the tensor's."""

Tensor = Mapping[str, Any]


def relation_of(sums: Mapping[str, Any], not_finite: int) -> tuple[str, Mapping[str, Any] | None]:
    """Return the relation of two tensors, and its numbers.

    Args:
        sums: the sums of the pair, in the tensor's row.
        not_finite: the number of elements of both that are NaN or infinite.
    """
    if not sums["differing"]:
        return ("not finite", {"elements": not_finite}) if not_finite else ("equal", None)
    for name, holds in _HOLDS.items():
        found = sums.get(name)
        if found is not None and holds(found):
            return name.replace("_", " "), found
    return "different", None


def findings_of(models: Models, pair: Mapping[str, Any]) -> dict[str, Any]:
    """Return the relation of a pair as a word, and what was found as sentences.

    Args:
        models: the models.
        pair: the pair's part of the document.
    """
    first, second = (models.names[pair[key]] for key in ("first", "second"))
    groups: dict[str, list[Tensor]] = {}
    for tensor in pair["tensors"]:
        groups.setdefault(tensor["relation"], []).append(tensor)
    sentences = [
        sentence
        for relation, say in _SENTENCES.items()
        if relation in groups
        for sentence in [say(groups[relation], pair["total"]["tensors"], first, second)]
    ]
    sentences += _on_rows(pair, first, second)
    sentences += _on_missing(pair, first, second)
    return {"relation": _word(pair, groups), "findings": sentences}


def _word(pair: Mapping[str, Any], groups: Mapping[str, Sequence[Tensor]]) -> str:
    """Return the relation of the models in a word; ``different`` where none holds for all."""
    apart = pair["only_first"] or pair["only_second"] or pair["not_comparable"]
    found = groups.keys() - {"equal"}
    if not pair["tensors"]:
        return "nothing in common"
    rows = any(tensor["rows"] for tensor in pair["tensors"])
    if apart or len(found) > 1:
        return "different"
    if rows:
        return "vocabulary extended" if not found else "different"
    return {
        "scaled": "scaled copy",
        "rounded": "rounding",
        "quantised": "quantisation round trip",
        "low rank": "low-rank change",
        "different": "different",
        "not finite": "different",
    }.get(next(iter(found), ""), "copy")


def _equal(tensors: Sequence[Tensor], total: int, first: str, second: str) -> str:
    types = any(tensor["dtypes"][0] != tensor["dtypes"][1] for tensor in tensors)
    stored = ", though some are stored in another type" if types else ""
    return f"{_of(tensors, total)} equal in every number{stored}"


def _rounded(tensors: Sequence[Tensor], total: int, first: str, second: str) -> str:
    details = [tensor["details"] for tensor in tensors]
    types = sorted({found["dtype"] for found in details})
    forward = sum(found["of_first"] for found in details)
    narrow, exact = (second, first) if 2 * forward >= len(details) else (first, second)
    share = min(found["share"] for found in details)
    return (
        f"{_of(tensors, total)} in {narrow} what {exact} has, rounded to {' or '.join(types)} "
        f"({share:.2%} or more of the elements that differ)"
    )


def _scaled(tensors: Sequence[Tensor], total: int, first: str, second: str) -> str:
    factors = [tensor["details"]["factor"] for tensor in tensors]
    low, high, total_elements = min(factors), max(factors), sum(t["elements"] for t in tensors)
    mean = sum(t["details"]["factor"] * t["elements"] for t in tensors) / total_elements
    one = high - low <= _SPREAD * abs(mean)
    text = f"{mean:.4g}" if one else f"factors from {low:.4g} to {high:.4g}"
    share = min(tensor["details"]["share"] for tensor in tensors)
    return (
        f"{_of(tensors, total)} in {second} what {first} has, scaled by {text} "
        f"({share:.2%} or more of the elements)"
    )


def _quantised(tensors: Sequence[Tensor], total: int, first: str, second: str) -> str:
    details = [tensor["details"] for tensor in tensors]
    kinds = sorted({_grid(found) for found in details})
    forward = sum(found["of_first"] for found in details)
    narrow, exact = (second, first) if 2 * forward >= len(details) else (first, second)
    nearest = min(found["nearest"] for found in details)
    return (
        f"{_of(tensors, total)} in {narrow} on a grid of {' or '.join(kinds)}, as quantising "
        f"{exact} and back gives ({nearest:.2%} or more of the elements are the nearest point; "
        f"seen in {details[0]['rows']} rows of each)"
    )


def _grid(found: Mapping[str, Any]) -> str:
    return f"{found['grid']} by " + (f"groups of {found['group']}" if found["group"] else "row")


def _low_rank(tensors: Sequence[Tensor], total: int, first: str, second: str) -> str:
    details = [tensor["details"] for tensor in tensors]
    ranks = sorted(found["rank"] for found in details)
    low, high, usual = ranks[0], ranks[-1], ranks[len(ranks) // 2]
    text = f"rank {low}" if low == high else f"rank {usual} in most, from {low} to {high}"
    energy = min(found["energy"] for found in details)
    rest = "; rounding may have made the rest" if energy < AGREE else ""
    return (
        f"{_of(tensors, total)} in {second} what {first} has, after a change of low rank: {text}, "
        f"with {energy:.1%} or more of the change's energy{rest}"
    )


def _different(tensors: Sequence[Tensor], total: int, first: str, second: str) -> str:
    known = [tensor for tensor in tensors if tensor["relative_l2"] is not None]
    worst = max(known, key=lambda tensor: tensor["relative_l2"], default=None)
    text = f"{_of(tensors, total)} different, by no relation that is looked for"
    if worst is None:
        return text
    return f"{text}; most of all {worst['name']}, with a relative L2 of {worst['relative_l2']:.3g}"


def _not_finite(tensors: Sequence[Tensor], total: int, first: str, second: str) -> str:
    count = sum(tensor["details"]["elements"] for tensor in tensors)
    return (
        f"{_of(tensors, total)} equal where both have finite numbers; "
        f"{counted(count, 'element')} NaN or infinite, like in {tensors[0]['name']}"
    )


_SENTENCES: Mapping[str, Callable[[Sequence[Tensor], int, str, str], str]] = {
    "equal": _equal,
    "rounded": _rounded,
    "scaled": _scaled,
    "quantised": _quantised,
    "low rank": _low_rank,
    "different": _different,
    "not finite": _not_finite,
}
"""The sentence on the tensors of each relation, in the order in which they are told."""


def _of(tensors: Sequence[Tensor], total: int) -> str:
    if len(tensors) == total:
        return f"All {total} tensors are" if total > 1 else "The only tensor is"
    return f"{len(tensors)} of {total} tensors " + ("is" if len(tensors) == 1 else "are")


def _on_rows(pair: Mapping[str, Any], first: str, second: str) -> list[str]:
    """Return the sentences on tables of tokens of which one is longer."""
    tables = [tensor for tensor in pair["tensors"] if tensor["rows"]]
    said = []
    for tensor in tables:
        (a, b), longer = tensor["rows"], second
        if a > b:
            (a, b), longer = (b, a), first
        said.append(
            f"{longer} has {counted(b - a, 'row')} more in {tensor['name']}; the first {a} are "
            + ("equal" if tensor["relation"] == "equal" else f"compared: {tensor['relation']}")
        )
    tokens = pair["vocabulary"]
    if tables and tokens and (tokens["second_extends_first"] or tokens["first_extends_second"]):
        longer, other = (second, first) if tokens["second_extends_first"] else (first, second)
        new = tokens["only_second" if longer is second else "only_first"]["count"]
        said.append(
            f"The tokenizer of {longer} extends that of {other} by {counted(new, 'token')}: all "
            "others have the same ids"
        )
    return said


def _on_missing(pair: Mapping[str, Any], first: str, second: str) -> list[str]:
    said = []
    for name, key in ((first, "only_first"), (second, "only_second")):
        if names := pair[key]:
            said.append(f"{counted(len(names), 'tensor')} only in {name}, like {names[0]}")
    if apart := pair["not_comparable"]:
        example = apart[0]
        shapes = " and ".join("×".join(map(str, shape)) for shape in example["shapes"])
        said.append(
            f"{counted(len(apart), 'tensor')} of another shape or kind, like {example['name']} "
            f"({shapes}, {' and '.join(example['dtypes'])})"
        )
    return said
