"""Flat matching: an output tensor is made from the tensors of the same name in all models.

The architecture is unknown, so tensors are not tied, computed or renamed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from resumerge.errors import Problem
from resumerge.layout import listed
from resumerge.layout.match import Rename
from resumerge.layout.model_views import ModelViews
from resumerge.methods import MergeMethod
from resumerge.planning.flat.participation import without_part
from resumerge.planning.plan import Unshared
from resumerge.planning.slices import base_of, merged_count
from resumerge.planning.tensor_specs import TensorSpec
from resumerge.recipe import Input, ModelRef, Module, Recipe
from resumerge.sizes import counted
from resumerge.sources.left_out import LeftOut
from resumerge.sources.types import Source
from resumerge.tensor_uses import UnusedReason
from resumerge.tensors import Tensor


def is_flat(recipe: Recipe, sources: Mapping[ModelRef, Source]) -> bool:
    """Return whether a recipe without a tokenizer merges whole models that have no config.json."""
    merges_whole_models = all(
        module.name is None and not module.stacked for module in recipe.modules
    )
    has_config = any(sources[ref].config for ref in recipe.merged_models)
    return merges_whole_models and not has_config and recipe.tokenizer is None


class FlatViews(ModelViews):
    """Models whose tensors are found only by their own names."""

    def renames(self, ref: ModelRef) -> list[Rename]:
        return []

    def name_in(self, ref: ModelRef, name: str) -> str:
        return name

    def mask_name(self, name: str) -> str:
        return name

    def names_of(self, ref: ModelRef, own_name: str) -> tuple[str, ...]:
        return (own_name,)

    def find(self, ref: ModelRef, own_name: str) -> Tensor | None:
        return self.sources[ref].tensors.get(own_name)


@dataclass
class FlatMatching:
    """A matching of the models' tensors by name alone.

    Args:
        module: the recipe's only module, which is the whole model.
        unshared: the treatment of tensors that only some models have.

    Attributes:
        left_out: tensors that the output does not use; complete after `specs` was called.
    """

    recipe: Recipe
    method: MergeMethod
    models: ModelViews
    module: Module
    unshared: Unshared
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    @property
    def _inputs(self) -> tuple[Input, ...]:
        return self.module.slices[0].inputs

    def specs(self) -> list[TensorSpec]:
        """Return every tensor of the output, and collect problems and notes."""
        self._lacking: dict[ModelRef, list[str]] = defaultdict(list)
        self._alone: dict[ModelRef, list[str]] = defaultdict(list)
        self._unfit: list[str] = []
        maybe_specs = [self._spec(name, having) for name, having in self._tensors().items()]
        specs = [spec for spec in maybe_specs if spec is not None]
        self._collect(specs)
        return specs

    def _tensors(self) -> dict[str, tuple[Input, ...]]:
        """Return the inputs that have each tensor, by its name; the reference's names first."""
        [slice_] = self.module.slices
        reference = self.models.reference
        refs = dict.fromkeys([reference, *(i.model for i in slice_.inputs)])
        names = dict.fromkeys(name for ref in refs for name in self.models.ordered(ref))
        sources = self.models.sources
        return {
            name: tuple(i for i in slice_.inputs if name in sources[i.model].tensors)
            for name in names
        }

    def _spec(self, name: str, having: tuple[Input, ...]) -> TensorSpec | None:
        """Return the output tensor with this name; None if the output does not have it.

        Args:
            name: the name that the tensor has in every model, and in the output.
            having: the inputs that have a tensor with this name.
        """
        [slice_] = self.module.slices
        module: Module | None = self.module
        if len(having) < len(slice_.inputs):
            for input_ in slice_.inputs:
                if input_ not in having:
                    self._lacking[input_.model].append(name)
            if self.unshared is not Unshared.UNION:
                self._leave_out(name, UnusedReason.UNSHARED, self.models.sources)
                return None
            if not having:  # only the reference has it, which is not an input
                having, module = (Input(self.models.reference),), None
            elif not self._can_merge(having):
                if len(having) > 1:
                    self._unfit.append(name)
                    return None
                self._alone[having[0].model].append(name)
                module = None  # the tensor is copied
        if all(i.model != self.models.reference for i in slice_.inputs):
            self._leave_out(name, UnusedReason.NOT_MERGED, (self.models.reference,))
        position = self.models.layers[having[0].model].position(name)
        names = (name,) * len(having)
        return TensorSpec(name, replace(slice_, inputs=having), names, position, module, None)

    def _leave_out(self, name: str, reason: UnusedReason, refs: Iterable[ModelRef]) -> None:
        """Record that the tensors with this name in these models are not used."""
        tensors = (self.models.sources[ref].tensors.get(name) for ref in refs)
        self.left_out += (LeftOut(tensor, reason) for tensor in tensors if tensor is not None)

    def _can_merge(self, inputs: tuple[Input, ...]) -> bool:
        """Return whether the method can merge the tensors of these inputs alone."""
        method, base = self.method, base_of(self.recipe, self.module.slices[0])
        if method.base == "required" and all(i.model != base for i in inputs):
            return False
        count = merged_count(method, inputs, base)
        return count >= method.fewest and (method.most is None or count <= method.most)

    def _collect(self, specs: list[TensorSpec]) -> None:
        """Collect the problems and notes on tensors that only some models have."""
        lacking_text = "; ".join(
            f"{ref} lacks {len(names)}: {listed(names)}" for ref, names in self._lacking.items()
        )
        tensors_by_model = {i.model: self.models.sources[i.model].tensors for i in self._inputs}
        participation_problems = list(
            without_part(self.recipe, tensors_by_model, specs, self.unshared)
        )
        if participation_problems:
            self.problems += participation_problems
        elif lacking_text and self.unshared is Unshared.REFUSED:
            self.problems.append(self._not_in_all(lacking_text))
        elif lacking_text:
            treatment = "are left out" if self.unshared is Unshared.INTERSECTION else "are kept"
            self.notes.append(f"tensors that not all models have {treatment}: {lacking_text}")
        for ref, names in self._alone.items():
            self.notes.append(
                f"{ref} alone has {counted(len(names), 'tensor')}: copied from it, as "
                f"{self.method.name} cannot merge one alone: {listed(names)}"
            )
        if self._unfit:
            self.problems.append(self._cannot_merge())
        self._check_components(specs)

    def _check_components(self, specs: list[TensorSpec]) -> None:
        """Check that the output has the same components as the reference's pipeline."""
        reference = self.models.reference
        components = [
            name for name, stem in self.models.sources[reference].components.items() if stem
        ]
        if not components:
            return
        self.notes.append(f"the components of {reference} are merged: {', '.join(components)}")
        merged_components = {spec.name.partition("/")[0] for spec in specs}
        empty_components = ", ".join(name for name in components if name not in merged_components)
        extra_components = ", ".join(sorted(merged_components.difference(components)))
        if (empty_components or extra_components) and not self.problems:
            self.problems.append(
                self.recipe.problem(
                    "The components of the pipelines differ",
                    "models",
                    expected=f"{', '.join(components)}, as in {reference}",
                    found="; ".join(
                        text
                        for text in (
                            f"without any tensor: {empty_components}" if empty_components else "",
                            f"in other models only: {extra_components}" if extra_components else "",
                        )
                        if text
                    ),
                    fix="Use --tensor-union where components are missing from other models; merge "
                    "pipelines of the same kind, or name the base model that has all components",
                )
            )

    def _not_in_all(self, lacking: str) -> Problem:
        return self.recipe.problem(
            "Not all models have the same tensors",
            "models",
            expected="tensors of the same names in all models, because none has a config.json",
            found=lacking,
            fix="Add --tensor-union to the command to keep them, each merged from the models that "
            "have it, or --tensor-intersection to leave them out",
        )

    def _cannot_merge(self) -> Problem:
        requirement = (
            "needs the base model" if self.method.base == "required" else "needs all models"
        )
        return self.recipe.problem(
            f"{self.method.name} cannot merge tensors that only some models have",
            "merge_method",
            expected=f"tensors that all models have: {self.method.name} {requirement}",
            found=listed(self._unfit),
            fix="Use --tensor-intersection to leave them out, or merge_method: linear",
        )


def not_flat(recipe: Recipe, unshared: Unshared) -> Problem:
    """Return the problem of an option for flat checkpoints in a recipe that is not flat."""
    return recipe.problem(
        f"--tensor-{unshared.value} is for checkpoints, whose tensors are matched by name",
        "models",
        expected="`models:` without config.json: weight files, or folders of training checkpoints",
        found="models with a config.json, or slices, modules or a tokenizer in the recipe",
        fix=f"Leave --tensor-{unshared.value} out, or name the models' weight files",
    )
