"""Finds the tensors in a model's files to which the leaves of expressions belong."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property

from resumerge.sources.types import Source
from resumerge.tensors import Stored, Tiled, stored_in


class StoredTensors:
    """The tensors in the files of one model, or of an adapter without its model.

    Args:
        model: the model without its adapter, or the adapter alone.
        name: the name in the account: the reference's text, and ``(adapter)`` after it for an
            adapter in the folder of a model.
    """

    def __init__(self, model: Source, name: str) -> None:
        self.name = name
        self.tensors = model.stored.tensors if model.stored else model.tensors

    def names(self, leaf: Stored, file: str) -> Sequence[str]:
        """Return the names of the tensors that contain a leaf's bytes.

        There are several names if tensors of a file share their elements.

        Args:
            leaf: a tensor of the model, or a part of such a tensor under another name.
            file: the name of the leaf's file in this model.
        """
        tensor_of_name = self.tensors.get(leaf.name)
        if (
            isinstance(tensor_of_name, Stored)
            and tensor_of_name.offset == leaf.offset
            and tensor_of_name.file == file
        ):
            return (leaf.name,)
        starts, names = self._places[file, leaf.numel == 0]
        return names[bisect_right(starts, leaf.offset) - 1]

    @cached_property
    def _places(self) -> dict[tuple[str, bool], tuple[list[int], list[list[str]]]]:
        """The offsets of tensors and their names, by file and whether they are empty."""
        names_at: dict[tuple[str, bool], dict[int, list[str]]]
        names_at = defaultdict(lambda: defaultdict(list))
        for name, tensor in self.tensors.items():
            if isinstance(tensor, Stored | Tiled):
                for leaf in stored_in(tensor):
                    names_at[leaf.file, leaf.numel == 0][leaf.offset].append(name)
        return {
            key: (sorted(places), [places[offset] for offset in sorted(places)])
            for key, places in names_at.items()
        }


class LeafIndex:
    """An index from leaves to the models and adapters that store them. Each model is in it once.

    Args:
        sources: the sources, in the order of their numbers.
    """

    def __init__(self, sources: Iterable[Source]) -> None:
        self._sources = list(sources)
        self._of_files: dict[tuple[int, str], tuple[StoredTensors, str]] = {}
        self.models: dict[str, StoredTensors] = {}
        parts = [(source, part) for source in self._sources for part in source.parts.values()]
        self._bases = {part.ref.text for source, part in parts if part is not source.adapter}
        for source, part in parts:
            name = self._name(source, part)
            self.models.setdefault(name, StoredTensors(part, name))

    def find(self, leaf: Stored) -> tuple[StoredTensors, Sequence[str]]:
        """Return the model that a leaf belongs to, and the leaf's names in the model."""
        key = leaf.source, leaf.file
        if key not in self._of_files:
            part, file = self._sources[leaf.source].part_of(leaf.file)
            name = self._name(self._sources[leaf.source], part)
            self._of_files[key] = self.models[name], file
        model, file = self._of_files[key]
        return model, model.names(leaf, file)

    def _name(self, source: Source, part: Source) -> str:
        """Return the name of a model or adapter in the account. One folder may contain both."""
        text = part.ref.text
        return f"{text} (adapter)" if part is source.adapter and text in self._bases else text
