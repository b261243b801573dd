"""From a recipe and the headers of its sources to the plan. Every problem is found here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from resumerge.errors import InputError, Problem
from resumerge.layout import ModulePart, find_parts, is_computed, is_tied_copy
from resumerge.methods import METHODS, Method
from resumerge.planning.check_recipe import unknown_method
from resumerge.planning.expressions import Expressions
from resumerge.planning.layer_kinds import check_kinds, compare_layers
from resumerge.planning.mismatch import Mismatches, listed
from resumerge.planning.model_views import ModelViews
from resumerge.planning.parameters import Parameters, check_parameters
from resumerge.planning.plan import LayerMap, Plan
from resumerge.planning.shards import pack
from resumerge.planning.slices import check_inputs, check_layers, with_bases
from resumerge.planning.tensor_specs import TensorSpec, aligned, kept, layer_map, stacked
from resumerge.planning.tokenizers.alignment import Alignment
from resumerge.planning.tokenizers.chat_template import choose_template
from resumerge.recipe import ModelRef, Module, Recipe
from resumerge.recipe.spelling import did_you_mean
from resumerge.sources.tokenizers.required import Tokenizers
from resumerge.sources.types import Source


def make_plan(
    recipe: Recipe,
    sources: Mapping[ModelRef, Source],
    tokenizers: Tokenizers | None = None,
    *,
    seed: int,
    shard_size: int,
) -> Plan:
    """Plan a merge.

    Args:
        sources: every model that the recipe names, opened.
        tokenizers: those that the recipe needs; None where it needs none.
        seed: of random masks.
        shard_size: largest shard in bytes.

    Raises:
        InputError: with every problem that was found.
    """
    return _Planner(recipe, sources, tokenizers or Tokenizers()).plan(seed, shard_size)


@dataclass
class _Planner:
    recipe: Recipe
    sources: Mapping[ModelRef, Source]
    tokenizers: Tokenizers
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def plan(self, seed: int, shard_size: int) -> Plan:
        method = self._method()
        self.recipe, problems = with_bases(self.recipe, method)
        self.notes += self.recipe.notes
        self._collect(problems, check_inputs(self.recipe, method))
        unsound, notes = check_parameters(self.recipe, method)
        self.problems += unsound
        self.notes += notes
        reference = self.recipe.base_model or self.recipe.slices[0].inputs[0].model
        self.models = ModelViews(self.sources, reference)
        self._check_configs()
        pairs, left = self._parts()
        unfit = []
        for module, part in pairs:
            found = list(check_layers(self.recipe, self.models, module, part))
            unfit += [module] * bool(found)
            self._collect(found)
        maps = self._layer_maps(pairs)
        parameters = Parameters(self.recipe, method, sound=not unsound)
        mismatches = Mismatches(self.recipe, self.models)
        fit = [pair for pair in pairs if pair[0] not in unfit]
        for module, part in fit:
            if module.stacked:
                compare_layers(self.recipe, self.models, module, part, mismatches)
        alignment, chat_template = self._tokenizer()
        expressions = Expressions(
            self.recipe, method, self.models, parameters, seed, mismatches, alignment
        )
        cells = list(self._cells(fit, left))
        extra = self._extra(fit, cells, mismatches)
        targets = [target for cell in cells if (target := expressions.target(cell))]
        self._collect(parameters.problems, mismatches.problems(), expressions.problems)
        if alignment:
            self._collect(alignment.problems)
            self.notes += alignment.notes
        if not targets and not self.problems:
            self.problems.append(self._nothing_to_merge())
        if self.problems:
            raise InputError(sorted(self.problems, key=lambda p: (p.line is None, p.line or 0)))
        self._note_what_differs(pairs, left, maps, extra)
        units, shards = pack(targets, shard_size)
        return Plan(
            recipe=self.recipe,
            sources=tuple(self.sources.values()),
            reference=self.models.numbers[reference],
            layers=self.models.layers[reference],
            layer_maps=tuple(maps),
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
        )

    def _check_configs(self) -> None:
        """The reference gives the output its config.json, without which no loader opens it."""
        reference = self.models.reference
        merged = dict.fromkeys([reference, *self.recipe.merged_models])
        without = [ref for ref in merged if not self.sources[ref].config]
        if len(without) == len(merged):
            self.notes.append(
                "no model has a config.json: nor has the output, and no loader opens it without one"
            )
        elif reference in without:
            others = [str(ref) for ref in merged if ref not in without]
            inputs = [i for slice_ in self.recipe.slices for i in slice_.inputs]
            path = next((i.path for i in inputs if i.model == reference), "base_model")
            self.problems.append(
                self.recipe.problem(
                    f"{reference} has no config.json",
                    "base_model" if self.recipe.base_model else path,
                    expected="config.json in the base model, or else the first: it becomes the "
                    "output's",
                    found=f"none; {', '.join(others)} has one"
                    if len(others) == 1
                    else f"none; {', '.join(others)} have one",
                    fix=f"download {reference}'s config.json too, or copy another's if they are of "
                    "one architecture",
                )
            )
        else:
            self.notes += [
                f"{ref} has no config.json: it is taken for a model like {reference}"
                for ref in without
            ]

    def _tokenizer(self) -> tuple[Alignment | None, str | None]:
        """How rows of tokens are aligned, and the output's chat template."""
        templates = self.tokenizers.templates
        reference = self.models.reference
        first = {reference: templates[reference]} if reference in templates else {}
        template, problems, notes = choose_template(self.recipe, {**first, **templates}.values())
        self._collect(problems)
        self.notes += notes
        if self.recipe.tokenizer is None:
            return None, template
        vocabularies = self.tokenizers.vocabularies
        return Alignment(self.recipe, self.recipe.tokenizer, self.models, vocabularies), template

    def _collect(self, *several: Iterable[Problem]) -> None:
        for problems in several:
            self.problems += [problem for problem in problems if problem not in self.problems]

    def _method(self) -> Method:
        name = self.recipe.merge_method
        if name in METHODS:
            return METHODS[name]
        raise InputError([unknown_method(self.recipe)])

    def _parts(self) -> tuple[list[tuple[Module, ModulePart]], list[ModulePart]]:
        """What part of the reference each module is, and the parts that no module is."""
        models = self.models
        layers = models.layers[models.reference]
        names = models.ordered(models.reference)
        if self.recipe.modules[0].name is None:
            whole = ModulePart("the model", frozenset(), layers.main, tuple(names))
            return [(self.recipe.modules[0], whole)], []
        parts = find_parts(names, layers)
        pairs: list[tuple[Module, ModulePart]] = []
        for module in self.recipe.modules:
            part = next((p for p in parts if module.name in p.names), None)
            if part is None:
                self.problems.append(self._no_such_part(module, parts))
            elif any(part is taken for _, taken in pairs):
                self.problems.append(self._named_twice(module, part, pairs))
            else:
                pairs.append((module, part))
        return pairs, [p for p in parts if all(p is not taken for _, taken in pairs)]

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
            fix=did_you_mean(str(module.name), every) or "name one of these",
        )

    def _named_twice(
        self, module: Module, part: ModulePart, pairs: list[tuple[Module, ModulePart]]
    ) -> Problem:
        first = next(m.name for m, taken in pairs if taken is part)
        return self.recipe.problem(
            f"The module {part.name} is named twice",
            module.path,
            expected="each part of the model once",
            found=f"{first} and {module.name}",
            fix="delete one of the two",
        )

    def _layer_maps(self, pairs: list[tuple[Module, ModulePart]]) -> list[LayerMap]:
        """Where the layers of stacked modules come from, once it is sure that they are there."""
        if self.problems:
            return []
        maps = [
            layer_map(self.models, module, part.stack)
            for module, part in pairs
            if module.stacked and part.stack
        ]
        for (module, part), found in zip([p for p in pairs if p[0].stacked], maps):
            problems, notes = check_kinds(self.recipe, self.models, module, part, found)
            self.problems += problems
            self.notes += notes
        return maps

    def _cells(
        self, pairs: list[tuple[Module, ModulePart]], left: list[ModulePart]
    ) -> Iterator[TensorSpec]:
        for module, part in pairs:
            if module.stacked:
                yield from stacked(self.recipe, self.models, module, part)
            else:
                yield from aligned(self.models, module, part)
        for part in left:
            yield from kept(self.models, part)

    def _nothing_to_merge(self) -> Problem:
        return self.recipe.problem(
            "There are no tensors to merge",
            "",
            expected="a model that has some",
            found=f"none in {self.models.reference}",
            fix="check that the model was saved whole",
        )

    def _note_what_differs(
        self,
        pairs: list[tuple[Module, ModulePart]],
        left: list[ModulePart],
        maps: list[LayerMap],
        extra: Mapping[ModelRef, list[str]],
    ) -> None:
        """Say what was matched, kept and left out, and could be taken for something else."""
        models = self.models
        reference = models.reference
        for part in left:
            self.notes.append(f"{part.name} is not among the modules: it is kept as in {reference}")
        for found in maps:
            others = [s for s in models.layers[reference].counts if s != found.stack]
            if others and pairs[0][0].name is None:
                self.notes.append(
                    f"slices choose layers of {found.stack}; {', '.join(others)} stay as in "
                    "the first slice"
                )
        for ref in self.sources:
            for rename in models.renames(ref):
                self.notes.append(f"tensors of {ref} are matched reading {rename}")
            if names := extra.get(ref):
                self.notes.append(
                    f"{ref} has {len(names)} tensors that {reference} lacks; "
                    f"the result is without them: {listed(sorted(names))}"
                )

    def _extra(
        self,
        pairs: list[tuple[Module, ModulePart]],
        cells: list[TensorSpec],
        mismatches: Mismatches,
    ) -> dict[ModelRef, list[str]]:
        """What models that are merged whole have and the output does not: by model.

        What stands in the layers that are merged was left out of the reference's architecture
        altogether: it is a mismatch, unless a model computes it.
        """
        models = self.models
        whole = [(module, part) for module, part in pairs if not module.stacked]
        if not whole:
            return {}
        used: dict[ModelRef, set[str]] = {ref: set() for ref in self.sources}
        for cell in cells:
            for input_, name in zip(cell.slice_.inputs, cell.names):
                used[input_.model].add(name)
        ours = models.sources[models.reference].tensors
        extra: dict[ModelRef, list[str]] = {}
        for ref, source in self.sources.items():
            known = used[ref] | {models.name_in(ref, name) for name in ours}
            extra[ref] = [
                n for n in source.tensors if n not in known and not is_tied_copy(source, n)
            ]
        for module, part in whole:
            stacks = {s for s in models.layers[models.reference].counts if _holds(part, s)}
            for input_ in module.slices[0].inputs:
                merged = {models.stack_in(input_.model, stack) for stack in stacks}
                for name in extra[input_.model]:
                    located = models.layers[input_.model].locate(name)
                    tensor = models.sources[input_.model].tensors[name]
                    if located and located.stack in merged and not is_computed(tensor):
                        mismatches.surplus(input_, name, models.reference)
        return extra


def _holds(part: ModulePart, stack: str) -> bool:
    return any(name.startswith(f"{stack}.") for name in part.tensors)
