"""The choice of the output architecture, and the reasons why each other one does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from resumerge.errors import InputError
from resumerge.experts.upcycling.architectures import ARCHITECTURES
from resumerge.experts.upcycling.architectures.output_architecture import OutputArchitecture
from resumerge.experts.upcycling.dense_models import MATRICES, OUTSIDE
from resumerge.layout import is_computed, listed
from resumerge.layout.model_views import ModelViews
from resumerge.recipe import Recipe
from resumerge.recipe.types import OF_PROMPTS, Mixture
from resumerge.sizes import counted


@dataclass(frozen=True)
class ArchitectureChoice:
    """The comparison of a recipe and its models with the architectures."""

    recipe: Recipe
    mixture: Mixture
    models: ModelViews

    def architecture(self) -> OutputArchitecture:
        """Return the first architecture that fits, of those that the recipe may mean.

        Raises:
            InputError: none fits; the error gives the reasons against each.
        """
        asked = self.mixture.architecture
        reasons = {found.name: list(self._against(found)) for found in ARCHITECTURES}
        meant = [found for found in ARCHITECTURES if asked is None or found.is_called(asked)]
        for found in meant:
            if not reasons[found.name]:
                return found
        shown = {name: "; ".join(why) or "it fits" for name, why in reasons.items()}
        what = "No output architecture fits these models"
        if asked is not None and meant:
            what = f"{' and '.join(found.name for found in meant)} cannot be made of these models"
        elif asked is not None:
            what = f"There is no output architecture {asked!r}"
        raise InputError(
            [
                self.recipe.problem(
                    what,
                    "architecture" if asked is not None else "experts",
                    expected=f"models and settings that fit one of {', '.join(shown)}",
                    found=". ".join(f"{name}: {why}" for name, why in shown.items()),
                    fix="Change the models or settings that stand in the way"
                    + (", or delete 'architecture'" if asked is not None else ""),
                )
            ]
        )

    def _against(self, architecture: OutputArchitecture) -> Iterator[str]:
        mixture, sources = self.mixture, self.models.sources
        types = {ref: str(sources[ref].config.get("model_type")) for ref in sources}
        others = [
            f"{ref} is {kind}" for ref, kind in types.items() if kind not in architecture.takes
        ]
        if others:
            yield f"it is made of {' or '.join(architecture.takes)}, but {', '.join(others)}"
        elif len(set(types.values())) > 1:
            yield "all models must be of one type, but " + ", ".join(
                f"{ref} is {kind}" for ref, kind in types.items()
            )
        fewest, most = architecture.shared
        if not fewest <= len(mixture.shared_experts) <= most:
            wanted = counted(most, "shared expert") if most else "no shared experts"
            wanted = f"{fewest} or {wanted}" if fewest < most else wanted
            yield f"it has {wanted}, and the recipe has {len(mixture.shared_experts)}"
        elif mixture.shared_experts:
            yield from self._against_shared(architecture)
        if mixture.expert_layout not in architecture.layouts:
            yield f"its code does not read experts that are {mixture.expert_layout}"
        if not others:
            yield from self._without_place(architecture)

    def _against_shared(self, architecture: OutputArchitecture) -> Iterator[str]:
        prompted = [bool(expert.positive_prompts) for expert in self.mixture.shared_experts]
        if architecture.shared_gate and self.mixture.gate_mode in OF_PROMPTS and not all(prompted):
            yield "its shared expert has a gate: add positive_prompts to it"
        if not architecture.shared_gate and any(prompted):
            yield "its shared expert has no gate: delete its prompts"

    def _without_place(self, architecture: OutputArchitecture) -> Iterator[str]:
        """Yield a reason for each model with tensors that the architecture has no place for."""
        base = self.models.reference
        mlp = tuple(f"mlp.{matrix}.weight" for matrix in MATRICES)
        known = {*architecture.per_layer, *architecture.optional, *architecture.zeros, *mlp}
        for ref, source in self.models.sources.items():
            names = []
            for own_name, tensor in source.tensors.items():
                name = self.models.name_like_ours(ref, own_name)
                located = self.models.layers[ref].locate(own_name)
                rest = located.rest if located is not None else None
                is_mlp = rest is not None and rest.startswith("mlp.")
                if is_computed(tensor) or not (ref == base or is_mlp):
                    continue
                if rest not in known if rest is not None else name not in OUTSIDE:
                    names.append(own_name)
            if names:
                yield f"it has no place for {listed(sorted(names))} of {ref}"
