"""Temporary files of recipes that are no file of the user: given in Python, or by a command."""

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
        path: the file.
        placed: a function that returns a problem of the file with the place that its user knows.
    """

    path: Path
    placed: Callable[[Problem], Problem] = lambda problem: problem


@contextmanager
def recipe_in_python(
    recipe: Mapping[str, Any] | Sequence[Mapping[str, Any]],
) -> Iterator[RecipeFile]:
    """Yield a file with a recipe of mappings; it exists only inside the context.

    A problem is placed at ``recipe["models"][0]``; in a list, at ``recipe[1]["models"][0]``.

    Raises:
        InputError: a value has no form in YAML; or the work with the file raised it.
    """
    documents = [recipe] if isinstance(recipe, Mapping) else recipe
    texts = [as_yaml(document) for document in documents]
    starts = list(accumulate((text.count("\n") + 1 for text in texts[:-1]), initial=1))

    def placed(problem: Problem) -> Problem:
        number = bisect_right(starts, problem.line or 1) - 1
        place = "recipe" if isinstance(recipe, Mapping) else f"recipe[{number}]"
        where = place + re.sub(r"\.?([^.\[\]]+)(?![^\[]*\])", r'["\1"]', problem.path)
        return replace(problem, where=where, path="", line=None)

    with _written(SEPARATOR.join(texts), placed) as file:
        yield file


@contextmanager
def recipe_of_command(recipe: Mapping[str, Any], model: str) -> Iterator[RecipeFile]:
    """Yield a file with a recipe that a command made; problems in it name `model` as their place.

    Raises:
        InputError: the work with the file raised it.
    """

    def placed(problem: Problem) -> Problem:
        return replace(problem, where=model, path="", line=None)

    with _written(as_yaml(recipe), placed) as file:
        yield file


@contextmanager
def recipe_of_text(text: str, name: str) -> Iterator[RecipeFile]:
    """Yield a file with a recipe's text; it exists only inside the context.

    Args:
        text: the YAML text.
        name: the place that problems in it name; they keep their lines.

    Raises:
        InputError: the work with the file raised it.
    """
    with _written(text, lambda problem: replace(problem, where=name)) as file:
        yield file


@contextmanager
def _written(text: str, placed: Callable[[Problem], Problem]) -> Iterator[RecipeFile]:
    with TemporaryFolder() as folder:
        path = folder / "recipe.yaml"
        path.write_text(text, encoding="utf-8")

        # Advice to start over names the file, which will be gone.
        command = re.compile(f"`[^`]*{re.escape(str(path))}[^`]*`")

        def of_the_file(problem: Problem) -> Problem:
            problem = replace(problem, fix=command.sub("the same with --restart", problem.fix))
            return placed(problem) if problem.where == str(path) else problem

        try:
            yield RecipeFile(path, of_the_file)
        except InputError as error:
            error.problems = [of_the_file(problem) for problem in error.problems]
            raise
