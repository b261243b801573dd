"""The use of every tensor of the models, computed from sources and expressions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from resumerge.accounts.stored_tensors import LeafIndex
from resumerge.sources.left_out import LeftOut
from resumerge.sources.types import Source
from resumerge.tensor_uses import HARMLESS, UnusedReason, Use
from resumerge.tensors import (
    Adapted,
    BothMatrices,
    Gathered,
    Merged,
    Sliced,
    Stacked,
    Stored,
    Tensor,
    Tiled,
    stored_in,
)
from resumerge.tensors.dtypes import nbytes


@dataclass(frozen=True)
class ModelAccount:
    """The used and unused tensors of one model, or of an adapter without its model.

    Args:
        model: the model, as the recipe names it.
        used: how many of the tensors have each use; without the uses that none has.
        unused: the names of the unused tensors, by reason; the key None is for unknown reasons.
    """

    model: str
    used: Mapping[Use, int]
    unused: Mapping[UnusedReason | None, Sequence[str]]

    @property
    def lost(self) -> Mapping[UnusedReason | None, Sequence[str]]:
        """The unused tensors whose content the output lacks."""
        return {why: names for why, names in self.unused.items() if why not in HARMLESS}


@dataclass(frozen=True)
class Accounts:
    """The used and unused tensors of every model and adapter, in the order of the sources."""

    models: tuple[ModelAccount, ...] = ()


def account(
    sources: Iterable[Source], outputs: Iterable[Tensor], left_out: Iterable[LeftOut]
) -> Accounts:
    """Return the use of every tensor of the models, or the reason why a tensor is not used.

    A model that a recipe names both alone and with an adapter has one account for both.

    Args:
        sources: the sources, in the order of their numbers (`Stored.source`).
        outputs: the expression of every tensor that is computed; in a run, of every unit of its
            plan.
        left_out: tensors that some part of the merge does not use. Other parts may use them.
    """
    leaf_index = LeafIndex(sources)
    uses = _Uses(leaf_index)
    for output in outputs:
        uses.add(output, Use.COPIED)
    uses_of_models = uses.complete()
    reasons: dict[tuple[str, str], UnusedReason] = {}
    for unused_tensor in left_out:
        for leaf in stored_in(unused_tensor.tensor):
            model, names = leaf_index.find(leaf)
            for name in names:
                if name not in uses_of_models[model.name]:
                    reasons.setdefault((model.name, name), unused_tensor.reason)
    models = []
    for model in leaf_index.models.values():
        unused_names: dict[UnusedReason | None, list[str]] = {}
        for name in model.tensors:
            if name not in uses_of_models[model.name]:
                unused_names.setdefault(reasons.get((model.name, name)), []).append(name)
        use_counts = sorted(Counter(uses_of_models[model.name].values()).items())
        models.append(ModelAccount(model.name, dict(use_counts), unused_names))
    return Accounts(tuple(models))


@dataclass
class _Uses:
    """The uses of tensors, by model and name, collected while expressions are traversed."""

    files: LeafIndex
    found: dict[str, dict[str, Use]] = field(default_factory=lambda: defaultdict(dict))
    parts: dict[tuple[str, str], set[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(set)
    )
    """The used parts of tensors, by (model, name): (first byte, number of bytes)."""
    seen: set[tuple[int, Use]] = field(default_factory=set)

    def add(self, tensor: Tensor, use: Use, part: tuple[int, int] | None = None) -> None:
        """Add the leaves of an expression.

        Args:
            tensor: the root of an expression, or a node below it.
            use: the use of its elements by the tensors above it in the tree.
            part: (first byte, number of bytes) of the leaf that is used; None if all of it is.
        """
        if isinstance(tensor, Stored):
            self._add_leaf(tensor, use, part)
            return
        if isinstance(tensor, Tiled):
            self._add_leaf(next(stored_in(tensor)), use, part or (0, tensor.nbytes))
            return
        if isinstance(tensor, Merged | Adapted | BothMatrices):
            if not _is_copy(tensor):
                use = max(use, Use.MERGED)
            if (id(tensor), use) in self.seen:  # a stage's result that several tensors use
                return
            self.seen.add((id(tensor), use))
        elif isinstance(tensor, Gathered):
            use = Use.VOCABULARY
        elif isinstance(tensor, Stacked):
            use = max(use, Use.EXPERTS)
        elif isinstance(tensor, Sliced) and isinstance(tensor.whole, Stored | Tiled):
            part = nbytes(tensor.dtype, tensor.first), tensor.nbytes
        for child in tensor.children():
            self.add(child, use, part)

    def _add_leaf(self, leaf: Stored, use: Use, part: tuple[int, int] | None) -> None:
        model, names = self.files.find(leaf)
        uses_of_names = self.found[model.name]
        for name in names:
            used_bytes = part[1] if part else leaf.nbytes
            key = model.name, name
            if used_bytes == model.tensors[name].nbytes:
                self.parts.pop(key, None)
            else:
                use = max(use, Use.EXPERTS)
                # Otherwise all of it is already used.
                if name not in uses_of_names or key in self.parts:
                    self.parts[key].add(part or (leaf.offset, used_bytes))
            if use > uses_of_names.get(name, -1):
                uses_of_names[name] = use

    def complete(self) -> dict[str, dict[str, Use]]:
        """Return the uses, after all expressions are added: some tensors are used only in part."""
        for (model, name), parts in self.parts.items():
            if sum(count for _, count in parts) < self.files.models[model].tensors[name].nbytes:
                self.found[model][name] = Use.CUT
        return self.found


def _is_copy(tensor: Tensor) -> bool:
    if not isinstance(tensor, Merged) or len(tensor.operands) > 1:
        return False
    return tensor.numel == 0 or tensor.merge_method.is_copy(tensor.context)
