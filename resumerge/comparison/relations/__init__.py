"""The relations of two tensors: a class for each, with its numbers, its word and its sentence.

`relation.py` has the base classes. Single elements are the evidence for the relations of
`scaled.py` and `rounded.py`; `single_elements.py` counts them. Rows of a matrix propose the
relations of `quantised.py` and `low_rank.py`. `unmeasured.py` has the relations that follow from
counts alone. `tensor.py` above reads the tensors, and passes their elements to the evidence.
"""

from collections.abc import Mapping
from typing import Any

from resumerge.comparison.relations.low_rank import LowRankChange
from resumerge.comparison.relations.quantised import QuantisedCopy
from resumerge.comparison.relations.relation import (
    Details,
    MeasuredRelation,
    Relation,
)
from resumerge.comparison.relations.rounded import RoundedCopy
from resumerge.comparison.relations.scaled import ScaledCopy
from resumerge.comparison.relations.unmeasured import Different, Equal, NotFinite

__all__ = ["MEASURED", "RELATIONS", "relation_of"]

RELATIONS: Mapping[str, Relation] = {
    relation.name: relation
    for relation in (
        Equal(),
        RoundedCopy(),
        ScaledCopy(),
        QuantisedCopy(),
        LowRankChange(),
        Different(),
        NotFinite(),
    )
}
"""All relations by name. A tensor has the first relation that holds; sentences have the same
order."""

MEASURED: Mapping[str, MeasuredRelation] = {
    relation.key: relation
    for relation in RELATIONS.values()
    if isinstance(relation, MeasuredRelation)
}
"""The relations with evidence of their own, by the key of the evidence in a row of the journal."""


def relation_of(sums: Mapping[str, Any], not_finite: int) -> tuple[Relation, Details]:
    """Return the relation of two tensors, and its numbers.

    Args:
        sums: the pair's part of the tensor's row: its sums, and the numbers of the evidence.
        not_finite: the number of elements of both that are NaN or infinite.
    """
    for relation in RELATIONS.values():
        details = relation.details(sums, not_finite)
        if details is not None:
            return relation, details
    raise AssertionError("tensors differ, or they do not")
