"""The models of a recipe with their inferred layouts; tensors are looked up by common names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from resumerge.layout.canonical_names import CanonicalNames
from resumerge.layout.expert_names import Aliases, other_names, published_name
from resumerge.layout.layers import Layers, infer_layers
from resumerge.layout.match import Rename, match_names
from resumerge.layout.vocabulary_tensors import VocabularyTensors, find_vocabulary
from resumerge.recipe import ModelRef
from resumerge.sources.tied_names import is_embedding, states_untied
from resumerge.sources.tied_weights import find_tensor, is_head
from resumerge.sources.types import Source
from resumerge.tensors import Sliced, Tensor, stored_in


@dataclass(frozen=True)
class ModelViews:
    """The models of a recipe. Their tensors are looked up by the names in the reference model.

    Args:
        sources: every model that the recipe names, opened.
        reference: the model that provides names, layout, config and tokenizer.
        aliases: other names of experts' tensors, for each model that has any.
    """

    sources: Mapping[ModelRef, Source]
    reference: ModelRef
    aliases: Mapping[ModelRef, Aliases] = field(default_factory=dict)
    _layer_tensors: dict[tuple[ModelRef, str], dict[int, list[str]]] = field(default_factory=dict)

    @cached_property
    def layers(self) -> dict[ModelRef, Layers]:
        """The stacks of each model."""
        return {ref: infer_layers(s.tensors, s.config) for ref, s in self.sources.items()}

    @cached_property
    def vocabularies(self) -> dict[ModelRef, VocabularyTensors]:
        """The tensors of each model with a row for every token, inferred from its config.json."""
        return {ref: find_vocabulary(s, self.layers[ref]) for ref, s in self.sources.items()}

    @cached_property
    def _matches(self) -> dict[ModelRef, tuple[dict[str, str], list[Rename]]]:
        ours = self.sources[self.reference].tensors
        return {ref: match_names(ours, source.tensors) for ref, source in self.sources.items()}

    @cached_property
    def _canonical(self) -> dict[ModelRef, CanonicalNames]:
        sources = self.sources.items()
        return {ref: CanonicalNames(source.tensors, source.config) for ref, source in sources}

    def renames(self, ref: ModelRef) -> list[Rename]:
        """Return the prefixes of a model's names that differ from the reference's."""
        return self._matches[ref][1]

    def name_in(self, ref: ModelRef, name: str) -> str:
        """Return a model's name for a tensor of the reference."""
        return self._matches[ref][0].get(name, name)

    def names_of(self, ref: ModelRef, own_name: str) -> tuple[str, ...]:
        """Return a tensor's name in its model, then its other names, as filters may use them."""
        further_names = other_names(own_name, self.sources[ref], self.aliases.get(ref, {}))
        return tuple(dict.fromkeys((own_name, *further_names, self._canonical[ref].of(own_name))))

    def mask_name(self, name: str) -> str:
        """Return the key of an output tensor's random masks: a name that all layouts share."""
        return published_name(name, self.sources[self.reference])

    def name_like_ours(self, ref: ModelRef, own_name: str) -> str:
        """Return the reference's name for a tensor that only another model has."""
        for rename in self.renames(ref):
            if rename.theirs and own_name.startswith(rename.theirs):
                return rename.ours + own_name.removeprefix(rename.theirs)
        return own_name

    def stack_in(self, ref: ModelRef, stack: str) -> str | None:
        """Return a model's name for a stack of the reference; None if the model lacks the stack."""
        counts = self.layers[ref].counts
        if stack in counts:
            return stack
        for rename in self.renames(ref):
            if f"{stack}.".startswith(rename.ours):
                their_stack = (rename.theirs + f"{stack}.".removeprefix(rename.ours)).rstrip(".")
                if their_stack in counts:
                    return their_stack
        return None

    def find(self, ref: ModelRef, own_name: str) -> Tensor | None:
        """Return a tensor by its model's own name, or the tensor that is used in its place.

        An embedding may be used in place of a tied head. None if the model has neither.
        """
        source = self.sources[ref]
        tensor = find_tensor(source, own_name)
        if (
            tensor is not None
            or own_name not in self._unnamed_tables
            or states_untied(source.config)
        ):
            return tensor
        tables = [source.tensors[name] for name in self.vocabularies[ref].tables(source)]
        return tables[0] if len(tables) == 1 else None

    @cached_property
    def _unnamed_tables(self) -> set[str]:
        """The names of all models' embeddings and heads that were not recognised by name."""
        tables_of_models = (
            self.vocabularies[ref].tables(source) for ref, source in self.sources.items()
        )
        return {
            name
            for names in tables_of_models
            for name in names
            if not is_head(name) and not is_embedding(name)
        }

    def ordered(self, ref: ModelRef) -> list[str]:
        """Return the names of a model's tensors in the order on disk, to read sequentially.

        Tensors of a stage are in the order in which they would be written.
        """
        tensors = self.sources[ref].tensors
        if self.sources[ref].kind == "stage":
            return list(tensors)
        return sorted(tensors, key=lambda name: (*_place(tensors[name]), name))

    def layer_tensors(self, ref: ModelRef, stack: str) -> dict[int, list[str]]:
        """Return the names inside each layer of a model's stack, in file order.

        Args:
            ref: the model whose own names are returned.
            stack: the stack's name in the reference.
        """
        if (ref, stack) not in self._layer_tensors:
            own_stack, layers = self.stack_in(ref, stack), self.layers[ref]
            names_of_layers: dict[int, list[str]] = {}
            for name in self.ordered(ref):
                layer_name = layers.locate(name)
                if layer_name is not None and layer_name.stack == own_stack:
                    names_of_layers.setdefault(layer_name.index, []).append(layer_name.rest)
            self._layer_tensors[ref, stack] = names_of_layers
        return self._layer_tensors[ref, stack]


def _place(tensor: Tensor) -> tuple[str, int, int]:
    """Return the place where a tensor begins: (file, offset, first element after the offset)."""
    first_leaf = next(stored_in(tensor))
    return first_leaf.file, first_leaf.offset, tensor.first if isinstance(tensor, Sliced) else 0
