"""Makes the plan from a recipe and the headers of its sources; finds every problem on the way."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from resumerge.errors import InputError, Problem
from resumerge.experts.upcycling import mix
from resumerge.experts.views import MixtureViews
from resumerge.experts.written_experts import as_reference, note_on_packed_files
from resumerge.layout import ModulePart, find_parts, is_computed, is_tied_copy, listed
from resumerge.layout.model_views import ModelViews
from resumerge.methods import METHODS, MergeMethod
from resumerge.output_path import STEM
from resumerge.planning.check_recipe import unknown_method
from resumerge.planning.expressions import Expressions
from resumerge.planning.flat.matching import FlatMatching, FlatViews, is_flat, not_flat
from resumerge.planning.layer_kinds import check_kinds, compare_layers
from resumerge.planning.mismatch import Mismatches
from resumerge.planning.parameters import Parameters, check_parameters
from resumerge.planning.plan import LayerMap, Plan, Unshared
from resumerge.planning.shards import pack, parts_of
from resumerge.planning.slices import check_inputs, check_layers, with_bases
from resumerge.planning.tensor_specs import TensorSpec, aligned, copied, layer_map, stacked
from resumerge.recipe import ModelRef, Module, Recipe
from resumerge.recipe.spelling import did_you_mean
from resumerge.recipe.types import Mixture
from resumerge.sources.types import Source
from resumerge.tokenizers.chat_template import choose_template
from resumerge.tokenizers.required import Tokenizers
from resumerge.tokenizers.row_alignment import RowAlignment


def make_plan(
    recipe: Recipe,
    sources: Mapping[ModelRef, Source],
    tokenizers: Tokenizers | None = None,
    *,
    seed: int,
    shard_size: int,
    unshared: Unshared = Unshared.REFUSED,
    stem: str = STEM,
) -> Plan:
    """Plan a merge, or a mixture of experts.

    Args:
        sources: every model that the recipe names, opened and numbered.
        tokenizers: the tokenizers that the recipe needs, if it needs any.
        seed: seed of the random masks.
        shard_size: largest shard in bytes; a single weight file as reference makes one shard.
        unshared: what becomes of tensors that not all models have, of models without config.json.
        stem: how the names of the output's weight files begin, if it is no pipeline.

    Raises:
        InputError: with every problem that was found.
    """
    if recipe.mixture is not None:
        return _plan_mixture(
            recipe,
            recipe.mixture,
            sources,
            tokenizers or Tokenizers(),
            seed=seed,
            shard_size=shard_size,
        )
    planner = _Planner(recipe, sources, tokenizers or Tokenizers(), unshared)
    return replace(planner.plan(seed, shard_size, stem), sources=tuple(sources.values()))


def _plan_mixture(
    recipe: Recipe,
    mixture: Mixture,
    sources: Mapping[ModelRef, Source],
    tokenizers: Tokenizers,
    *,
    seed: int,
    shard_size: int,
) -> Plan:
    assert recipe.base_model is not None
    models = ModelViews(sources, recipe.base_model)
    made, targets, notes = mix(recipe, mixture, models, tokenizers, seed=seed)
    units, shards = pack(targets, shard_size)
    return Plan(
        recipe=recipe,
        sources=tuple(sources.values()),
        reference=sources[recipe.base_model].number,
        layers=models.layers[recipe.base_model],
        layer_maps=(),
        units=units,
        shards=shards,
        seed=seed,
        shard_size=shard_size,
        notes=tuple(dict.fromkeys(notes)),
        tokenizers={ref.text: v.digest for ref, v in tokenizers.vocabularies.items()},
        mixture=made,
    )


ModuleMatch = tuple[Module, ModulePart]
"""A module of the recipe, and the part of the reference model that it names."""


@dataclass
class _Planner:
    """Collects problems and notes on the way, so that all problems are reported at once."""

    recipe: Recipe
    sources: Mapping[ModelRef, Source]
    tokenizers: Tokenizers
    unshared: Unshared
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def plan(self, seed: int, shard_size: int, stem: str) -> Plan:
        self.method = self._find_method()
        parameters = self._check_recipe()
        self.flat = is_flat(self.recipe, self.sources)
        self.models = self._find_reference()
        self.notes += [note for source in self.sources.values() for note in source.notes]
        self._check_configs()
        modules, unnamed = self._match_modules()
        valid = self._check_layers(modules)
        layer_maps = self._layer_maps(modules)
        alignment, chat_template = self._tokenizer()
        mismatches = Mismatches(self.recipe, self.models)
        if self.flat:
            specs, unused = self._flat_specs(), dict[ModelRef, list[str]]()
        else:
            specs = self._tensor_specs(valid, unnamed, mismatches)
            unused = self._unused_tensors(valid, specs, mismatches)
        expressions = Expressions(
            self.recipe, self.method, self.models, parameters, seed, mismatches, alignment
        )
        targets = [target for spec in specs if (target := expressions.target(spec))]
        targets, several = as_reference(self.recipe, targets, self.mixtures)
        self._collect(parameters.problems, mismatches.problems(), expressions.problems, several)
        if alignment:
            self._collect(alignment.problems)
            self.notes += alignment.notes
        if not targets and not self.problems:
            self.problems.append(self._nothing_to_merge())
        if self.problems:
            raise InputError(sorted(self.problems, key=lambda p: (p.line is None, p.line or 0)))
        self._add_notes(modules, unnamed, layer_maps, unused)
        reference = self.models.reference
        self.notes += note_on_packed_files(targets, self.mixtures, reference)
        single = self.sources[reference].single
        parts = parts_of(self.sources[reference], stem)
        units, shards = pack(targets, sys.maxsize if single else shard_size, parts)
        return Plan(
            recipe=self.recipe,
            sources=tuple(self.sources.values()),
            reference=self.sources[reference].number,
            layers=self.models.layers[reference],
            layer_maps=tuple(layer_maps),
            units=units,
            shards=shards,
            seed=seed,
            shard_size=shard_size,
            notes=tuple(dict.fromkeys(self.notes)),
            vocabulary=alignment.vocabulary if alignment else None,
            chat_template=chat_template,
            tokenizers={
                ref.text: vocabulary.digest
                for ref, vocabulary in self.tokenizers.vocabularies.items()
            },
            unshared=self.unshared,
        ).with_reminders(self._without_tokenizer())

    def _check_recipe(self) -> Parameters:
        """Add base models to the slices; check the number of models and all parameters."""
        self.recipe, problems = with_bases(self.recipe, self.method)
        self.notes += self.recipe.notes
        problems += check_inputs(self.recipe, self.method)
        invalid, notes = check_parameters(self.recipe, self.method)
        self._collect(problems, invalid)
        self.notes += notes
        return Parameters(self.recipe, self.method, valid=not (problems or invalid))

    def _find_reference(self) -> ModelViews:
        """The models as seen from the reference: the base model, or else the first model."""
        reference = self.recipe.base_model or self.recipe.slices[0].inputs[0].model
        self.mixtures = MixtureViews.of(self.recipe, self.sources, reference, flat=self.flat)
        self.sources = self.mixtures.sources
        self.notes += self.mixtures.notes
        views = FlatViews if self.flat else ModelViews
        return views(self.sources, reference, self.mixtures.aliases)

    def _flat_specs(self) -> list[TensorSpec]:
        """Every tensor of the output, matched by name alone."""
        matching = FlatMatching(
            self.recipe, self.method, self.models, self.recipe.modules[0], self.unshared
        )
        specs = matching.specs()
        self._collect(matching.problems)
        self.notes += matching.notes
        return specs

    def _check_layers(self, modules: list[ModuleMatch]) -> list[ModuleMatch]:
        """Check that every model has the layers that are merged; return the modules that fit."""
        if self.flat:
            return modules
        valid = []
        for module, part in modules:
            problems = list(check_layers(self.recipe, self.models, module, part))
            self._collect(problems)
            if not problems:
                valid.append((module, part))
        return valid

    def _check_configs(self) -> None:
        """Check that the reference has a config.json: no library loads the output without one."""
        if self.unshared.value and not self.flat:
            self.problems.append(not_flat(self.recipe, self.unshared))
        reference = self.models.reference
        merged = dict.fromkeys([reference, *self.recipe.merged_models])
        without = [ref for ref in merged if not self.sources[ref].config]
        if self.flat:
            self.notes.append(
                "no model has a config.json, so the output has none; tensors are matched by name"
            )
        elif len(without) == len(merged):
            self.notes.append(
                "no model has a config.json, so the output has none, and no library can load it"
            )
        elif reference in without:
            self.problems += reference_without_config(self.recipe, self.sources)
        else:
            self.notes += [
                f"{ref} has no config.json: the one of {reference} is assumed" for ref in without
            ]

    def _tokenizer(self) -> tuple[RowAlignment | None, str | None]:
        """How rows of tokens are aligned, and the chat template of the output."""
        templates = self.tokenizers.templates
        reference = self.models.reference
        first = {reference: templates[reference]} if reference in templates else {}
        template, problems, notes = choose_template(self.recipe, {**first, **templates}.values())
        self._collect(problems)
        self.notes += notes
        if self.recipe.tokenizer is None:
            return None, template
        vocabularies = self.tokenizers.vocabularies
        assumed = self.tokenizers.assumed
        return (
            RowAlignment(self.recipe, self.recipe.tokenizer, self.models, vocabularies, assumed),
            template,
        )

    def _without_tokenizer(self) -> list[str]:
        """A reminder if the output has tokens, but no tokenizer."""
        reference, without = self.models.reference, self.tokenizers.without
        if self.recipe.tokenizer or reference not in without:
            return []
        rows = self.models.vocabularies[reference].size
        if rows is None:
            return []
        others = [ref for ref in self.recipe.merged_models if ref not in without]
        fitting = [str(ref) for ref in others if self.models.vocabularies[ref].size == rows]
        if fitting:
            do = f"write 'tokenizer_source: {fitting[0]}' to use the tokenizer of {fitting[0]}"
        else:
            do = "save the tokenizer that it was trained with into the output folder"
        return [f"{reference} has no tokenizer, so the output has none: {do}"]

    def _collect(self, *several: Iterable[Problem]) -> None:
        for problems in several:
            self.problems += [problem for problem in problems if problem not in self.problems]

    def _find_method(self) -> MergeMethod:
        name = self.recipe.merge_method
        if name in METHODS:
            return METHODS[name]
        raise InputError([unknown_method(self.recipe)])

    def _match_modules(self) -> tuple[list[ModuleMatch], list[ModulePart]]:
        """Match modules with parts of the reference; return also the parts that have no module."""
        models = self.models
        layers = models.layers[models.reference]
        names = models.ordered(models.reference)
        if self.recipe.modules[0].name is None:
            whole = ModulePart("the model", frozenset(), layers.main, tuple(names))
            return [(self.recipe.modules[0], whole)], []
        parts = find_parts(names, layers)
        matches: list[ModuleMatch] = []
        for module in self.recipe.modules:
            part = next((p for p in parts if module.name in p.names), None)
            if part is None:
                self.problems.append(self._no_such_part(module, parts))
            elif any(part is taken for _, taken in matches):
                self.problems.append(self._named_twice(module, part, matches))
            else:
                matches.append((module, part))
        return matches, [p for p in parts if all(p is not taken for _, taken in matches)]

    def _no_such_part(self, module: Module, parts: list[ModulePart]) -> Problem:
        every = [name for part in parts for name in sorted(part.names)]
        described = ", ".join(
            f"{part.name} ({len(part.tensors)} tensors"
            + (f", {part.stack}.*)" if part.stack else ")")
            for part in parts
        )
        return self.recipe.problem(
            f"{self.models.reference} has no module {module.name!r}",
            module.path,
            expected=described,
            found=module.name,
            fix=did_you_mean(str(module.name), every) or "Write one of these names",
        )

    def _named_twice(self, module: Module, part: ModulePart, matches: list[ModuleMatch]) -> Problem:
        first = next(m.name for m, taken in matches if taken is part)
        return self.recipe.problem(
            f"The module {part.name} is named twice",
            module.path,
            expected="each module of the model once",
            found=f"{first} and {module.name}",
            fix="Delete one of the two",
        )

    def _layer_maps(self, modules: list[ModuleMatch]) -> list[LayerMap]:
        """Where the layers of stacked modules come from; empty if there are problems already."""
        if self.problems:
            return []
        maps = []
        for module, part in modules:
            if module.stacked and part.stack:
                maps.append(layer_map(self.models, module, part.stack))
                problems, notes = check_kinds(self.recipe, self.models, module, part, maps[-1])
                self.problems += problems
                self.notes += notes
        return maps

    def _tensor_specs(
        self, modules: list[ModuleMatch], unnamed: list[ModulePart], mismatches: Mismatches
    ) -> list[TensorSpec]:
        """Every tensor of the output, with its name in each input."""
        specs: list[TensorSpec] = []
        for module, part in modules:
            if module.stacked:
                compare_layers(self.recipe, self.models, module, part, mismatches)
                specs += stacked(self.recipe, self.models, module, part)
            else:
                specs += aligned(self.models, module, part)
        for part in unnamed:
            specs += copied(self.models, part)
        return specs

    def _nothing_to_merge(self) -> Problem:
        return self.recipe.problem(
            "There are no tensors to merge",
            "",
            expected="a model that has tensors",
            found=f"none in {self.models.reference}",
            fix="Check that all files of the model were saved",
        )

    def _add_notes(
        self,
        modules: list[ModuleMatch],
        unnamed: list[ModulePart],
        maps: list[LayerMap],
        unused: Mapping[ModelRef, list[str]],
    ) -> None:
        """Note which tensors were matched by another name, copied, or left out."""
        models = self.models
        reference = models.reference
        for part in unnamed:
            self.notes.append(
                f"{part.name} is not among the modules: it is copied from {reference}"
            )
        for found in maps:
            others = [s for s in models.layers[reference].counts if s != found.stack]
            if others and modules[0][0].name is None:
                self.notes.append(
                    f"slices choose layers of {found.stack}; {', '.join(others)} are merged as "
                    "in the first slice"
                )
        for ref in self.sources:
            for rename in models.renames(ref):
                self.notes.append(f"tensors of {ref} are matched by name, with {rename}")
            if names := unused.get(ref):
                self.notes.append(
                    f"{ref} has {len(names)} tensors that {reference} lacks; "
                    f"the output does not have them: {listed(sorted(names))}"
                )

    def _unused_tensors(
        self,
        modules: list[ModuleMatch],
        specs: list[TensorSpec],
        mismatches: Mismatches,
    ) -> dict[ModelRef, list[str]]:
        """By model, the tensors of models that are merged whole that the output lacks.

        Such a tensor inside merged layers is a mismatch, unless the model computes it: the
        reference's architecture has no place for it.
        """
        models = self.models
        whole = [(module, part) for module, part in modules if not module.stacked]
        if not whole:
            return {}
        used: dict[ModelRef, set[str]] = {ref: set() for ref in self.sources}
        for spec in specs:
            for input_, name in zip(spec.slice_.inputs, spec.names):
                used[input_.model].add(name)
        ours = models.sources[models.reference].tensors
        unused: dict[ModelRef, list[str]] = {}
        for ref, source in self.sources.items():
            known = used[ref] | {models.name_in(ref, name) for name in ours}
            unused[ref] = [
                n for n in source.tensors if n not in known and not is_tied_copy(source, n)
            ]
        for module, part in whole:
            stacks = {s for s in models.layers[models.reference].counts if _holds(part, s)}
            for input_ in module.slices[0].inputs:
                merged = {models.stack_in(input_.model, stack) for stack in stacks}
                for name in unused[input_.model]:
                    located = models.layers[input_.model].locate(name)
                    tensor = models.sources[input_.model].tensors[name]
                    if located and located.stack in merged and not is_computed(tensor):
                        mismatches.surplus(input_, name, models.reference)
        return unused


def _holds(part: ModulePart, stack: str) -> bool:
    return any(name.startswith(f"{stack}.") for name in part.tensors)


def reference_without_config(recipe: Recipe, sources: Mapping[ModelRef, Source]) -> list[Problem]:
    """The problem of a reference model without config.json; none if it has one, or is not open."""
    inputs = [i for slice_ in recipe.slices for i in slice_.inputs]
    reference = recipe.base_model or inputs[0].model
    if reference not in sources or sources[reference].config:
        return []
    others = [str(ref) for ref in recipe.merged_models if ref in sources and sources[ref].config]
    path = next((i.path for i in inputs if i.model == reference), "base_model")
    have = f"; {', '.join(others)} {'has' if len(others) == 1 else 'have'} one" if others else ""
    problem = recipe.problem(
        f"{reference} has no config.json",
        "base_model" if recipe.base_model else path,
        expected="config.json in the base model, or in the first model if there is no base: the "
        "output gets it",
        found=f"none{have}",
        fix=f"Download the config.json of {reference}, or copy that of another model of the same "
        "architecture",
    )
    return [problem]
