"""The space of a search: a recipe with ranges in place of some values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from resumerge.errors import InputError, Problem, refuse
from resumerge.foreign_files import UnfitFile, read_foreign
from resumerge.optimisation.ranges import SUGGEST, SuggestedRange, read_suggestion
from resumerge.planning.check_recipe import check_recipe
from resumerge.recipe import parse_recipe
from resumerge.recipe.as_yaml import as_yaml
from resumerge.recipe.average import AVERAGE
from resumerge.recipe.invalid import InvalidValue, Location
from resumerge.recipe.sweep import PARAMETERS, SWEEP, VARIANTS
from resumerge.recipe.yaml_lines import MOST_CHARS, Document, descend, load_yaml, nearest_line

SEPARATOR = "---\n"

Values = Mapping[str, Any]
"""The suggestion for each parameter of a space, by its name."""


@dataclass(frozen=True)
class RangePlace:
    """A place of the recipe, and the name of the parameter that has its value there."""

    document: int
    at: Location
    name: str


INSIDE = 0.618
"""The share of a range at which a value inside is checked. At one half, many weights are 0."""


@dataclass(frozen=True)
class Space:
    """A recipe with ranges in place of some values.

    Args:
        file: its name in messages.
        documents: the stages and the last document, with mappings in place of some values.
        suggestions: the ranges by the names of their parameters, in the order of the file.
        places: the places of the parameters' values, in the order of the file; a parameter may have
            several.
    """

    file: str
    documents: tuple[Document, ...]
    suggestions: Mapping[str, SuggestedRange]
    places: tuple[RangePlace, ...]

    @property
    def text(self) -> str:
        """The space as YAML, without comments: spaces with the same text are equal."""
        return SEPARATOR.join(as_yaml(document.data) for document in self.documents)

    def recipe(self, values: Values) -> str:
        """Return the text of the recipe with a value in each place."""
        filled_documents = [deepcopy(document.data) for document in self.documents]
        for place in self.places:
            container: Any = filled_documents[place.document]
            for step in place.at[:-1]:
                container = container[step]
            container[place.at[-1]] = self.suggestions[place.name].value(values[place.name])
        return SEPARATOR.join(map(as_yaml, filled_documents))

    def sweep(self, named: Mapping[str, Values]) -> str:
        """Return the text of one recipe whose variants are the models of several suggestions.

        Args:
            named: the suggestions, by the names of the variants.

        Raises:
            InputError: a sweep cannot make these models. A value that a sweep cannot name is
                reported later, by the reader of the recipe.
        """
        recipes = {name: self.recipe(values) for name, values in named.items()}
        if any(place.document < len(self.documents) - 1 for place in self.places):
            raise refuse("A sweep has no values for stages", where=self.file)
        if len({parse_recipe(text, self.file).models for text in recipes.values()}) > 1:
            raise refuse("The models of a batch are merged of different models", where=self.file)
        first_recipe, *_ = recipes.values()
        *stages, result = (document.data for document in load_yaml(first_recipe, self.file))
        variants = {
            name: {
                descend("", location): self._value(text, location)
                for location in self._whole_places()
            }
            for name, text in recipes.items()
        }
        return SEPARATOR.join(map(as_yaml, [*stages, {**result, SWEEP: {VARIANTS: variants}}]))

    def _whole_places(self) -> list[Location]:
        """Return the places that a sweep can name: those of values and of whole gradients."""
        locations = []
        for place in self.places:
            location = place.at
            if PARAMETERS in location:
                location = location[: location.index(PARAMETERS) + 2]
            while isinstance(location[-1], int):
                location = location[:-1]
            locations.append(location)
        return list(dict.fromkeys(locations))

    def _value(self, recipe: str, at: Location) -> Any:
        """Return the value at a place of a recipe's last document."""
        value: Any = load_yaml(recipe, self.file)[-1].data
        for step in at:
            value = value[step]
        return value

    def grid(self) -> list[dict[str, Any]]:
        """Return every combination of suggestions, the last parameter varying fastest.

        Raises:
            InputError: a parameter has infinitely many values.
        """
        axis_values = {name: suggestion.grid() for name, suggestion in self.suggestions.items()}
        problems = [
            self._problem(
                place,
                f"A grid has no end: {place.name} may have any value between two",
                "a step, whole numbers or choices",
                "no step",
                "Write 'step: 0.1' beside low and high, or take another sampler",
            )
            for place in self.places
            if axis_values[place.name] is None
        ]
        if problems:
            raise InputError(problems)
        return [
            dict(zip(axis_values, values))
            for values in product(*filter(None, axis_values.values()))
        ]

    def between(self, share: float) -> dict[str, Any]:
        """Return suggestions that are a share, 0 to 1, of the way through each range."""
        return {name: suggestion.between(share) for name, suggestion in self.suggestions.items()}

    def check(self) -> None:
        """Check a recipe for each end of each range, without opening models.

        Raises:
            InputError: with the problems of all these recipes, at their lines in the space.
        """
        inner_values = self.between(INSIDE)
        values_at_ends = [
            {**inner_values, name: end}
            for name, suggestion in self.suggestions.items()
            for end in suggestion.ends()
        ]
        problems: list[Problem] = []
        for values in values_at_ends:
            try:
                recipe_problems = check_recipe(parse_recipe(self.recipe(values), self.file))
            except InputError as error:
                recipe_problems = error.problems
            problems += [
                placed_problem
                for recipe_problem in recipe_problems
                if (placed_problem := self.placed(recipe_problem)) not in problems
            ]
        if problems:
            raise InputError(sorted(problems, key=lambda problem: problem.line or 0))

    def placed(self, problem: Problem) -> Problem:
        """Return a problem of one of the space's recipes, with the line in the space."""
        line = None
        if len(self.documents) == 1:
            line = nearest_line(self.documents[0].lines, problem.path)
        return replace(problem, where=self.file, line=line)

    def _problem(
        self, place: RangePlace, what: str, expected: str, found: str, fix: str
    ) -> Problem:
        path = descend("", place.at)
        line = nearest_line(self.documents[place.document].lines, path)
        return Problem(what, self.file, path, line, expected, found, fix)


def read_space(path: Path) -> Space:
    """Read a space, and check it without opening models.

    Raises:
        InputError: the file cannot be read, is not a recipe, or has no range; with all problems of
            ranges.
    """
    try:
        text = read_foreign(path, 4 * MOST_CHARS).decode("utf-8-sig")
    except (OSError, UnfitFile, UnicodeDecodeError) as error:
        problem = Problem(
            "The space of the search cannot be read",
            str(path),
            expected="a YAML file in UTF-8",
            found=getattr(error, "strerror", None) or str(error),
            fix="Check the path",
        )
        raise InputError([problem]) from None
    return parse_space(text, str(path))


def parse_space(text: str, file: str) -> Space:
    """Read the text of a space, as `read_space` reads a file."""
    documents = tuple(load_yaml(text, file))
    problems = [problem for document in documents for problem in document.problems]
    suggestions: dict[str, SuggestedRange] = {}
    places: list[RangePlace] = []
    for number, document in enumerate(documents):
        for key in (SWEEP, AVERAGE):
            if key in document.data:
                makes_several = InvalidValue(
                    f"A trial is one model, and '{key}:' makes several",
                    expected="a recipe of one model",
                    found=f"the key '{key}'",
                    fix=f"Delete '{key}:', and suggest its values",
                    at=(key,),
                )
                problems.append(document.problem(makes_several, file))
        for location, range_mapping in ranges_in(document.data, ()):
            try:
                suggestion = read_suggestion(range_mapping, location)
                prefix = f"documents[{number}]." if len(documents) > 1 else ""
                name = suggestion.name or prefix + descend("", location)
                if suggestions.setdefault(name, suggestion) != suggestion:
                    raise _two_ranges(name, location)
                places.append(RangePlace(number, location, name))
            except InvalidValue as error:
                problems.append(document.problem(error, file))
    if not places and not problems:
        no_range = InvalidValue(
            "The recipe suggests nothing to search for",
            expected="a value like {suggest: float, low: 0, high: 1}",
            found="plain values only",
            fix="Write such a range in place of a value: 'weight: {suggest: float, low: 0, "
            "high: 1}'; or merge the recipe by `resumerge run`",
        )
        problems.append(documents[0].problem(no_range, file))
    if problems:
        raise InputError(sorted(problems, key=lambda problem: problem.line or 0))
    space = Space(file, documents, suggestions, tuple(places))
    space.check()
    return space


def ranges_in(value: Any, at: Location) -> Iterator[tuple[Location, Mapping[Any, Any]]]:
    """Yield the mappings with the key ``suggest``, and their places, in the order of the file."""
    if isinstance(value, dict):
        if SUGGEST in value:
            yield at, value
            return
        for key, inner_value in value.items():
            yield from ranges_in(inner_value, (*at, key))
    elif isinstance(value, list):
        for index, inner_value in enumerate(value):
            yield from ranges_in(inner_value, (*at, index))


def _two_ranges(name: str, at: Location) -> InvalidValue:
    return InvalidValue(
        f"Two suggestions are called {name!r}, and their ranges differ",
        expected="the same range in all places of one name, which share the value",
        found="another range here",
        fix="Give one of them another name, or write the same range",
        at=at,
    )
