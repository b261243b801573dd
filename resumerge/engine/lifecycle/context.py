"""What one command works with, whichever run it finds or begins, and the work itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resumerge.engine.checks.preflight import (
    fit_threads,
    memory_budget,
    too_many_threads,
    wait_for_budget,
)
from resumerge.engine.execute.device import resolve_device
from resumerge.engine.execute.reporter import Reporter, Result
from resumerge.engine.lifecycle.attempt import Attempt
from resumerge.engine.lifecycle.pinned_plan import pinned_plan
from resumerge.engine.mirrored.mirror_checks import check_state_apart
from resumerge.engine.mirrored.mirror_session import MirrorSession
from resumerge.engine.mirrored.mirror_setup import replicator_of
from resumerge.engine.resources.disk_errors import resumable_disk_errors
from resumerge.engine.resources.signals import StopRequest
from resumerge.host.speed import probe
from resumerge.ledger import Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.planning import Plan
from resumerge.planning.estimates.estimate import Estimate, estimate, largest_file
from resumerge.planning.estimates.time import computes
from resumerge.recipe import Recipe
from resumerge.sources import MetadataCache
from resumerge.storage import Storage


@dataclass(frozen=True)
class ResourceBudget:
    """What a merge may take, and is expected to.

    Args:
        budget: bytes of RSS.
    """

    threads: int
    budget: int
    device: str
    estimate: Estimate


@dataclass
class RunContext:
    """One command on one run.

    Args:
        options: as they were given; those of the run that it goes on with, once that is known.
        run_id: of the run, as soon as there is one.
        far: the mirror, once it was reached.
    """

    options: Options
    reporter: Reporter
    storage: Storage
    stop: StopRequest
    home: RunStore
    metadata: MetadataCache = field(init=False)
    run_id: str | None = None
    far: MirrorSession | None = None

    def __post_init__(self) -> None:
        self.metadata = MetadataCache(self.home.folder)

    @contextmanager
    def working(self) -> Iterator[None]:
        """While it works, signals are heard; after that, the mirror is anybody's."""
        with self.stop.listening(), resumable_disk_errors():
            try:
                yield
            finally:
                if self.far is not None:
                    self.far.release()

    @property
    def frees(self) -> bool:
        """Whether shards go away once the mirror has them."""
        return bool(self.options.mirror and self.options.mirror_then_delete)

    def reach(self, url: str) -> MirrorSession:
        """The mirror; it is not asked for anything yet.

        Raises:
            InputError: this cannot be one.
        """
        self.reporter.doing("looking at the mirror")
        far = MirrorSession(url, self.options, self.reporter, self.stop)
        check_state_apart(self.home.folder, far.store)
        if self.far is None or self.far.url != far.url:
            if self.far is not None:
                self.far.release()
            self.far = far
        return self.far

    def plan(
        self, recipe: Recipe, pins: Mapping[str, dict[str, Any]], began: Mapping[str, Any]
    ) -> Plan:
        """Open the models and plan; see `pinned_plan`."""
        self.reporter.doing("opening the models and planning")
        return pinned_plan(recipe, pins, began, self.options, self.metadata)

    def means(self, plan: Plan, *, patience: float | None = None) -> ResourceBudget:
        """Threads, memory and device; refused here where they cannot do.

        Args:
            patience: seconds that a run that has begun waits for memory.

        Raises:
            InputError, Resumable: there is not enough.
        """
        self.reporter.doing("looking for memory")
        device = resolve_device(self.options.device)
        asked = self.options.memory
        if patience is None:
            budget = memory_budget(asked)
        else:
            budget = wait_for_budget(plan, asked, patience, self.reporter)
        for note in too_many_threads(self.options.threads):
            self.reporter.note(note)
        threads = fit_threads(plan, self.options.threads, budget, asked)
        speed = probe(largest_file(plan), computes=computes(plan))
        return ResourceBudget(threads, budget, device, estimate(plan, threads, speed))

    def work(
        self,
        plan: Plan,
        ledger: Ledger,
        out: Path,
        means: ResourceBudget,
        *,
        resumed: bool,
        verify_all: bool = False,
    ) -> Result:
        """Merge what is left, in an attempt of its own.

        Args:
            distrust: the ledger was restored, and not compared with the shards since.

        Raises:
            Interrupted, Resumable: stopped short.
        """
        assert self.run_id is not None
        self.reporter.planned(self.run_id, plan, means.estimate, resumed=resumed)
        self.reporter.doing("beginning")
        mirror = None
        if self.options.mirror is not None:
            far = self.reach(self.options.mirror)
            mirror = replicator_of(far, ledger, out, self.options, self.storage, self.reporter)
        attempt = Attempt(
            plan=plan,
            ledger=ledger,
            out=out,
            storage=self.storage,
            reporter=self.reporter,
            stop=self.stop,
            threads=means.threads,
            budget=means.budget,
            need=means.estimate.memory,
            memory_wait=self.options.memory_wait,
            device=means.device,
            metadata=self.metadata,
            offline=self.options.offline,
            evict=self.options.evict,
            verify_all=verify_all,
            mirror=mirror,
        )
        seconds = attempt.run()
        url = mirror.store.url if mirror is not None else None
        result = Result(self.run_id, out, ledger.path, merging_seconds=seconds, mirror=url)
        self.reporter.done(result)
        return result
