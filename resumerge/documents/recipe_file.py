"""Temporary files for recipes that come from Python or from a command, not from a user's file."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from resumerge.engine.resources.temporary import TemporaryFolder
from resumerge.errors import InputError, Problem
from resumerge.recipe.as_yaml import as_yaml

SEPARATOR = "---\n"


@dataclass(frozen=True)
class RecipeFile:
    """A file with a recipe.

    Args:
        path: the YAML file, which may be temporary.
        placed: a function that replaces the place of a problem, in the file, by the place that the
            user knows.
    """

    path: Path
    placed: Callable[[Problem], Problem] = lambda problem: problem


@contextmanager
def recipe_in_python(
    recipe: Mapping[str, Any] | Sequence[Mapping[str, Any]],
) -> Iterator[RecipeFile]:
    """Yield a temporary file with a recipe that is given as mappings.

    The place of a problem is ``recipe["models"][0]``; in a list, ``recipe[1]["models"][0]``.

    Raises:
        InputError: a value cannot be written as YAML, or the body of the context raised it.
    """
    documents = [recipe] if isinstance(recipe, Mapping) else recipe
    texts = [as_yaml(document) for document in documents]
    starting_lines = list(accumulate((text.count("\n") + 1 for text in texts[:-1]), initial=1))

    def placed(problem: Problem) -> Problem:
        number = bisect_right(starting_lines, problem.line or 1) - 1
        document_place = "recipe" if isinstance(recipe, Mapping) else f"recipe[{number}]"
        place_in_recipe = document_place + re.sub(
            r"\.?([^.\[\]]+)(?![^\[]*\])", r'["\1"]', problem.path
        )
        return replace(problem, where=place_in_recipe, path="", line=None)

    with _written(SEPARATOR.join(texts), placed) as file:
        yield file


@contextmanager
def recipe_of_command(recipe: Mapping[str, Any], model: str) -> Iterator[RecipeFile]:
    """Yield a temporary file with a recipe that a command made.

    Args:
        recipe: the content of the only document, as mappings, lists and plain values.
        model: the place that problems of the recipe name.

    Raises:
        InputError: the body of the context raised it.
    """

    def placed(problem: Problem) -> Problem:
        return replace(problem, where=model, path="", line=None)

    with _written(as_yaml(recipe), placed) as file:
        yield file


@contextmanager
def recipe_of_text(text: str, name: str) -> Iterator[RecipeFile]:
    """Yield a temporary file with a recipe's text.

    Args:
        text: the text of the recipe, which need not be valid YAML.
        name: the place that problems of the recipe name, with the line in the text.

    Raises:
        InputError: the body of the context raised it.
    """
    with _written(text, lambda problem: replace(problem, where=name)) as file:
        yield file


@contextmanager
def _written(text: str, placed: Callable[[Problem], Problem]) -> Iterator[RecipeFile]:
    with TemporaryFolder() as folder:
        path = folder / "recipe.yaml"
        path.write_text(text, encoding="utf-8")

        # Advice to start over names the temporary file, which does not exist after the context.
        command = re.compile(f"`[^`]*{re.escape(str(path))}[^`]*`")

        def of_the_file(problem: Problem) -> Problem:
            problem = replace(problem, fix=command.sub("the same with --restart", problem.fix))
            return placed(problem) if problem.where == str(path) else problem

        try:
            yield RecipeFile(path, of_the_file)
        except InputError as error:
            error.problems = [of_the_file(problem) for problem in error.problems]
            raise
