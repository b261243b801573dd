"""The choice of the output architecture, and the reasons why the other architectures do not fit."""

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
    """The comparison of a recipe and its models with the output architectures."""

    recipe: Recipe
    mixture: Mixture
    models: ModelViews

    def architecture(self) -> OutputArchitecture:
        """Return the first output architecture that fits the models, and the recipe's choice.

        Raises:
            InputError: no architecture fits; the error contains the reasons against each.
        """
        asked_name = self.mixture.architecture
        reasons = {
            architecture.name: list(self._against(architecture)) for architecture in ARCHITECTURES
        }
        candidates = [
            architecture
            for architecture in ARCHITECTURES
            if asked_name is None or architecture.is_called(asked_name)
        ]
        for architecture in candidates:
            if not reasons[architecture.name]:
                return architecture
        verdicts = {name: "; ".join(verdict) or "it fits" for name, verdict in reasons.items()}
        problem = "No output architecture fits these models"
        if asked_name is not None and candidates:
            names = " and ".join(architecture.name for architecture in candidates)
            problem = f"{names} cannot be made of these models"
        elif asked_name is not None:
            problem = f"There is no output architecture {asked_name!r}"
        raise InputError(
            [
                self.recipe.problem(
                    problem,
                    "architecture" if asked_name is not None else "experts",
                    expected=f"models and settings that fit one of {', '.join(verdicts)}",
                    found=". ".join(f"{name}: {verdict}" for name, verdict in verdicts.items()),
                    fix="Change the models or settings that stand in the way"
                    + (", or delete 'architecture'" if asked_name is not None else ""),
                )
            ]
        )

    def _against(self, architecture: OutputArchitecture) -> Iterator[str]:
        mixture, sources = self.mixture, self.models.sources
        model_types = {ref: str(sources[ref].config.get("model_type")) for ref in sources}
        unfit_models = [
            f"{ref} is {kind}"
            for ref, kind in model_types.items()
            if kind not in architecture.takes
        ]
        if unfit_models:
            yield f"it is made of {' or '.join(architecture.takes)}, but {', '.join(unfit_models)}"
        elif len(set(model_types.values())) > 1:
            yield "all models must be of one type, but " + ", ".join(
                f"{ref} is {kind}" for ref, kind in model_types.items()
            )
        fewest_shared, most_shared = architecture.shared
        if not fewest_shared <= len(mixture.shared_experts) <= most_shared:
            shared_experts = (
                counted(most_shared, "shared expert") if most_shared else "no shared experts"
            )
            shared_experts = (
                f"{fewest_shared} or {shared_experts}"
                if fewest_shared < most_shared
                else shared_experts
            )
            yield f"it has {shared_experts}, and the recipe has {len(mixture.shared_experts)}"
        elif mixture.shared_experts:
            yield from self._against_shared(architecture)
        if mixture.expert_layout not in architecture.layouts:
            yield f"its code does not read experts that are {mixture.expert_layout}"
        if not unfit_models:
            yield from self._without_place(architecture)

    def _against_shared(self, architecture: OutputArchitecture) -> Iterator[str]:
        have_prompts = [bool(expert.positive_prompts) for expert in self.mixture.shared_experts]
        if (
            architecture.shared_gate
            and self.mixture.gate_mode in OF_PROMPTS
            and not all(have_prompts)
        ):
            yield "its shared expert has a gate: add positive_prompts to it"
        if not architecture.shared_gate and any(have_prompts):
            yield "its shared expert has no gate: delete its prompts"

    def _without_place(self, architecture: OutputArchitecture) -> Iterator[str]:
        """Yield a reason for each model that has tensors without a place in the architecture."""
        base = self.models.reference
        mlp_names = tuple(f"mlp.{matrix}.weight" for matrix in MATRICES)
        known_rests = {
            *architecture.per_layer,
            *architecture.optional,
            *architecture.zeros,
            *mlp_names,
        }
        for ref, source in self.models.sources.items():
            names = []
            for name, tensor in source.tensors.items():
                located = self.models.layers[ref].locate(name)
                rest = located.rest if located is not None else None
                is_mlp = rest is not None and rest.startswith("mlp.")
                if is_computed(tensor) or not (ref == base or is_mlp):
                    continue
                if rest not in known_rests if rest is not None else name not in OUTSIDE:
                    names.append(name)
            if names:
                yield f"it has no place for {listed(sorted(names))} of {ref}"
