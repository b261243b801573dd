"""The modules that several adapters change, under one name each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from resumerge.combination.adapter import AdapterChanges, Matrices, MatricesKind
from resumerge.errors import Problem
from resumerge.recipe import Recipe
from resumerge.sizes import some
from resumerge.sources.adapters.model_names import ModelNames

_EXPERT = re.compile(r"\.\d+\.[^.]+$")


@dataclass(frozen=True)
class ChangedModule:
    """A module that adapters change.

    Args:
        name: its name in the first of the adapters that change it.
        matrices: the matrices of each of these adapters, by the adapter's place in the recipe.
    """

    name: str
    matrices: Mapping[int, Matrices]

    @property
    def first(self) -> Matrices:
        """The matrices of the first adapter that changes it."""
        return next(iter(self.matrices.values()))

    @property
    def ranks(self) -> int:
        """The sum of the ranks of all changes."""
        return sum(each.rank for each in self.matrices.values())


@dataclass
class ChangedModules:
    """The modules that adapters change, matched by name.

    A name from another version of transformers matches a module if it fits only one of the modules.

    Attributes:
        modules: the modules, in the order of the adapters and of their files.
        spelled: for each adapter, the name in `modules` of each module that the adapter names
            differently.
        problems: modules whose shapes differ between adapters.
    """

    recipe: Recipe
    adapters: Sequence[AdapterChanges]
    modules: list[ChangedModule] = field(default_factory=list)
    spelled: list[dict[str, str]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def __post_init__(self) -> None:
        modules: dict[str, dict[int, Matrices]] = {}
        for place, adapter in enumerate(self.adapters):
            names, other_spellings = ModelNames(f"{name}.weight" for name in modules), {}
            for name, matrices in adapter.matrices.items():
                name_here = (names.find(f"{name}.weight") or f"{name}.weight").removesuffix(
                    ".weight"
                )
                if name_here != name and not _same_layout(
                    next(iter(modules[name_here].values())), matrices
                ):
                    name_here = name
                matrices_by_adapter = modules.setdefault(name_here, {})
                if name_here != name:
                    other_spellings[name] = name_here
                if matrices_by_adapter and not _same_layout(
                    next(iter(matrices_by_adapter.values())), matrices
                ):
                    self.problems.append(
                        self._unlike(name_here, matrices_by_adapter, place, matrices)
                    )
                matrices_by_adapter[place] = matrices
            self.spelled.append(other_spellings)
        self.modules = [
            ChangedModule(name, matrices_by_adapter)
            for name, matrices_by_adapter in modules.items()
        ]
        self._check_experts()

    @property
    def notes(self) -> list[str]:
        """A note on each adapter that names modules differently from the adapters before it."""
        return [
            f"{adapter.source.ref}: modules are matched by meaning: "
            f"{some([f'{own_name} is {name}' for own_name, name in names_here.items()], most=2)}"
            for adapter, names_here in zip(self.adapters, self.spelled)
            if names_here
        ]

    def _check_experts(self) -> None:
        """Check that no adapter changes single experts while another one changes packed experts."""
        parameter_names = [
            module.name for module in self.modules if module.first.kind is MatricesKind.PARAMETER
        ]
        containers = {name.rpartition(".")[0] for name in parameter_names}
        single_experts = [
            module for module in self.modules if _EXPERT.sub("", module.name) in containers
        ]
        for module in single_experts[:1]:
            place = next(iter(module.matrices))
            self.problems.append(
                self.recipe.problem(
                    "Adapters change experts in two layouts",
                    f"{self.adapters[place].input_.path}.model",
                    expected="all of them for packed experts (target_parameters), or none",
                    found=f"{module.name} for one expert, and target_parameters in another adapter",
                    fix="train, or save, both with the same version of transformers; or merge them "
                    "with their model: write base+adapter",
                )
            )

    def _unlike(
        self, name: str, several: Mapping[int, Matrices], place: int, matrices: Matrices
    ) -> Problem:
        first_place, first_matrices = next(iter(several.items()))
        adapter = self.adapters[place]
        return self.recipe.problem(
            f"{name} has another shape in {adapter.source.ref}",
            f"{adapter.input_.path}.model",
            expected=f"{_shape(first_matrices)}, as in {self.adapters[first_place].source.ref}",
            found=_shape(matrices),
            fix="combine adapters of one model",
        )


def _same_layout(one: Matrices, other: Matrices) -> bool:
    return (one.kind, one.within, one.experts) == (other.kind, other.within, other.experts)


def _shape(matrices: Matrices) -> str:
    (outputs, *_), inputs = matrices.within[1], list(matrices.within[0])
    experts = f" of {matrices.experts} experts" if matrices.experts > 1 else ""
    return f"{matrices.kind.value} of {inputs} to [{outputs}]{experts}"
