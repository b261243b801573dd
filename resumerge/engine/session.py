"""`run` and `resume`: find or begin a run, check that it may go on, and work on it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from resumerge.engine.attempt import Attempt
from resumerge.engine.beginning import write_down
from resumerge.engine.damage import find_damage
from resumerge.engine.device import resolve_device
from resumerge.engine.discard import discard
from resumerge.engine.disk_errors import resumable_disk_errors
from resumerge.engine.files import ShardFiles
from resumerge.engine.lock import folder_lock, is_abandoned, run_lock
from resumerge.engine.mirroring import mirroring
from resumerge.engine.opening import NotOpened, in_order, open_sources, with_place
from resumerge.engine.options import SEED, SHARD_SIZE, Options
from resumerge.engine.ownership import written_files
from resumerge.engine.preflight import (
    OUTPUT,
    STATE,
    check_disk,
    check_output,
    check_outside,
    check_path,
    check_sources,
    check_writable,
    fit_threads,
    memory_budget,
    room_needed,
    too_many_threads,
    wait_for_budget,
)
from resumerge.engine.recovery import open_ledger
from resumerge.engine.report import Reporter, Result
from resumerge.engine.stop import Stop
from resumerge.engine.unchanged import Unchanged
from resumerge.errors import InputError, Problem, Resumable
from resumerge.host.speed import probe
from resumerge.ledger import LEDGER_FILE, Ledger
from resumerge.ledger.home import Home
from resumerge.planning import Plan, check_recipe, make_plan
from resumerge.planning.estimate import estimate, largest_file
from resumerge.recipe import Recipe, load_recipe
from resumerge.sources import Records
from resumerge.sources.companions import outward_links
from resumerge.sources.tokenizers import read_tokenizers
from resumerge.storage import Storage


class Session:
    """Carries out one command on one run.

    A session knows the run's id as soon as there is one, so that whoever called can say how to
    resume.
    """

    def __init__(
        self,
        options: Options,
        reporter: Reporter | None = None,
        storage: Storage | None = None,
        stop: Stop | None = None,
    ) -> None:
        self._options = options
        self._reporter = reporter or Reporter()
        self._storage = storage or Storage()
        self._stop = stop or Stop()
        self._home = Home(options.state_dir)
        self._records = Records(self._home.folder)
        self.run_id: str | None = None

    def run(self, config: Path, out: Path) -> Result:
        """Merge; go on where `out` has an unfinished run of the same recipe.

        Raises:
            InputError: recipe, sources or output are unfit; nothing was written.
            Interrupted, Resumable: stopped short.
        """
        with self._stop.listening(), resumable_disk_errors():
            out = out.absolute()
            if problems := self._unusable(config, out):
                raise InputError(problems)
            recipe = load_recipe(config)
            earlier = self._home.of_output(out)
            if earlier:
                return self._go_on(earlier[-1], recipe, config)
            return self._begin(recipe, config, out)

    @property
    def _frees(self) -> bool:
        """Whether shards go away once the mirror has them."""
        return bool(self._options.mirror and self._options.mirror_then_delete)

    def _unusable(self, config: Path, out: Path) -> list[Problem]:
        return [
            *check_path(self._home.folder, STATE),
            *check_path(config.absolute().parent, "recipe's folder"),
            *check_path(out, OUTPUT),
        ]

    def resume(self, wanted: str | None = None) -> Result:
        """Go on with a run named by its id or output folder; by default the newest.

        Raises:
            InputError: no such run, or recipe or sources changed.
            Interrupted, Resumable: stopped short.
        """
        with self._stop.listening(), resumable_disk_errors():
            return self._go_on(self._home.find(wanted))

    def plan(self, recipe: Recipe) -> Plan:
        """Plan a new run of a recipe; nothing is written.

        Raises:
            InputError: with every problem that was found.
        """
        return self._plan(recipe, {}, {})

    def _begin(self, recipe: Recipe, config: Path, out: Path) -> Result:
        plan = self.plan(recipe)
        problems = [
            *check_writable(self._home.folder, STATE),
            *check_output(out),
            *check_outside(out, (source.folder for source in plan.sources)),
            *check_disk(out, room_needed(plan, then_delete=self._frees)),
            *check_sources(plan, out, offline=self._options.offline, evict=self._options.evict),
        ]
        if problems:
            raise InputError(problems)
        threads, budget = self._resources(plan)
        self._storage.make_folder(out)
        with folder_lock(out):
            if problems := check_output(out):  # a run that began, and ended, since the first look
                raise InputError(problems)
            unborn = self._new_folder(out)
            with run_lock(unborn, unborn.stem):
                folder = write_down(
                    plan, config, out, self._options, unborn, self._home, self._storage
                )
                self.run_id = folder.name
                ledger = Ledger(folder / LEDGER_FILE)
                try:
                    return self._work(plan, ledger, folder, out, threads, budget, resumed=False)
                finally:
                    ledger.close()

    def _go_on(
        self, folder: Path, recipe: Recipe | None = None, config: Path | None = None
    ) -> Result:
        self.run_id = folder.name
        with run_lock(folder, folder.name):
            ledger, restored = open_ledger(folder, self._storage)
            try:
                row = ledger.run() or {}
                out = Path(row["output"])
                began = json.loads(row["options"])
                self._options = replace(
                    self._options,
                    memory=self._options.memory or began.get("memory"),
                    threads=self._options.threads or began.get("threads"),
                    evict=self._options.evict or began.get("evict", False),
                    mirror=self._options.mirror or row["mirror"],
                    **_mirror_options(self._options, began),
                )
                unchanged = Unchanged(row, self._home, self._reporter)
                given = unchanged.recipe(recipe, restart=self._options.restart)
                if self._options.restart:
                    plan = self.plan(given)
                    self._resources(plan)
                    if problems := check_output(out, written_files(ledger, out)):
                        raise InputError(problems)
                    self._storage.make_folder(out)
                    with folder_lock(out):
                        discard(ledger, folder, out, self._storage)
                    self.run_id = None
                    return self._begin(given, config or Path(row["config_path"]), out)
                pins = {
                    source["model"]: _pin(source, looks_anew=recipe is not None)
                    for source in ledger.rows("SELECT * FROM sources")
                }
                try:
                    plan = self._plan(given, pins, began)
                except NotOpened as error:  # which the run did open when it began
                    raise Resumable("source_unavailable", str(error)) from error
                unchanged.check(plan, ledger)
                if (
                    row["state"] == "done"
                    and _is_whole(plan, ledger, ShardFiles(plan, out, self._storage))
                    and not find_damage(plan, ledger, self._records)
                ):
                    result = Result(folder.name, out, ledger.path, already_done=True)
                    self._reporter.done(result)
                    return result
                away = ledger.mirrored()
                lacking = [
                    shard.nbytes
                    for shard in plan.shards
                    if not _has_file(out, shard.name) and shard.name not in away
                ]
                missing = 0 if self._frees else sum(lacking)
                if problems := check_disk(out, missing):
                    raise Resumable("disk_full", str(problems[0]))
                threads, budget = self._resources(plan, patience=self._options.memory_wait)
                self._storage.make_folder(out)
                with folder_lock(out):
                    return self._work(
                        plan, ledger, folder, out, threads, budget, resumed=True, distrust=restored
                    )
            finally:
                ledger.close()

    def _plan(
        self, recipe: Recipe, pins: Mapping[str, dict[str, Any]], began: Mapping[str, Any]
    ) -> Plan:
        """Open the sources, where a run has pinned them if it has, and plan.

        What needs no model comes first, then what needs no network.

        Args:
            pins: `revision` and `folder` of each model.
            began: the options that the run began with.
        """
        self._reporter.doing("opening the models and planning")
        problems = check_recipe(recipe)
        sources = open_sources(recipe, pins, problems, self._records, self._options.offline)
        options = self._options
        seed = began.get("seed", SEED) if options.seed is None else options.seed
        size = options.shard_size or began.get("shard_size", SHARD_SIZE)
        try:
            tokenizers = read_tokenizers(recipe, sources, self._records, offline=options.offline)
            plan = make_plan(recipe, sources, tokenizers, seed=seed, shard_size=size)
        except InputError as error:
            found = (with_place(recipe, problem) for problem in error.problems)
            problems += [problem for problem in found if problem not in problems]
        if problems:
            raise in_order(problems)
        return replace(plan, notes=(*plan.notes, *_notes_on_links(plan)))

    def _resources(self, plan: Plan, patience: float | None = None) -> tuple[int, int]:
        """Threads and memory budget; refused here where they, or the device, cannot do.

        Args:
            patience: seconds that a run that has begun waits for memory.
        """
        self._reporter.doing("looking for memory")
        self._device = resolve_device(self._options.device)
        asked = self._options.memory
        if patience is None:
            budget = memory_budget(asked)
        else:
            budget = wait_for_budget(plan, asked, patience, self._reporter)
        for note in too_many_threads(self._options.threads):
            self._reporter.note(note)
        threads = fit_threads(plan, self._options.threads, budget, asked)
        self._estimate = estimate(plan, threads, probe(largest_file(plan)))
        return threads, budget

    def _new_folder(self, out: Path) -> Path:
        """A folder for a new run; those that died before they were whole are cleared away."""
        folder = self._home.new(out, self._storage)
        for other in self._home.unborn():
            if other != folder and is_abandoned(other):
                shutil.rmtree(other, ignore_errors=True)
        return folder

    def _work(
        self,
        plan: Plan,
        ledger: Ledger,
        folder: Path,
        out: Path,
        threads: int,
        budget: int,
        *,
        resumed: bool,
        distrust: bool = False,
    ) -> Result:
        self._reporter.planned(folder.name, plan, self._estimate, resumed=resumed)
        self._reporter.doing("looking at the mirror" if self._options.mirror else "beginning")
        with mirroring(ledger, out, self._options, self._storage, self._reporter) as mirror:
            attempt = Attempt(
                plan=plan,
                ledger=ledger,
                out=out,
                storage=self._storage,
                reporter=self._reporter,
                stop=self._stop,
                threads=threads,
                budget=budget,
                need=self._estimate.memory,
                memory_wait=self._options.memory_wait,
                device=self._device,
                records=self._records,
                offline=self._options.offline,
                evict=self._options.evict,
                distrust=distrust,
                mirror=mirror,
            )
            seconds = attempt.run()
        result = Result(folder.name, out, ledger.path, merging_seconds=seconds)
        self._reporter.done(result)
        return result


def _notes_on_links(plan: Plan) -> Iterator[str]:
    for part in plan.sources[plan.reference].parts.values():
        names = outward_links(part.folder) if part.kind == "local" else []
        if names:
            yield (
                f"not copied, since they are links that lead out of {part.folder}: "
                f"{', '.join(names)}; put the files themselves there if the result shall have them"
            )


def _pin(source: Mapping[str, Any], *, looks_anew: bool) -> dict[str, Any]:
    """Where a run's source is: its commit, or its folder, unless that is named anew."""
    if source["kind"] == "lora":
        return {}
    if source["kind"] == "hub":
        return {"revision": source["revision"]}
    return {} if looks_anew else {"folder": Path(source["folder"])}


def _mirror_options(options: Options, began: Mapping[str, Any]) -> dict[str, Any]:
    """What was chosen now about the mirror, or when the run began."""
    names = ("mirror_then_delete", "mirror_rate", "mirror_wait")
    chosen = {name: getattr(options, name) for name in names}
    return {name: began.get(name) if now is None else now for name, now in chosen.items()}


def _has_file(out: Path, shard: str) -> bool:
    return (out / shard).exists() or (out / f"{shard}.partial").exists()


def _is_whole(plan: Plan, ledger: Ledger, files: ShardFiles) -> bool:
    """Whether a finished run's files are all still there: shards with their size and header.

    The files beside them only have to exist: the user may have edited them since.
    """
    states = {row["state"] for row in ledger.rows("SELECT DISTINCT state FROM shards")}
    return (
        states == {"sealed"}
        and all(files.is_intact(shard, files.final(shard)) for shard in plan.shards)
        and all((files.folder / name).is_file() for name in ledger.written_names())
    )
