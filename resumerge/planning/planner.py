"""Makes the plan from a recipe and the headers of its sources; reports all problems together."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from resumerge.errors import InputError, Problem
from resumerge.experts.views import MixtureViews
from resumerge.experts.written_experts import as_reference
from resumerge.extraction.differences import OpenTensors, open_tensors
from resumerge.layout import ModulePart
from resumerge.layout.model_views import ModelViews
from resumerge.layout.sentence_modules import notes_on_sentence_modules
from resumerge.methods import METHODS, MergeMethod
from resumerge.options import SHARD_SIZE
from resumerge.output_path import STEM
from resumerge.planning.check_recipe import unknown_method
from resumerge.planning.expressions import Expressions, OutputTargets
from resumerge.planning.flat.low_rank import reminder_of_matrices
from resumerge.planning.flat.matching import FlatMatching, FlatViews, is_flat, not_flat
from resumerge.planning.mismatch import Mismatches
from resumerge.planning.module_matches import MatchedModules, ModuleMatch, match_modules
from resumerge.planning.other_outputs.adapters import (
    is_combination,
    plan_combination,
    plan_extraction,
    rank_of_models,
)
from resumerge.planning.other_outputs.mixtures import plan_mixture
from resumerge.planning.parameters import Parameters, check_parameters
from resumerge.planning.plan import LayerMap, Plan, Unshared
from resumerge.planning.quantised.weights import check_quantised, quantised_output
from resumerge.planning.reference_files import (
    compare_configs,
    notes_on_quantisation,
    reminder_of_tokenizer,
)
from resumerge.planning.shards import pack, pack_as_source, parts_of
from resumerge.planning.slices import check_inputs, check_layers, with_bases
from resumerge.planning.stacks.config_lists import check_settings, notes_on_numbers
from resumerge.planning.stacks.implied import check_implied
from resumerge.planning.stacks.kinds import check_kinds, compare_layers
from resumerge.planning.stacks.mixed import notes_on_mixed_layers, notes_on_mixed_models
from resumerge.planning.stacks.outside import check_shared_counts, check_tensors_outside
from resumerge.planning.tensor_notes import notes_on_tensors
from resumerge.planning.tensor_specs import (
    OutputSpecs,
    TensorSpec,
    aligned,
    copied,
    layer_map,
    stacked,
    tied_like_reference,
    unnamed_tensors,
    unused_tensors,
)
from resumerge.planning.whole_numbers import notes_on_differences
from resumerge.recipe import ModelRef, Recipe
from resumerge.recipe.types import Module
from resumerge.sources.left_out import LeftOut
from resumerge.sources.types import Source, left_out_tensors
from resumerge.tensors.target import Target
from resumerge.tokenizers.chat_template import choose_template
from resumerge.tokenizers.required import Tokenizers
from resumerge.tokenizers.row_alignment import RowAlignment


def make_plan(
    recipe: Recipe,
    sources: Mapping[ModelRef, Source],
    tokenizers: Tokenizers | None = None,
    *,
    seed: int,
    shard_size: int | None,
    unshared: Unshared = Unshared.REFUSED,
    stem: str = STEM,
    open_tensors: OpenTensors = open_tensors,
) -> Plan:
    """Plan a merge, a mixture of experts, or an adapter that is extracted or combined.

    Args:
        recipe: one document of a recipe; of a sweep, one variant.
        sources: every model that the recipe names, opened and numbered.
        tokenizers: the tokenizers that the recipe needs; None if it needs no tokenizer.
        seed: the seed of everything random: masks, gates, noise, and the directions of an
            extraction.
        shard_size: largest shard in bytes. None to write the same files as the reference model if
            the output has the same tensors, and otherwise shards of `SHARD_SIZE`. A reference that
            is a single weight file always makes one shard.
        unshared: the treatment of tensors that only some models have. Only models that are matched
            by name alone may have another value than `REFUSED`.
        stem: the start of the names of the output's weight files. Pipelines do not use it.
        open_tensors: opens the models whose tensors an extraction compares.

    Raises:
        InputError: the merge cannot be planned; holds every problem that was found.
    """
    if recipe.mixture is not None:
        return plan_mixture(
            recipe,
            recipe.mixture,
            sources,
            tokenizers or Tokenizers(),
            seed=seed,
            shard_size=shard_size or SHARD_SIZE,
        )
    if recipe.extraction is not None:
        return plan_extraction(
            recipe, recipe.extraction, sources, seed=seed, open_tensors=open_tensors
        )
    if is_combination(recipe, sources):
        return plan_combination(recipe, sources, _find_method(recipe), seed=seed)
    planner = _Planner.of(recipe, sources, tokenizers or Tokenizers(), unshared)
    return replace(planner.plan(seed, shard_size, stem), sources=tuple(sources.values()))


def _find_method(recipe: Recipe) -> MergeMethod:
    if recipe.merge_method in METHODS:
        return METHODS[recipe.merge_method]
    raise InputError([unknown_method(recipe)])


class _Tokens(NamedTuple):
    """The row alignment and the chat template of the output.

    Args:
        rows: the alignment of the rows of tokens; None if the rows are not aligned.
        chat_template: the chat template of the output; None for the reference's.
    """

    rows: RowAlignment | None
    chat_template: str | None


@dataclass
class _Planner:
    """The steps that make a plan. They collect problems and notes, to report all of them together.

    Args:
        recipe: the recipe, with its base models in every slice.
        method: the method that the recipe's ``merge_method`` names.
        parameters: the resolver of the method's parameters, which collects their problems.
        models: the models; their tensors are looked up by the reference's names.
        mixtures: the same models, with their experts in one form.
        flat: whether tensors are matched by name alone.
        tokenizers: the tokenizers that the recipe needs; empty if it needs no tokenizer.
        unshared: the treatment of tensors that only some models have; not `REFUSED` only if `flat`.
        mismatches: the tensors that cannot be merged, because models differ in them.
    """

    recipe: Recipe
    method: MergeMethod
    parameters: Parameters
    models: ModelViews
    mixtures: MixtureViews
    flat: bool
    tokenizers: Tokenizers
    unshared: Unshared
    mismatches: Mismatches
    problems: list[Problem]
    notes: list[str]
    left_out: list[LeftOut] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        recipe: Recipe,
        sources: Mapping[ModelRef, Source],
        tokenizers: Tokenizers,
        unshared: Unshared,
    ) -> _Planner:
        """Check the recipe by itself, and match the models' names with the reference's.

        The reference is the base model, or else the first model.

        Raises:
            InputError: the recipe's method does not exist; or a dense model cannot be extracted
                from a mixture.
        """
        method = _find_method(recipe)
        recipe, problems = with_bases(recipe, method)
        problems += check_inputs(recipe, method)
        problems += rank_of_models(recipe)
        parameter_problems, parameter_notes = check_parameters(recipe, method)
        problems = list(dict.fromkeys([*problems, *parameter_problems]))
        flat = is_flat(recipe, sources)
        reference = recipe.base_model or recipe.slices[0].inputs[0].model
        mixtures = MixtureViews.of(recipe, sources, reference, flat=flat)
        views_type = FlatViews if flat else ModelViews
        models = views_type(mixtures.sources, reference, mixtures.aliases)
        return cls(
            recipe=recipe,
            method=method,
            parameters=Parameters(recipe, method, valid=not problems),
            models=models,
            mixtures=mixtures,
            flat=flat,
            tokenizers=tokenizers,
            unshared=unshared,
            mismatches=Mismatches(recipe, models),
            problems=problems,
            notes=[
                *METHODS.notes_on(method.name),
                *recipe.notes,
                *parameter_notes,
                *mixtures.notes,
            ],
        )

    def plan(self, seed: int, shard_size: int | None, stem: str) -> Plan:
        """Make the plan: match the tensors, decide how each is computed and where it is written.

        Raises:
            InputError: the merge cannot be planned; holds every problem that was found.
        """
        self._compare_models()
        matched_modules = self._match()
        tokens = self._tokenizer()
        output_specs = self._specify(matched_modules)
        targets = self._express(output_specs.specs, tokens.rows, seed)
        self._check(matched_modules.layer_maps, targets)
        if self.problems:
            raise InputError(sorted(self.problems, key=lambda p: (p.line is None, p.line or 0)))
        self.notes += notes_on_differences(
            self.recipe, self.models, output_specs.specs, flat=self.flat
        )
        self.notes += notes_on_tensors(
            self.recipe, self.models, self.mixtures, matched_modules, output_specs, targets
        )
        return self._in_files(
            matched_modules.layer_maps, targets.as_stored, tokens, seed, shard_size, stem
        )

    def _compare_models(self) -> None:
        """Collect the notes on the models, and check that their configs fit the reference's."""
        self.notes += [note for source in self.models.sources.values() for note in source.notes]
        if self.unshared.value and not self.flat:
            self.problems.append(not_flat(self.recipe, self.unshared))
        config_problems, config_notes = compare_configs(self.recipe, self.models, flat=self.flat)
        self.problems += config_problems
        self.notes += config_notes
        self.notes += notes_on_quantisation(self.models.sources[self.models.reference])
        self.notes += notes_on_sentence_modules(self.recipe, self.models)

    def _match(self) -> MatchedModules:
        """Match the recipe's modules with parts of the models, and slices with their layers."""
        modules, unnamed_parts, problems = match_modules(self.recipe, self.models)
        self.problems += problems
        fitting_modules = (
            modules
            if self.flat
            else [module_match for module_match in modules if self._fits(*module_match)]
        )
        # The origins of layers can be checked only when no layers are missing.
        layer_maps = [] if self.problems else self._layer_maps(modules)
        return MatchedModules(modules, fitting_modules, unnamed_parts, layer_maps)

    def _fits(self, module: Module, part: ModulePart) -> bool:
        """Return whether every model has the layers that a module merges; collect problems."""
        problems = list(check_layers(self.recipe, self.models, module, part))
        self._collect(problems)
        return not problems

    def _layer_maps(self, modules: list[ModuleMatch]) -> list[LayerMap]:
        """Return the origins of the layers of stacked modules, and check that they fit together."""
        layer_maps = []
        for module, part in modules:
            if not module.stacked:
                self.notes += notes_on_mixed_models(self.models, module, part)
            elif part.stack:
                stack_map = layer_map(self.models, module, part.stack)
                layer_maps.append(stack_map)
                problems = list(check_settings(self.recipe, self.models, module, stack_map))
                if not problems:
                    problems += check_kinds(self.recipe, self.models, module, part, stack_map)
                problems += check_tensors_outside(self.recipe, self.models, module, part, stack_map)
                self.problems += problems
                self.notes += notes_on_numbers(self.models, stack_map)
                self.notes += notes_on_mixed_layers(self.models, stack_map)
        self.problems += check_shared_counts(self.recipe, self.models, layer_maps)
        return layer_maps

    def _tokenizer(self) -> _Tokens:
        """Return the alignment of the rows of tokens, and the chat template of the output."""
        templates = self.tokenizers.templates
        reference = self.models.reference
        reference_template = {reference: templates[reference]} if reference in templates else {}
        template, problems, notes = choose_template(
            self.recipe, {**reference_template, **templates}.values()
        )
        self._collect(problems)
        self.notes += notes
        if self.recipe.tokenizer is None:
            return _Tokens(None, template)
        vocabularies = self.tokenizers.vocabularies
        assumed_models = self.tokenizers.assumed
        row_alignment = RowAlignment(
            self.recipe, self.recipe.tokenizer, self.models, vocabularies, assumed_models
        )
        return _Tokens(row_alignment, template)

    def _specify(self, matched_modules: MatchedModules) -> OutputSpecs:
        """Return every tensor of the output, and the models' tensors that it does not use."""
        if self.flat:
            return OutputSpecs(self._flat_specs(), {})
        specs = self._tensor_specs(matched_modules.fitting, matched_modules.unnamed)
        self.left_out += unnamed_tensors(self.recipe, self.models, specs)
        unused_names = unused_tensors(self.models, matched_modules.fitting, specs, self.mismatches)
        return OutputSpecs(specs, unused_names)

    def _flat_specs(self) -> list[TensorSpec]:
        """Return every tensor of the output, matched by name alone."""
        matching = FlatMatching(
            self.recipe, self.method, self.models, self.recipe.modules[0], self.unshared
        )
        specs = matching.specs()
        self._collect(matching.problems)
        self.notes += matching.notes
        self.left_out += matching.left_out
        return specs

    def _tensor_specs(
        self, modules: list[ModuleMatch], unnamed: list[ModulePart]
    ) -> list[TensorSpec]:
        """Return every tensor of the output, with its name in each input."""
        specs: list[TensorSpec] = []
        for module, part in modules:
            if module.stacked:
                compare_layers(self.recipe, self.models, module, part, self.mismatches)
                specs += stacked(self.recipe, self.models, module, part)
            else:
                specs += aligned(self.models, module, part)
        for part in unnamed:
            specs += copied(self.models, part)
        return specs

    def _express(
        self, specs: list[TensorSpec], rows: RowAlignment | None, seed: int
    ) -> OutputTargets:
        """Make the expression that computes each tensor of the output."""
        expressions = Expressions(
            self.recipe, self.method, self.models, self.parameters, seed, self.mismatches, rows
        )
        named_targets = [target for spec in specs if (target := expressions.target(spec))]
        named_targets = tied_like_reference(self.models, named_targets)
        self.left_out += expressions.left_out
        stored_targets, dtype_problems = as_reference(self.recipe, named_targets, self.mixtures)
        self._collect(
            self.parameters.problems,
            self.mismatches.problems(),
            expressions.problems,
            dtype_problems,
        )
        if rows:
            self._collect(rows.problems)
            self.notes += rows.notes
        return OutputTargets(named_targets, stored_targets)

    def _check(self, layer_maps: list[LayerMap], targets: OutputTargets) -> None:
        """Check that the output has tensors, and that they form a model that can be written."""
        if not targets.as_stored and not self.problems:
            self.problems.append(self._nothing_to_merge())
        reference = self.models.sources[self.models.reference]
        self._collect(check_quantised(self.recipe, reference, flat=self.flat))
        if not self.problems:
            self._collect(check_implied(self.recipe, self.models, layer_maps, targets.as_named))

    def _nothing_to_merge(self) -> Problem:
        return self.recipe.problem(
            "There are no tensors to merge",
            "",
            expected="a model that has tensors",
            found=f"none in {self.models.reference}",
            fix="Check that all files of the model were saved",
        )

    def _in_files(
        self,
        layer_maps: list[LayerMap],
        targets: list[Target],
        tokens: _Tokens,
        seed: int,
        shard_size: int | None,
        stem: str,
    ) -> Plan:
        """Quantise the tensors if the recipe says so, pack them into files, and return the plan."""
        reference = self.models.reference
        source = self.models.sources[reference]
        targets, quantisation, notes = quantised_output(self.recipe, source, targets)
        self.notes += notes
        shard_limit = sys.maxsize if source.single else shard_size or SHARD_SIZE
        source_packing = None
        if shard_size is None:
            source_packing = pack_as_source(self.recipe, source, targets)
        units, shards = source_packing or pack(targets, shard_limit, parts_of(source, stem))
        return Plan(
            recipe=self.recipe,
            sources=tuple(self.models.sources.values()),
            reference=source.number,
            layers=self.models.layers[reference],
            layer_maps=tuple(layer_maps),
            units=units,
            shards=shards,
            seed=seed,
            shard_size=None if source_packing else shard_size or SHARD_SIZE,
            notes=tuple(dict.fromkeys(self.notes)),
            vocabulary=tokens.rows.vocabulary if tokens.rows else None,
            chat_template=tokens.chat_template,
            tokenizers={
                ref.text: vocabulary.digest
                for ref, vocabulary in self.tokenizers.vocabularies.items()
            },
            unshared=self.unshared,
            quantised=quantisation,
            left_out=(*self.left_out, *left_out_tensors(self.models.sources.values())),
        ).with_reminders(
            [
                *reminder_of_tokenizer(self.recipe, self.models, self.tokenizers),
                *(reminder_of_matrices(self.recipe, self.models.sources) if self.flat else ()),
            ]
        )

    def _collect(self, *several: Iterable[Problem]) -> None:
        for problems in several:
            self.problems += [problem for problem in problems if problem not in self.problems]
