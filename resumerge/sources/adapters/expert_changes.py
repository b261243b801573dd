"""The changed tensors of experts, from all tensors of an adapter for the experts of a layer."""

from __future__ import annotations

import re
from collections import defaultdict

from resumerge.sources.adapter_programs.config import LoraConfig
from resumerge.sources.adapters.adapter_names import AdapterNames
from resumerge.sources.adapters.experts import (
    ExpertParameter,
    Experts,
    is_stored_transposed,
    restacked,
)
from resumerge.sources.adapters.module_changes import ModuleChanges
from resumerge.sources.adapters.refusals import Refusals
from resumerge.sources.adapters.uses import Uses
from resumerge.tensors import Tensor
from resumerge.tensors.dtypes import FLOATS


class ExpertChanges:
    """The changes of experts. They are collected module by module, and applied together.

    Args:
        experts: the model's experts, in which each module's matrix is looked up.
        names: the parsed names of the adapter's tensors.
        settings: the adapter's settings, from its config; the defaults if it has none.
        modules: the maker of changed weights.
        uses: the record of uses, which gets every tensor of the adapter that changes an expert.
        refusals: the collector of problems, to which misfits are added; none is raised.
    """

    def __init__(
        self,
        experts: Experts,
        names: AdapterNames,
        settings: LoraConfig,
        modules: ModuleChanges,
        uses: Uses,
        refusals: Refusals,
    ) -> None:
        self._experts, self._names, self._settings = experts, names, settings
        self._modules, self._uses, self._refusals = modules, uses, refusals
        self._in_packed: dict[tuple[str, int], dict[int, Tensor]] = defaultdict(dict)
        self._of_containers: dict[str, list[str]] = defaultdict(list)

    def collect(self, module: str, tensors: dict[str, Tensor]) -> bool:
        """Collect the change of a module, and return whether it belongs to experts of the model.

        Args:
            module: the module's name in the adapter.
            tensors: the model's tensors by name, as changed so far; they are only read.
        """
        container = _unwrapped(module)
        if place := self._experts.place(module):
            packed_tensor, roles = tensors[place.packed], self._names.modules[module]
            number, matrix = place.number(packed_tensor), place.matrix(packed_tensor)
            self._uses.use_module(f"{place.packed}[{number}]", module)
            if changed_matrix := self._modules.changed(f"{module}.weight", module, roles, matrix):
                self._in_packed[place.packed, place.height][number] = changed_matrix
        elif self._experts.parameters(container):
            self._of_containers[container].append(module)
        else:
            return False
        return True

    def apply(self, tensors: dict[str, Tensor]) -> None:
        """Change the model's tensors by all collected changes.

        Args:
            tensors: the model's tensors by name, which are changed in place.
        """
        for (name, height), changed_matrices in self._in_packed.items():
            tensors[name] = restacked(tensors[name], changed_matrices, height)
        for container, modules in self._of_containers.items():
            parameters = self._targets(container)
            # peft wraps the parameters in the order of their declaration; the first is innermost
            modules.sort(key=len, reverse=True)
            if len(modules) == len(parameters):
                self.change_parameters(modules, parameters, tensors)
            else:
                self._refusals.problem(
                    "The adapter has not one pair of matrices for each parameter of the experts",
                    ", ".join(modules),
                    expected=", ".join(p.name for p in parameters)
                    or "target_parameters in its config",
                )

    def change_parameters(
        self, modules: list[str], parameters: list[ExpertParameter], tensors: dict[str, Tensor]
    ) -> None:
        """Change parameters of experts, each by the matrices of the module at the same index.

        Args:
            modules: the modules' names in the adapter.
            parameters: the parameters, as many as there are modules.
            tensors: the model's tensors by name, which are changed in place.
        """
        pairs_of_matrices = []
        for module, parameter in zip(modules, parameters):
            roles = self._names.modules[module]
            if roles.keys() != {"A", "B"}:
                self._refusals.problem(
                    "The adapter lacks one of the two matrices of a module", module
                )
                return
            a, b = roles["A"], roles["B"]
            orientations = (
                parameter.fitting_orientations(a, b) if {a.dtype, b.dtype} <= FLOATS.keys() else []
            )
            if not orientations:
                count, (rows, columns) = len(parameter.experts), parameter.shape
                self._refusals.mismatch(
                    module,
                    f"A and B of {count} experts of shape {[rows, columns]}: {parameter.name}",
                    f"A {a.dtype} {list(a.shape)} and B {b.dtype} {list(b.shape)}",
                )
                return
            pairs_of_matrices.append((module, parameter, a, b, orientations))
        # A square parameter fits in both orientations. It is stored like the parameters that are
        # not square, or else as the shapes of the experts' parameters show.
        certain_orientations = {
            orientations[0] for *_, orientations in pairs_of_matrices if len(orientations) == 1
        }
        if len(certain_orientations) == 1:
            are_squares_transposed = certain_orientations.pop()
        else:
            expert_parameters = self._experts.parameters(_unwrapped(modules[0]))
            are_squares_transposed = bool(is_stored_transposed(expert_parameters))
        for module, parameter, a, b, orientations in pairs_of_matrices:
            is_transposed = orientations[0] if len(orientations) == 1 else are_squares_transposed
            rank = a.shape[0] // len(parameter.experts)
            if not self._modules.has_rank(parameter.name, rank):
                return
            scale = self._settings.scale(parameter.name, rank)
            models = self._modules.models
            for name, tensor in parameter.changed(a, b, scale, is_transposed, models):
                self._uses.use_module(name, module)
                tensors[name] = tensor

    def _targets(self, container: str) -> list[ExpertParameter]:
        """Return the parameters of a layer's experts that the adapter's config names, or all."""
        target_parameters = self._settings.parameters
        return [
            parameter
            for parameter in self._experts.parameters(container)
            if not target_parameters
            or any(f".{parameter.name}".endswith(f".{end}") for end in target_parameters)
        ]


def _unwrapped(module: str) -> str:
    """Return a module's name without the ``.base_layer`` that peft adds for each wrapper."""
    return re.sub(r"(\.base_layer)+$", "", module)
