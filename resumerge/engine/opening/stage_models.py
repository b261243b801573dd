"""The models of a recipe with several documents: sources, results of stages, adapted results."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from resumerge.engine.context import RunContext
from resumerge.engine.evaluation.evaluator import Evaluator
from resumerge.errors import InputError, Problem
from resumerge.extraction.differences import EvaluationOf, open_tensors
from resumerge.output import companions, output_config
from resumerge.output.gguf import planned_recipe
from resumerge.output_path import STEM
from resumerge.planning import Plan, Unshared, estimate, make_plan
from resumerge.recipe import ModelRef, Recipe
from resumerge.sources import Source
from resumerge.sources.adapters.lora import with_adapter
from resumerge.sources.reader import SourceReader
from resumerge.tensors import Tensor
from resumerge.tensors.evaluation import Evaluation
from resumerge.tokenizers.required import read_tokenizers

LARGEST_TREE = 10_000
"""The most nodes of a stage's tensor. A stage that uses another stage twice doubles the number."""


class StageModels:
    """The models that a document may name: sources, and results of the stages planned before it.

    The companions of a stage (config.json, tokenizer) are written to a temporary folder, so that
    they can be read like the files of any model.

    Args:
        context: the command's context, which deletes the temporary folders when it ends.
        sources: the opened and numbered sources, by reference.
    """

    def __init__(self, context: RunContext, sources: Mapping[ModelRef, Source]) -> None:
        self._context, self._sources = context, sources
        self._plans: list[Plan] = []
        self._results: dict[str, Source] = {}
        self._adapted: dict[str, Source] = {}

    def model(self, ref: ModelRef) -> Source:
        """Return the model of a reference.

        Raises:
            InputError: an adapter does not fit the result of a stage.
        """
        base, *adapters = ref.parts
        if base.text not in self._results:
            return self._sources[ref]
        if not adapters:
            return replace(self._results[base.text], ref=ref)
        if ref.text not in self._adapted:
            adapted_model = with_adapter(ref, self._results[base.text], self._sources[adapters[0]])
            self._adapted[ref.text] = replace(adapted_model, number=self.count)
        return self._adapted[ref.text]

    def plan(
        self,
        document: Recipe,
        *,
        seed: int,
        shard_size: int | None = None,
        unshared: Unshared = Unshared.REFUSED,
        stem: str = STEM,
    ) -> Plan:
        """Plan a document. The stages that it names must have been added before.

        The keyword arguments are passed on to `make_plan`.

        Raises:
            InputError: the document cannot be planned.
            Resumable: a model, or its tokenizer, cannot be read now.
        """
        models = {ref: self.model(ref) for ref in document.models}
        offline = self._context.options.offline
        plan = make_plan(
            planned_recipe(document),
            models,
            read_tokenizers(document, models, self._context.metadata, offline=offline),
            seed=seed,
            shard_size=shard_size,
            unshared=unshared,
            stem=stem,
            open_tensors=self.open_tensors,
        )
        return self._with_all_models(plan)

    @contextmanager
    def open_tensors(self, models: Mapping[Any, Source]) -> Iterator[EvaluationOf]:
        """Open a context in which tensors of these models can be read.

        A model may be the result of a stage. Each call of the yielded function computes again the
        reductions that such tensors need.

        Yields:
            a function that accepts tensors, and returns the evaluation to read them with.
        """
        model_names = {source.ref.parts[0].text for source in models.values()}
        stage_plans = [plan for plan in self._plans if plan.recipe.name in model_names]
        if not stage_plans:
            with open_tensors(models) as evaluation_of_stored:
                yield evaluation_of_stored
            return
        streamed_sources = {s.number: replace(s, streams=True) for s in self._sources.values()}
        with closing(SourceReader(streamed_sources)) as reader:
            plan = self._with_all_models(stage_plans[0])
            evaluator = Evaluator(plan, estimate(plan), reader, hashes=False)
            evaluator.start_thread()

            def evaluation_of(tensors: Iterable[Tensor]) -> Evaluation:
                self._context.reporter.heartbeat()
                self._context.stop.check()
                return evaluator.evaluation_of(tensors)

            yield evaluation_of

    def _with_all_models(self, plan: Plan) -> Plan:
        """Return a document's plan with all sources, and with the stages added so far."""
        results = [*self._results.values(), *self._adapted.values()]
        return replace(
            plan,
            sources=tuple(self._sources.values()),
            stages=tuple(self._plans),
            stage_models=tuple(sorted(results, key=lambda source: source.number)),
        )

    def add(self, plan: Plan) -> None:
        """Add the result of a stage as a model that later documents can name.

        Args:
            plan: the plan of the stage as `plan` returned it; its recipe's name becomes the model's
                name.

        Raises:
            InputError: stages are nested too deeply: a tensor has more than `LARGEST_TREE` nodes.
        """
        stage_name = plan.recipe.name
        if any(unit.expression.tree_size > LARGEST_TREE for unit in plan.units):
            raise InputError([_too_often(plan.recipe)])
        companion_folder = self._context.temporary_folder()
        for file_name, content in companions(
            plan, stage_name, self._context.metadata, {}, offline=self._context.options.offline
        ):
            companion_path = companion_folder / file_name
            companion_path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Path):
                shutil.copyfile(content, companion_path)
            else:
                companion_path.write_bytes(content)
        self._results[stage_name] = Source(
            ref=ModelRef(stage_name, stage_name),
            kind="stage",
            folder=companion_folder,
            revision=None,
            config=output_config(plan),
            tensors=plan.tensors(),
            components=plan.reference_model.components,
            modules=plan.reference_model.modules,
            single=plan.reference_model.single,
            number=self.count,
        )
        self._plans.append(plan)

    @property
    def count(self) -> int:
        """The number of models so far, which is also the number of the next model."""
        return len(self._sources) + len(self._results) + len(self._adapted)


def unshared_of(options: Mapping[str, Any]) -> Unshared | None:
    """Return the mode for unshared tensors that these options choose, or None."""
    chosen_modes = (mode for mode in Unshared if mode.value and options.get(f"tensor_{mode.value}"))
    return next(chosen_modes, None)


def _too_often(stage: Recipe) -> Problem:
    return stage.problem(
        f"The stage {stage.name!r} uses stages that are nested too deeply",
        "name",
        expected=f"tensors made by at most {LARGEST_TREE:,} computations each",
        found="more: a stage is computed again wherever it is used",
        fix="Merge some of the first stages with a run of their own, and name its output here",
    )
