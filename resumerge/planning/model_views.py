"""The sources of a plan, with what was inferred of each, seen with the reference's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from resumerge.layout import Layers, find_tensor, infer_layers, match_names
from resumerge.layout.match import Rename
from resumerge.recipe import ModelRef
from resumerge.sources.types import Source, TensorInfo


@dataclass(frozen=True)
class ModelViews:
    """What the planner knows of the models.

    Args:
        sources: every model that the recipe names, opened.
        reference: the one that gives names, layout, config and tokenizer.
    """

    sources: Mapping[ModelRef, Source]
    reference: ModelRef
    _layer_tensors: dict[tuple[ModelRef, str], dict[int, list[str]]] = field(default_factory=dict)

    @cached_property
    def numbers(self) -> dict[ModelRef, int]:
        """Each source's place in the plan."""
        return {ref: number for number, ref in enumerate(self.sources)}

    @cached_property
    def layers(self) -> dict[ModelRef, Layers]:
        """The stacks of each."""
        return {ref: infer_layers(s.tensors, s.config) for ref, s in self.sources.items()}

    @cached_property
    def _matches(self) -> dict[ModelRef, tuple[dict[str, str], list[Rename]]]:
        ours = self.sources[self.reference].tensors
        return {ref: match_names(ours, source.tensors) for ref, source in self.sources.items()}

    def renames(self, ref: ModelRef) -> list[Rename]:
        """How its names begin where they differ from the reference's."""
        return self._matches[ref][1]

    def name_in(self, ref: ModelRef, name: str) -> str:
        """What a model calls a tensor of the reference."""
        return self._matches[ref][0].get(name, name)

    def name_like_ours(self, ref: ModelRef, own_name: str) -> str:
        """What the reference would call a tensor of a model that it lacks itself."""
        for rename in self.renames(ref):
            if rename.theirs and own_name.startswith(rename.theirs):
                return rename.ours + own_name.removeprefix(rename.theirs)
        return own_name

    def stack_in(self, ref: ModelRef, stack: str) -> str | None:
        """What a model calls a stack of the reference; None where it has no such stack."""
        counts = self.layers[ref].counts
        if stack in counts:
            return stack
        for rename in self.renames(ref):
            if f"{stack}.".startswith(rename.ours):
                theirs = (rename.theirs + f"{stack}.".removeprefix(rename.ours)).rstrip(".")
                if theirs in counts:
                    return theirs
        return None

    def find(self, ref: ModelRef, own_name: str) -> TensorInfo | None:
        """A tensor by its model's own name for it, or what the model uses in its place."""
        return find_tensor(self.sources[ref], own_name)

    def ordered(self, ref: ModelRef) -> list[str]:
        """Tensor names in the order they stand on disk, so that reading is sequential."""
        tensors = self.sources[ref].tensors
        return sorted(tensors, key=lambda name: (tensors[name].file, tensors[name].offset, name))

    def layer_tensors(self, ref: ModelRef, stack: str) -> dict[int, list[str]]:
        """The names inside each layer of a model's stack, in file order.

        Args:
            stack: as the reference calls it.
        """
        if (ref, stack) not in self._layer_tensors:
            own, layers = self.stack_in(ref, stack), self.layers[ref]
            found: dict[int, list[str]] = {}
            for name in self.ordered(ref):
                located = layers.locate(name)
                if located is not None and located.stack == own:
                    found.setdefault(located.index, []).append(located.rest)
            self._layer_tensors[ref, stack] = found
        return self._layer_tensors[ref, stack]
