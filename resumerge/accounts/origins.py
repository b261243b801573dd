"""The origins of each tensor of the output: the reverse of the account in `tensors.py`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from resumerge.accounts.stored_tensors import LeafIndex
from resumerge.sources.types import Source
from resumerge.tensors import Computed, Stored, Tensor


@dataclass(frozen=True)
class Origin:
    """The tensors that a tensor of the output is computed from.

    Args:
        name: the tensor's name in the output.
        tensors: (model, name) of each tensor of a model or an adapter, in the order of operands.
        generated: whether it has numbers that are in no file: constants, random numbers, or gates.
    """

    name: str
    tensors: tuple[tuple[str, str], ...]
    generated: bool


def origins(sources: Iterable[Source], outputs: Mapping[str, Tensor]) -> Iterator[Origin]:
    """Yield the origins of each tensor of the output: the models' tensors that it is computed from.

    Args:
        sources: the sources, in the order of their numbers (`Stored.source`).
        outputs: the expression of each tensor of the output, by name.
    """
    leaf_index = LeafIndex(sources)
    for name, tensor in outputs.items():
        stored_tensors: dict[tuple[str, str], None] = {}
        is_generated = False
        for node in tensor.nodes():
            if isinstance(node, Stored):
                model, names_in_model = leaf_index.find(node)
                stored_tensors |= dict.fromkeys(
                    (model.name, stored_name) for stored_name in names_in_model[:1]
                )
            elif not node.children() or isinstance(node, Computed):
                is_generated = True
        yield Origin(name, tuple(stored_tensors), is_generated)
