"""The commands that messages advise users to type, such as those to resume a run."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from resumerge.config_json import class_names
from resumerge.ledger import LEDGER_FILE, read_run
from resumerge.ledger.run_store import RunStore
from resumerge.mirror.stores.registry import normalise
from resumerge.options import Options, declared
from resumerge.printable import shell_line

TO_RESUME = "To resume:"
"""The line before the last line, which is the command that resumes."""


def resume_command(run: str, state_dir: Path | None, options: Options | None = None) -> str:
    """Return ``resumerge resume RUN --state-dir DIR``, for any working folder and any shell.

    Args:
        run: the run's id, output or mirror.
        state_dir: the state folder; None for the default.
        options: the options of the command that stopped. The result repeats those that the run's
            ledger does not keep.
    """
    values_to_repeat = {} if options is None else _options_to_repeat(run, options)
    words = [
        word
        for option in declared()
        if option.name in values_to_repeat
        for word in option.words(values_to_repeat[option.name])
    ]
    return shell_line(["resumerge", "resume", run, *_in_state(state_dir), *words])


def resume_call(run: str, state_dir: Path | None, options: Options) -> str:
    """Return the Python call that corresponds to `resume_command`."""
    repeated = {"state_dir": str(RunStore(state_dir).folder), **_options_to_repeat(run, options)}
    arguments = ", ".join(f"{name}={value!r}" for name, value in repeated.items())
    return f"resumerge.resume({run!r}, {arguments})"


def _options_to_repeat(run: str, options: Options) -> dict[str, Any]:
    """Return the options of a stopped command that its run's ledger does not keep, by name."""
    try:
        kept_options = json.loads(_recorded(run, options, "options"))
    except (sqlite3.Error, ValueError):
        kept_options = None
    mirror = options.mirror and normalise(options.mirror)
    is_recorded = has_mirror(run, options)
    unrecorded_options = replace(options, mirror=None if is_recorded else mirror)
    return unrecorded_options.to_repeat(kept_options if isinstance(kept_options, dict) else {})


def watch_command(run: str, state_dir: Path | None) -> str:
    """Return ``resumerge status RUN --state-dir DIR --watch``, for any working folder."""
    return shell_line(["resumerge", "status", run, *_in_state(state_dir), "--watch"])


def next_command(state_dir: Path, *words: str) -> str:
    """Return a command to type next in this folder. The default state folder is not named in it."""
    state_words = [] if state_dir == RunStore().folder else _in_state(state_dir)
    return shell_line(["resumerge", *words, *state_words])


def loading_call(model: Path) -> str | None:
    """Return the Python call that loads a finished model; None for a model without config.json."""
    if not (model / "config.json").exists():
        return None
    if (model / "modules.json").exists():
        return f"SentenceTransformer({str(model)!r})"
    classes = class_names(json.loads((model / "config.json").read_bytes()))
    is_causal = any(name.endswith("ForCausalLM") for name in classes[:1])
    kind = "AutoModelForCausalLM" if is_causal else "AutoModel"
    return f"{kind}.from_pretrained({str(model)!r})"


GONE = (
    "The ledger of this run was deleted while it ran, so its output cannot be resumed. "
    "Delete or move the output, then start over:"
)


def is_gone(run: str, state_dir: Path | None) -> bool:
    """Return whether the folder of an earlier run no longer exists."""
    return not (RunStore(state_dir).folder / run).is_dir()


def start_over_command() -> str:
    """Return the command that merges again from the start, after the run's ledger was deleted."""
    is_run = sys.argv[1:2] == ["run"]
    return repeat_command() if is_run else shell_line(["resumerge", "run", "RECIPE", "OUT"])


def has_mirror(run: str, options: Options) -> bool:
    """Return whether the run's ledger records the mirror that these options name."""
    try:
        recorded_address = _recorded(run, options, "mirror")
    except sqlite3.Error:
        return False
    return options.mirror is not None and recorded_address == normalise(options.mirror)


def _recorded(run: str, options: Options, column: str) -> Any:
    return read_run(RunStore(options.state_dir).folder / run / LEDGER_FILE, column)


def verify_command(run: str, state_dir: Path | None) -> str:
    """Return ``resumerge verify RUN --state-dir DIR``, for any working folder."""
    return shell_line(["resumerge", "verify", run, *_in_state(state_dir)])


def mirror_command(url: str) -> str:
    """Return ``resumerge resume DEST``, for any machine."""
    return shell_line(["resumerge", "resume", url])


def remake_command(url: str) -> str:
    """Return the command that makes a mirror's model again, for a machine without its ledger."""
    return shell_line(["resumerge", "run", "RECIPE", "OUT", "--mirror", url, "--restart"])


def command_of(run: Mapping[str, Any]) -> str:
    """Return the command that resumes one of the runs of ``resumerge status --json``."""
    mirror = run.get("mirror")
    if mirror and not mirror["here"]:
        return mirror_command(mirror["url"])
    return resume_command(run["id"], Path(run["ledger"]).parents[1])


def resume_search_command(search: Mapping[str, Any]) -> str:
    """Return the command that resumes one of the searches of ``resumerge status --json``."""
    return resume_command(search["output"], Path(search["study"]).parents[2])


def repair_command(target: str, state_dir: Path | None) -> str:
    """Return ``resumerge cache repair TARGET`` with the state folder, where damage is recorded."""
    return shell_line(["resumerge", "cache", "repair", target, *_in_state(state_dir)])


def repeat_command() -> str:
    """Return the command that this process was started with, for any working folder.

    ``--chdir`` is added, since paths in the command and in the recipe may be relative.
    """
    words = sys.argv[1:]
    state = os.environ.get("RESUMERGE_STATE_DIR")
    if state and not any(word.split("=")[0] == "--state-dir" for word in words):
        words += ["--state-dir", state]
    return shell_line(["resumerge", *words, "--chdir", str(Path.cwd())])


def _in_state(state_dir: Path | None) -> list[str]:
    """Return the words that name the state folder by its absolute path."""
    return ["--state-dir", str(RunStore(state_dir).folder)]
