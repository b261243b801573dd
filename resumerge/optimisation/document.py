"""The document of ``search --json``: what was tried, and what is best."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from resumerge.optimisation.models import BEST_RECIPE, TrialModels
from resumerge.optimisation.space import Space
from resumerge.optimisation.study import Settings, Study

if TYPE_CHECKING:
    import optuna

CHOOSING = "choosing values"
METRICS, ERROR, SECONDS = "metrics", "error", "seconds"
"""The attributes of a trial in the study. Metrics that are not finite are left out."""

_STATES = {"COMPLETE": "complete", "FAIL": "failed"}


def document_of(
    out: Path, settings: Settings, study: Study, space: Space, models: TrialModels
) -> dict[str, Any]:
    """Return the document of a search.

    Args:
        out: its output.
        settings: what it began with.
        study: its study.
        space: what it searches.
        models: its models.
    """
    ranked = study.ranked()
    several = len(settings.directions) > 1
    rows = [
        row_of(trial, settings, models, kept=models.is_there(trial.number))
        for trial in study.trials
    ]
    return {
        "output": str(out),
        "sampler": settings.sampler,
        "seed": settings.seed,
        "objectives": objectives(settings, rows),
        "parameters": list(space.suggestions),
        "trials": rows,
        "best": [trial.number for trial in (ranked if several else ranked[:1])],
        "best_recipe": str(out / BEST_RECIPE) if ranked and not several else None,
        "importances": study.importances(),
    }


def objectives(settings: Settings, rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the name and the direction of each objective."""
    names = settings.metrics or next((tuple(row[METRICS]) for row in rows if row["values"]), ("",))
    return [{"metric": name, "direction": way} for name, way in zip(names, settings.directions)]


def row_of(
    trial: optuna.trial.FrozenTrial, settings: Settings, models: TrialModels, *, kept: bool
) -> dict[str, Any]:
    """Return one trial of the document.

    Args:
        trial: of the study.
        settings: of the search.
        models: of the search.
        kept: whether its model is there.
    """
    attributes = trial.user_attrs
    return {
        "number": trial.number,
        "state": _STATES.get(trial.state.name, "interrupted"),
        "values": trial.values,
        "parameters": dict(trial.params),
        METRICS: attributes.get(METRICS, {}),
        ERROR: attributes.get(ERROR),
        SECONDS: attributes.get(SECONDS),
        "recipe": str(models.recipe(trial.number)),
        "model": str(models.model(trial.number)) if kept else None,
    }
