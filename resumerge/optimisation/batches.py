"""The models of a batch: merged in one run, if possible, which reads the sources once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from resumerge.engine.reporter import Reporter
from resumerge.errors import InputError, Problem
from resumerge.optimisation.models import TrialModels, variant
from resumerge.optimisation.space import INSIDE, Space, Values
from resumerge.recipe import parse_recipe


class BatchMerges:
    """The merges of the batches of a search.

    Args:
        space: the space, which makes a recipe of each suggestion.
        models: writes, merges and plans the recipes, in the folders of the trials.
        reporter: receives the progress of the merges.
    """

    def __init__(self, space: Space, models: TrialModels, reporter: Reporter) -> None:
        self._space, self._models, self._reporter = space, models, reporter

    def merge(self, batch: Mapping[int, Values]) -> dict[int, str]:
        """Merge the models of trials, or continue the merge that was interrupted.

        Args:
            batch: the suggestions, by the number of the trial.

        Returns:
            the reason for each trial whose values make no model, by the trial's number. Other
            values of the space make a model.

        Raises:
            InputError: no values of the space make a model now.
            Resumable, Interrupted: as for `resumerge.run`.
        """
        recipes = {number: self._space.recipe(values) for number, values in batch.items()}
        failure_by_number: dict[int, str] = {}
        try:
            single_recipes = self._merge_together(batch, recipes)
        except InputError as error:
            problem = error.problems[0].what
            failure_by_number = self._without_model(recipes)
            single_recipes = {
                number: text for number, text in recipes.items() if number not in failure_by_number
            }
            try:
                if not failure_by_number:
                    raise
                single_recipes = self._merge_together(batch, single_recipes)
            except InputError:
                self._models.delete_sweep(batch)
                self._reporter.note(f"a batch is merged model by model, not in one run: {problem}")
        for number, recipe in single_recipes.items():
            try:
                self._models.merge(number, recipe, self._reporter)
            except InputError:
                failure_by_number |= self._without_model({number: recipe})
                if number not in failure_by_number:
                    raise
        return failure_by_number

    def _merge_together(
        self, batch: Mapping[int, Values], recipes: dict[int, str]
    ) -> dict[int, str]:
        """Merge the models of trials in one run, and return the recipes outside the run.

        If several trials have the same recipe, only the first is in the run: variants of a sweep
        differ.

        Raises:
            InputError: these models cannot be merged in one run.
        """
        number_by_recipe: dict[str, int] = {}
        for number, recipe in recipes.items():
            number_by_recipe.setdefault(recipe, number)
        merged_recipes = {number: recipe for recipe, number in number_by_recipe.items()}
        if len(merged_recipes) < 2:
            return recipes
        sweep = self._space.sweep({variant(number): batch[number] for number in merged_recipes})
        self._models.merge_together(batch, merged_recipes, sweep, self._reporter)
        return {number: text for number, text in recipes.items() if number not in merged_recipes}

    def _without_model(self, recipes: Mapping[int, str]) -> dict[int, str]:
        """Return the reason for each recipe that makes no model, by the trial's number.

        Raises:
            InputError: no values of the space make a model now.
        """
        check_models(self._space, self._models)
        return dict(self._problems(recipes))

    def _problems(self, recipes: Mapping[int, str]) -> Iterator[tuple[int, str]]:
        for number, recipe in recipes.items():
            try:
                self._models.plan(parse_recipe(recipe, self._space.file))
            except InputError as error:
                yield number, f"these values make no model: {error.problems[0].what}"


def check_models(space: Space, models: TrialModels) -> None:
    """Plan recipes of the space until one of them can be merged: single recipes may make no model.

    Raises:
        InputError: no recipe can be merged; problems are at lines of the space.
    """
    problems: list[Problem] = []
    for share in (INSIDE, 0, 1):
        try:
            models.plan(parse_recipe(space.recipe(space.between(share)), space.file))
            return
        except InputError as error:
            problems = problems or [
                space.placed(recipe_problem) for recipe_problem in error.problems
            ]
    raise InputError(problems)
