"""The contents of an adapter for each module: matrices, a whole copy, or nothing with a reason."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from resumerge.errors import Problem
from resumerge.extraction.differences import OpenTensors, differ
from resumerge.extraction.matching import ExpertsPair, Matching, Pair
from resumerge.extraction.modules import ModuleKind, ModuleKinds, TunedModule
from resumerge.layout.model_views import ModelViews
from resumerge.recipe import ModelRef, Recipe
from resumerge.recipe.types import Extraction
from resumerge.sizes import some
from resumerge.sources.left_out import LeftOut
from resumerge.tensor_uses import UnusedReason
from resumerge.tensors import Tensor

SHOWN = 5
"""The most names in a message."""


@dataclass
class ModuleChoice:
    """The choice for each module of a model: matrices, a whole copy, or nothing.

    Args:
        recipe: the recipe that extracts the adapter, whose lines the problems name.
        extraction: the recipe's part on the adapter.
        models: both models; the reference is the model to extract from.
        base: the reference of the base model, a key of ``models.sources``.
        matching: the paired tensors of both models, without problems.
        open_tensors: the means to read the tensors.

    Attributes:
        modules: all modules of the model, in the order of its files.
        decomposed: the modules that get matrices, by name.
        experts: the parameters of experts that get matrices, by name.
        saved: the modules that are saved whole, by name.
        whole_experts: the parameters of experts inside saved modules, by name.
        biases: the biases that are saved: all biases outside saved modules, or none.
        not_extracted: the names of modules and parameters that differ and are left out.
        left_out: the tensors that are not used, with the reasons.
        problems: the reasons why no adapter can be made.
    """

    recipe: Recipe
    extraction: Extraction
    models: ModelViews
    base: ModelRef
    matching: Matching
    open_tensors: OpenTensors
    modules: list[TunedModule] = field(default_factory=list)
    decomposed: dict[str, TunedModule] = field(default_factory=dict)
    experts: dict[str, ExpertsPair] = field(default_factory=dict)
    whole_experts: dict[str, ExpertsPair] = field(default_factory=dict)
    saved: dict[str, TunedModule] = field(default_factory=dict)
    biases: list[Pair] = field(default_factory=list)
    not_extracted: list[str] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    _around_bare: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.left_out += self.matching.left_out
        model = self.models.sources[self.models.reference]
        expert_modules = frozenset(pair.module for pair in self.matching.experts)
        kinds = ModuleKinds(model.tensors, expert_modules)
        pairs_of_modules: dict[str, dict[str, Pair]] = {}
        for pair in self.matching.pairs:
            pairs_of_modules.setdefault(pair.module, {})[pair.role] = pair
        self.modules = [kinds.module(name, pairs) for name, pairs in pairs_of_modules.items()]
        self._tied = {id(pair.own) for pair in self.matching.pairs if pair.tied}
        with self.open_tensors(self.models.sources) as evaluation:
            changed_names = {
                pair.name
                for pair in self.matching.pairs
                if differ(evaluation, [(pair.own, pair.base)])
            }
            for experts in self.matching.experts:
                if differ(evaluation, experts.matrices):
                    self._choose_experts(experts)
                else:
                    self._leave_out(experts.matrices, UnusedReason.UNCHANGED)
        for module in self.modules:
            self._choose(module, changed_names)
        self._save_around_bare()
        self._save_same_endings()
        self._choose_biases(changed_names)
        self._unused(changed_names)
        if not (self.decomposed or self.experts):
            has_whole = self.saved or self.biases
            self.problems.append(self._only_whole() if has_whole else self._nothing())

    def _choose(self, module: TunedModule, changed: set[str]) -> None:
        """Choose the adapter's contents for a module: matrices, all its tensors, or nothing."""
        changed_roles = {role for role, pair in module.pairs.items() if pair.name in changed}
        if not changed_roles - {"bias"} and not self._is_named(module):
            return
        if bare_roles := changed_roles - {"weight", "bias"}:
            self._choose_bare(module, bare_roles)
        elif self._is_named(module):
            self.saved[module.name] = module
        elif module.is_vocabulary and not self._is_decomposed(module):
            if self._is_excluded(module.name):
                self.not_extracted.append(module.name)
            else:
                self.saved[module.name] = module
        elif not self.is_included(module.name):
            self.not_extracted.append(module.name)
        elif module.kind is not ModuleKind.OTHER:
            self.decomposed[module.name] = module
        elif self.extraction.skip_undecomposable:
            self.not_extracted.append(module.name)
        else:
            self.saved[module.name] = module

    def _choose_bare(self, module: TunedModule, roles: set[str]) -> None:
        """Save a module whole because a parameter other than weight and bias differs."""
        names = [module.pairs[role].name for role in sorted(roles)]
        is_left_out = not self.is_included(module.name) or self.extraction.skip_undecomposable
        if is_left_out:
            self.not_extracted += names
        elif module.name:
            self.saved[module.name] = module
            self._around_bare.append(module.name)
        else:
            self.problems.append(
                self.recipe.problem(
                    "The model has parameters that an adapter has no place for",
                    "extract_lora.model",
                    expected="parameters of modules in the model",
                    found=some(names, most=SHOWN),
                    fix="Leave them out with --skip-undecomposable",
                )
            )

    def _save_around_bare(self) -> None:
        """Save the modules and experts inside modules that are saved for a bare parameter."""
        inner_prefixes = tuple(f"{name}." for name in self._around_bare)
        for module in self.modules:
            if module.name.startswith(inner_prefixes):
                self.saved[module.name] = module
                self.decomposed.pop(module.name, None)
        for name in [name for name in self.experts if name.startswith(inner_prefixes)]:
            self.whole_experts[name] = self.experts.pop(name)
            base_matrices = (base for _, base in self.whole_experts[name].matrices)
            self.left_out += (LeftOut(base, UnusedReason.FROM_ANOTHER) for base in base_matrices)

    def _save_same_endings(self) -> None:
        """Save modules whose names end with a saved module's name: peft expects these as well."""
        top_level = [saved_name for saved_name in self.saved_modules if "." not in saved_name]
        for module in self.modules:
            if (
                top_level
                and module.name not in self.saved
                and module.name.endswith(tuple(top_level))
            ):
                self.saved[module.name] = module
                self.decomposed.pop(module.name, None)

    @property
    def saved_modules(self) -> tuple[str, ...]:
        """The modules that are saved whole, without those inside others."""
        inside = tuple(f"{name}." for name in self._around_bare)
        return tuple(name for name in self.saved if not name.startswith(inside))

    def _choose_experts(self, experts: ExpertsPair) -> None:
        if self.is_included(experts.name):
            self.experts[experts.name] = experts
        else:
            self.not_extracted.append(experts.name)
            self._leave_out(experts.matrices, UnusedReason.NOT_EXTRACTED)

    def _choose_biases(self, changed: set[str]) -> None:
        """Save all biases outside saved modules if one of them differs.

        peft saves either all biases of a model or none; saved modules contain their own biases.
        """
        biases = [
            pair
            for module in self.modules
            for role, pair in module.pairs.items()
            if role == "bias" and module.name not in self.saved
        ]
        included_biases = [
            bias for bias in biases if bias.name in changed and self.is_included(bias.module)
        ]
        if not included_biases:
            self.not_extracted += (pair.name for pair in biases if pair.name in changed)
        elif self.extraction.skip_undecomposable:
            self.not_extracted += (pair.name for pair in included_biases)
        else:
            self.biases = biases

    def _is_named(self, module: TunedModule) -> bool:
        names = self.extraction.save_modules
        return module.name in names or module.word in names

    def _is_decomposed(self, module: TunedModule) -> bool:
        """Return whether a vocabulary module is decomposed; a tied one would be changed twice."""
        return self.extraction.embed_lora and not module.is_grown and not self._is_tied(module)

    def _is_tied(self, module: TunedModule) -> bool:
        return any(id(pair.own) in self._tied for pair in module.pairs.values())

    def is_included(self, name: str) -> bool:
        """Return whether the regular expressions include a module."""
        inclusions = self.extraction.include
        if inclusions and not any(re.search(expression, name) for expression in inclusions):
            return False
        return not self._is_excluded(name)

    def _is_excluded(self, name: str) -> bool:
        return any(re.search(expression, name) for expression in self.extraction.exclude)

    def _unused(self, changed: set[str]) -> None:
        """Record why tensors are not used."""
        bias_names = {pair.name for pair in self.biases}
        for module in self.modules:
            for role, pair in module.pairs.items():
                is_used = module.name in self.saved or pair.name in bias_names
                if is_used:
                    self.left_out += (
                        LeftOut(tensor, UnusedReason.FROM_ANOTHER)
                        for tensor in (pair.own, pair.base)
                    )
                elif module.name not in self.decomposed or role != "weight":
                    is_unchanged = pair.name not in changed
                    reason = UnusedReason.UNCHANGED if is_unchanged else UnusedReason.NOT_EXTRACTED
                    self._leave_out([(pair.own, pair.base)], reason)

    def _leave_out(self, pairs: Iterable[tuple[Tensor, Tensor]], reason: UnusedReason) -> None:
        self.left_out += (LeftOut(tensor, reason) for pair in pairs for tensor in pair)

    def _only_whole(self) -> Problem:
        saved_whole = [*self.saved_modules, *(pair.name for pair in self.biases if not self.saved)]
        return self.recipe.problem(
            "The adapter would have no matrices, and peft loads none without",
            "extract_lora",
            expected="a matrix that differs from the base model's, and is decomposed",
            found=f"{some(saved_whole, most=SHOWN)} saved whole",
            fix="Decompose embeddings (--embed-lora), leave out what is no matrix "
            "(--skip-undecomposable), or name fewer modules",
        )

    def _nothing(self) -> Problem:
        model, base = self.models.reference, self.base
        if self.not_extracted:
            return self.recipe.problem(
                f"Nothing of {model} is left to extract",
                "extract_lora",
                expected="a module that differs from the base model's, and is not left out",
                found=f"{some(self.not_extracted, most=SHOWN)} left out",
                fix="Change --include-regex, --exclude-regex or --skip-undecomposable",
            )
        return self.recipe.problem(
            f"{model} equals {base}: there is nothing to extract",
            "extract_lora.model",
            expected="a model that was trained from the base model",
            found="every tensor the same in both",
            fix="Check that these are the two models that you mean",
        )
