"""A run goes on with the recipe and the sources that it began with, or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resumerge.engine.checks.drift import advice, describe, headline, parts_now
from resumerge.engine.execute.reporter import Reporter
from resumerge.errors import InputError, Problem, refuse
from resumerge.ledger import Ledger
from resumerge.ledger.run_store import RECIPE_FILE, RunStore
from resumerge.planning import Plan
from resumerge.printable import shell_line
from resumerge.recipe import Recipe, load_recipe, parse_recipe


class DriftGuard:
    """Compares what a run began with and what there is now.

    Args:
        row: of the run, in its ledger.
    """

    def __init__(self, row: Mapping[str, Any], home: RunStore, reporter: Reporter) -> None:
        self._row, self._home, self._reporter = row, home, reporter

    def recipe(self, given: Recipe | None, *, restart: bool) -> Recipe:
        """The run's own recipe; refused where what is given, or its file now, says otherwise.

        Its own text, even where another says the same: the model card shows it.

        Args:
            given: by the user; by default what the file has now that it was read from.
            restart: what is given is what counts.
        """
        recipe = parse_recipe(self._row["config_text"], self._row["config_path"])
        if given is None:
            given = self._edited()
        if given is None:
            return recipe
        if restart:
            return given
        before, after = {"recipe": recipe.normalized()}, {"recipe": given.normalized()}
        self._refuse(before, after, given.file)
        return recipe

    def _edited(self) -> Recipe | None:
        """The recipe's file as it is now; None where it is as it was, gone, or not to be read."""
        file = Path(self._row["config_path"])
        try:
            if file.read_bytes() == self._row["config_text"].encode():
                return None
        except OSError as error:
            self._reporter.note(f"{file}: {error.strerror}; going on with the run's own recipe")
            return None
        try:
            return load_recipe(file)
        except InputError as error:
            rest = [self._row["output"], *self._state_words()]
            kept = ["resumerge", "run", self._kept_recipe(), *rest]
            own = Problem(
                "The run has kept the recipe that it began with",
                where=self._kept_recipe(),
                fix=f"go on with that one: `{shell_line(kept)}`",
            )
            raise InputError([*error.problems, own]) from error

    def _kept_recipe(self) -> str:
        return str(self._home.folder / self._row["id"] / RECIPE_FILE)

    def _state_words(self) -> list[str]:
        return ["--state-dir", str(self._home.folder)]

    def check(self, plan: Plan, ledger: Ledger) -> None:
        """Refuse to go on where a source, an option or the program is another one.

        Raises:
            InputError: with what changed, and what to do.
        """
        before = json.loads(self._row["fingerprint_parts"])
        after, touched = parts_now(before, plan, ledger.sources())
        self._refuse(before, after, self._row["config_path"])
        if touched:
            self._reporter.note(f"{len(touched)} files of models were touched, and are the same")
            ledger.event("source_touched", files=touched[:5])

    def _refuse(self, before: Mapping[str, Any], after: Mapping[str, Any], config: str) -> None:
        kinds, lines = describe(before, after)
        if lines:
            rest = [self._row["output"], *self._state_words()]
            kept = ["resumerge", "run", self._kept_recipe(), *rest]
            over = ["resumerge", "run", config, *rest, "--restart"]
            raise refuse(
                headline(kinds),
                where=self._row["output"],
                found="; ".join(lines[:6]),
                fix=advice(kinds, shell_line(kept), shell_line(over)),
            )
