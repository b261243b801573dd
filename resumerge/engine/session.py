"""`run` and `resume`: find or begin a run, check that it may go on, and work on it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from resumerge.engine.agreement import Agreement, check_fits, temporary_folder
from resumerge.engine.attempt import Attempt
from resumerge.engine.beginning import write_down
from resumerge.engine.damage import find_damage
from resumerge.engine.device import resolve_device
from resumerge.engine.discard import discard
from resumerge.engine.disk_errors import resumable_disk_errors
from resumerge.engine.far_side import FarSide, check_apart, check_reachable, refuse_mirror
from resumerge.engine.files import ShardFiles
from resumerge.engine.finished import already_there, bring_rest, is_whole
from resumerge.engine.fit_mirror import check_has_mirror, check_state_apart
from resumerge.engine.giving_up import find_written, give_up, mirrored_files
from resumerge.engine.inherited import inherited
from resumerge.engine.lock import folder_lock, is_abandoned, run_lock
from resumerge.engine.mirroring import mirror_of
from resumerge.engine.moving import Arrival, brought, is_made_of
from resumerge.engine.new_run import check_new
from resumerge.engine.opening import NotOpened
from resumerge.engine.options import Options
from resumerge.engine.ownership import written_files
from resumerge.engine.pinned import pinned_plan, pins_of
from resumerge.engine.preflight import (
    OUTPUT,
    STATE,
    check_disk,
    check_output,
    check_outside,
    check_path,
    fit_threads,
    memory_budget,
    too_many_threads,
    wait_for_budget,
)
from resumerge.engine.recovery import open_ledger
from resumerge.engine.report import Reporter, Result
from resumerge.engine.stop import Stop
from resumerge.engine.unchanged import Unchanged
from resumerge.errors import InputError, Problem, Resumable, refuse
from resumerge.host.speed import probe
from resumerge.ledger import LEDGER_FILE, Ledger
from resumerge.ledger.home import Home
from resumerge.mirror.finished import Done
from resumerge.mirror.held import FINISHED, NOTHING, Held
from resumerge.mirror.opening import names_mirror, open_place
from resumerge.planning import Plan
from resumerge.planning.estimate import estimate, largest_file
from resumerge.recipe import Recipe, load_recipe
from resumerge.sources import Records
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
        self._far: FarSide | None = None
        self.run_id: str | None = None

    def run(self, config: Path, out: Path) -> Result:
        """Merge; go on where `out` has an unfinished run of the same recipe.

        Raises:
            InputError: recipe, sources or output are unfit; nothing was written.
            Interrupted, Resumable: stopped short.
        """
        with self._working():
            out = out.absolute()
            if problems := self._unusable(config, out):
                raise InputError(problems)
            recipe = load_recipe(config)
            earlier = self._home.of_output(out)
            if earlier:
                return self._go_on(earlier[-1], recipe, config)
            if self._options.mirror is not None:
                return self._from_mirror(self._reach(self._options.mirror), recipe, config, out)
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
        """Go on with a run named by its id, output folder or mirror; by default the newest.

        Raises:
            InputError: no such run, or recipe or sources changed.
            Interrupted, Resumable: stopped short.
        """
        with self._working():
            if wanted is not None and names_mirror(wanted):
                far = self._reach(wanted)
                asked = self._options.mirror
                if asked is not None and open_place(asked).url != far.url:
                    raise refuse(
                        "A run comes from one mirror, and keeps it",
                        where=far.url,
                        found=f"--mirror {asked}",
                        fix="leave one of them out; once it is here, it can be given another one",
                    )
                return self._from_mirror(far)
            return self._go_on(self._home.find(wanted))

    @contextmanager
    def _working(self) -> Iterator[None]:
        with self._stop.listening(), resumable_disk_errors():
            try:
                yield
            finally:
                if self._far is not None:
                    self._far.release()

    def _reach(self, url: str | None) -> FarSide:
        """The mirror; it is not asked for anything yet."""
        assert url is not None
        self._reporter.doing("looking at the mirror")
        far = FarSide(url, self._options, self._reporter, self._stop)
        check_state_apart(self._home.folder, far.url)
        if self._far is None or self._far.url != far.url:
            if self._far is not None:
                self._far.release()
            self._far = far
        return self._far

    def _from_mirror(
        self,
        far: FarSide,
        recipe: Recipe | None = None,
        config: Path | None = None,
        out: Path | None = None,
    ) -> Result:
        """Do what there is to do with what a mirror holds, which may be nothing.

        Args:
            recipe, config, out: of `run`.
        """
        if problems := check_reachable(far):
            raise InputError([*(check_apart(out, far) if out is not None else ()), *problems])
        arrival = Arrival(far, self._home, self._options, self._storage, self._reporter)
        found = arrival.find(recipe, out)
        if isinstance(found, Path):
            return self._go_on(found, recipe, config, out)
        if found is not None and not (self._options.restart and recipe):
            if recipe is not None and not is_made_of(found, recipe, self._options, far):
                raise refuse_mirror(far, Held(FINISHED, {}, found))
            out = out or self._options.output
            if self._options.bring_back:
                out = out or Path.cwd() / (found.output or found.run)
                if problems := [*check_path(out, OUTPUT), *check_output(out, brought(found, out))]:
                    raise InputError(problems)
            return self._already_there(far, found, out)
        assert recipe is not None and config is not None and out is not None
        if found is None:
            return self._begin(recipe, config, out)
        given_up = found

        def give_up_there() -> None:
            give_up(far, find_written(far, given_up.run, given_up.files))

        return self._begin(recipe, config, out, before=give_up_there)

    def _already_there(self, far: FarSide, done: Done, out: Path | None) -> Result:
        return already_there(far, done, out, self._options, self._storage, self._reporter)

    def plan(self, recipe: Recipe) -> Plan:
        """Plan a new run of a recipe; nothing is written.

        Raises:
            InputError: with every problem that was found.
        """
        return self._plan(recipe, {}, {})

    def _begin(
        self,
        recipe: Recipe,
        config: Path,
        out: Path,
        given_up: Collection[str] = (),
        before: Callable[[], None] = lambda: None,
    ) -> Result:
        """Begin a new run, once nothing can be refused any more.

        Args:
            given_up: names of files in `out` that `before` removes.
            before: gives up what an earlier run wrote.
        """
        plan = self.plan(recipe)
        far = self._reach(self._options.mirror) if self._options.mirror else None
        if problems := check_new(plan, out, self._home.folder, self._options, far, given_up):
            raise InputError(problems)
        threads, budget = self._resources(plan)
        before()
        self.run_id = None
        if far is not None:
            self._empty_mirror(far, out)
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

    def _empty_mirror(self, far: FarSide, out: Path) -> None:
        """Hold the mirror that a new run is to have."""
        far.hold(out.name)
        with temporary_folder() as folder:
            held = far.look(folder / LEDGER_FILE)
        if held.what != NOTHING:
            raise refuse_mirror(far, held)

    def _go_on(
        self,
        folder: Path,
        recipe: Recipe | None = None,
        config: Path | None = None,
        moved_to: Path | None = None,
    ) -> Result:
        """Go on with a run of this machine, or start over."""
        self.run_id = folder.name
        with run_lock(folder, folder.name):
            ledger, restored = open_ledger(folder, self._storage)
            try:
                row = ledger.run() or {}
                out = Path(row["output"])
                _check_stays(out, moved_to or self._options.output)
                began = json.loads(row["options"])
                named = self._options.mirror is not None
                mirror = self._far.url if self._far else row["mirror"]
                url = self._options.mirror or mirror
                if problems := check_has_mirror(self._options, url):
                    raise InputError(problems)
                self._options = inherited(self._options, began, mirror)
                unchanged = Unchanged(row, self._home, self._reporter)
                given = unchanged.recipe(recipe, restart=self._options.restart)
                far = self._reach(url) if url else None
                if self._options.restart:
                    config = config or Path(row["config_path"])
                    return self._start_over(given, config, ledger, folder, out, far)
                pins = pins_of(ledger, looks_anew=recipe is not None)
                try:
                    plan = self._plan(given, pins, began)
                except NotOpened as error:  # which the run did open when it began
                    raise Resumable("source_unavailable", str(error)) from error
                if far is not None and not far.url.startswith("hf://"):
                    folders = (source.folder for source in plan.sources)
                    if problems := check_outside(Path(far.url), folders, "mirror"):
                        raise InputError(problems)
                unchanged.check(plan, ledger)
                if self._is_done(plan, ledger, out, far):
                    return self._say_done(ledger, folder, out, far)
                return self._finish(plan, ledger, folder, out, far, named=named, distrust=restored)
            finally:
                ledger.close()

    def _start_over(
        self,
        recipe: Recipe,
        config: Path,
        ledger: Ledger,
        folder: Path,
        out: Path,
        far: FarSide | None,
    ) -> Result:
        """Give a run up, here and in its mirror, for a new one."""
        written = written_files(ledger, out)

        def give_up_run() -> None:
            if far is not None:
                give_up(far, find_written(far, folder.name, mirrored_files(ledger)))
            self._storage.make_folder(out)
            with folder_lock(out):
                discard(ledger, folder, out, self._storage)

        return self._begin(recipe, config, out, written, give_up_run)

    def _is_done(self, plan: Plan, ledger: Ledger, out: Path, far: FarSide | None) -> bool:
        row = ledger.run() or {}
        return (
            row["state"] == "done"
            and (far is None or far.url == row["mirror"])
            and is_whole(plan, ledger, ShardFiles(plan, out, self._storage), far)
            and not find_damage(plan, ledger, self._records)
        )

    def _say_done(self, ledger: Ledger, folder: Path, out: Path, far: FarSide | None) -> Result:
        if far is not None and self._options.bring_back:
            bring_rest(far, out, self._storage)
        url = far.url if far else None
        result = Result(folder.name, out, ledger.path, already_done=True, mirror=url)
        self._reporter.done(result)
        return result

    def _finish(
        self,
        plan: Plan,
        ledger: Ledger,
        folder: Path,
        out: Path,
        far: FarSide | None,
        *,
        named: bool,
        distrust: bool,
    ) -> Result:
        """Bring ledger and mirror into agreement, and do what is left.

        Args:
            named: the user named the mirror just now.
            distrust: the ledger was restored, and not compared with the shards since.
        """
        away: list[str] = []
        if far is not None:
            if problems := check_apart(out, far):
                raise InputError(problems)
            if problems := check_reachable(far):
                raise InputError(problems) if named else Resumable("mirror", str(problems[0]))
            agreement = Agreement(ledger, out, far, self._storage)
            done = agreement.reach(named=named)
            if done is not None:
                return self._already_there(far, done, out)
            check_fits(plan, ledger)
            away = agreement.compare()
        files = ShardFiles(plan, out, self._storage)
        lacking = sum(
            files.lacking(shard)
            for shard in plan.shards
            if shard.name not in away or self._options.bring_back
        )
        if problems := check_disk(out, 0 if self._frees else lacking):
            raise Resumable("disk_full", str(problems[0]))
        threads, budget = self._resources(plan, patience=self._options.memory_wait)
        self._storage.make_folder(out)
        with folder_lock(out):
            if far is not None and self._options.bring_back:
                agreement.bring_back(away)
            return self._work(
                plan, ledger, folder, out, threads, budget, resumed=True, distrust=distrust
            )

    def _plan(
        self, recipe: Recipe, pins: Mapping[str, dict[str, Any]], began: Mapping[str, Any]
    ) -> Plan:
        self._reporter.doing("opening the models and planning")
        return pinned_plan(recipe, pins, began, self._options, self._records)

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
        self._reporter.doing("beginning")
        mirror = None
        if self._options.mirror is not None:
            far = self._reach(self._options.mirror)
            mirror = mirror_of(far, ledger, out, self._options, self._storage, self._reporter)
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
        url = mirror.place.url if mirror is not None else None
        result = Result(folder.name, out, ledger.path, merging_seconds=seconds, mirror=url)
        self._reporter.done(result)
        return result


def _check_stays(out: Path, asked: Path | None) -> None:
    """A run's output stays where it is."""
    if asked is not None and os.path.realpath(asked) != os.path.realpath(out):
        raise refuse(
            "This run has its output elsewhere on this machine",
            where=str(asked),
            found=str(out),
            fix="name that one, or none",
        )
