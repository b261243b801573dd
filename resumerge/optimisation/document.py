"""The document of ``search --json``: all trials, and the best ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from resumerge.engine.resources.signals import StopRequest
from resumerge.optimisation.models import BEST_RECIPE, TrialModels
from resumerge.optimisation.space import Space, parse_space
from resumerge.optimisation.state import SETTINGS, attributes_of, describe_search
from resumerge.optimisation.study import Settings, Study, check_sampler, open_study
from resumerge.options import Options
from resumerge.storage import Storage

if TYPE_CHECKING:
    import optuna

CHOOSING = "choosing values"
METRICS, ERROR, SECONDS = "metrics", "error", "seconds"
"""The attributes of a trial in the study. Metrics that are not finite are left out."""

INTERRUPTED, RUNNING = "interrupted", "running"
_STATES = {"COMPLETE": "complete", "FAIL": "failed"}


def document_of(
    out: Path,
    settings: Settings,
    study: Study,
    space: Space,
    models: TrialModels,
    unfinished: str = INTERRUPTED,
) -> dict[str, Any]:
    """Return the document of a search.

    Args:
        out: the output's folder, absolute.
        settings: the settings that the search began with.
        study: the open study with all trials of the search.
        space: the space that the study began with, for the names of its parameters.
        models: knows the folders of the trials, and which models are kept.
        unfinished: the state of trials that are not finished.
    """
    ranked_trials = study.ranked()
    has_several = len(settings.directions) > 1
    rows = [
        row_of(trial, settings, models, unfinished, kept=models.is_kept(trial.number))
        for trial in study.trials
    ]
    return {
        "output": str(out),
        "sampler": settings.sampler,
        "seed": settings.seed,
        "batch": settings.batch,
        "objectives": objectives(settings, rows),
        "parameters": list(space.suggestions),
        "trials": rows,
        "best": [trial.number for trial in (ranked_trials if has_several else ranked_trials[:1])],
        "best_recipe": str(out / BEST_RECIPE) if ranked_trials and not has_several else None,
        "importances": study.importances(),
    }


def objectives(settings: Settings, rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the name and the direction of each objective."""
    names = settings.metrics or next((tuple(row[METRICS]) for row in rows if row["values"]), ("",))
    return [{"metric": name, "direction": way} for name, way in zip(names, settings.directions)]


def row_of(
    trial: optuna.trial.FrozenTrial,
    settings: Settings,
    models: TrialModels,
    unfinished: str = INTERRUPTED,
    *,
    kept: bool,
) -> dict[str, Any]:
    """Return one trial of the document.

    Args:
        trial: the trial, as the study stores it.
        settings: the settings that the search began with.
        models: knows the paths of the trial's recipe and model.
        unfinished: the state of a trial that is not finished.
        kept: whether the trial's model still exists.
    """
    attributes = trial.user_attrs
    return {
        "number": trial.number,
        "state": _STATES.get(trial.state.name, unfinished),
        "values": trial.values,
        "parameters": dict(trial.params),
        METRICS: attributes.get(METRICS, {}),
        ERROR: attributes.get(ERROR),
        SECONDS: attributes.get(SECONDS),
        "recipe": str(models.recipe(trial.number)),
        "model": str(models.model(trial.number)) if kept else None,
    }


def search_json(folder: Path) -> dict[str, Any]:
    """Return the keys of `describe_search` and of `document_of` for one search.

    Args:
        folder: the folder of the search in the state folder.

    Raises:
        InputError: Optuna is not installed.
        Resumable: its study cannot be read.
    """
    entry = describe_search(folder)
    settings = Settings.of(attributes_of(folder)[SETTINGS])
    space = parse_space(settings.space, entry["space"])
    check_sampler(settings.sampler, len(settings.directions), space)
    output, options = Path(entry["output"]), Options(state_dir=folder.parents[1])
    models = TrialModels(output, options, Storage(), StopRequest())
    with open_study(folder, settings, space) as study:
        unfinished_state = RUNNING if entry["state"] == RUNNING else INTERRUPTED
        return entry | document_of(output, settings, study, space, models, unfinished_state)
