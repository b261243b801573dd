"""A scheduler whose pools have no threads, and whose collaborators record their calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from made_up_plans import LINEAR, plan, vectors

from resumerge.engine.evaluation.scratch import Scratch
from resumerge.engine.execute import scheduler, unit_feed
from resumerge.engine.execute.scheduler import Scheduler
from resumerge.engine.execute.unit_feed import BlockTask
from resumerge.errors import Interrupted
from resumerge.ledger import Progress
from resumerge.planning import Plan, estimate
from resumerge.planning.plan import Unit
from resumerge.tensors import Merged

BLOCK = 4


SIZE = 4 * BLOCK
"""The size of a block in bytes."""


RUN_BLOCKS = 4
"""The number of blocks in a block run."""


PLENTY = 1000 * SIZE


class Lazy:
    """A future whose work is done when its result is requested."""

    def __init__(self, pool: Pool, work: Callable[[], Any]) -> None:
        self._pool, self._work = pool, work

    def result(self) -> Any:
        self._pool.running -= 1
        if self._pool.name == "preparation":
            self._pool.order.append(("waiting for", "preparation"))
        return self._work()

    def exception(self) -> None:
        """Do nothing: `result` does the work."""


class Pool:
    """A pool without threads, which records its tasks, and how many it had at most.

    Attributes:
        order: the names of pool and unit of each task of all pools, and the waits. Parts of scans
            are omitted.
    """

    order: ClassVar[list[tuple[str, str]]] = []

    def __init__(self, threads: int, name: str, initializer: Any = None) -> None:
        self.name, self.running, self.most = name, 0, 0
        self.submitted: list[Lazy] = []
        self.tasks: list[tuple[Unit, range]] = []
        self.is_shut_down = False

    def submit(self, work: Callable[..., Any], *words: Any) -> Lazy:
        if isinstance(words[0], BlockTask):
            self.order.append((self.name, words[0].units[0].name))
            self.tasks += [(unit, words[0].indices) for unit in words[0].units]
        elif self.name == "preparation":
            self.order.append((self.name, words[0][0].name))
        self.running += 1
        self.most = max(self.most, self.running)
        self.submitted.append(Lazy(self, lambda: work(*words)))
        return self.submitted[-1]

    def shutdown(self, wait: bool, cancel_futures: bool) -> None:
        self.is_shut_down = wait and cancel_futures


class Bench:
    """A scheduler whose collaborators record their calls.

    Args:
        uncommitted_limit, cramped: the governor's values.
        committed: the numbers of blocks of each unit that are committed already.
        scanned: the names of the units that need preparation.
        alike: whether all units read the same tensors.
    """

    def __init__(
        self,
        found: Plan,
        *,
        threads: int = 1,
        uncommitted_limit: int = PLENTY,
        cramped: bool = False,
        committed: tuple[int, ...] = (),
        scanned: tuple[str, ...] = (),
        alike: bool = False,
    ) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.batches: list[list[tuple[int, int]]] = []
        self.in_flight: list[int] = []
        """The number of unfinished tasks when each batch is submitted."""
        self.uncommitted: list[int] = []
        """The number of computed blocks and of blocks in flight at that time."""
        self.written: list[Any] = []
        self.stop = SimpleNamespace(requested=False, check=self._check)
        self.now = 0.0
        self.at_block: dict[tuple[int, int], Callable[[], None]] = {}
        self.left = [*found.units]
        tell = lambda *words: lambda *more: self.told.append((*words, *more))  # noqa: E731
        self.governor = SimpleNamespace(
            uncommitted_limit=uncommitted_limit, is_cramped=cramped, cache_is_scarce=False,
            wait_for_memory=self._wait_for_memory,
        )  # fmt: skip
        progress = [
            Progress(
                committed_blocks=count,
                hashes=b"",
                input_hashes=b"",
                checksum=None,
                attempt=None,
                batch=None,
            )
            for count in committed + (0,) * (len(found.units) - len(committed))
        ]
        self.updates: list[Any] = []
        execution: Any = SimpleNamespace(
            plan=found, estimate=estimate(found), reader=None, progress=progress,
            governor=self.governor, stop=self.stop,
            threads=threads, measures=False,
            files=SimpleNamespace(
                descriptor=lambda shard: f"shard {shard}",
                share_if_copy=lambda shard: False,
                folder=None,
            ),
            storage=SimpleNamespace(write=tell("write"), begin_sync=tell("begin sync")),
            reporter=SimpleNamespace(
                heartbeat=tell("heartbeat"), progressed=self.updates.append,
                fetching=tell("fetching"),
            ),
        )  # fmt: skip
        self.samples = False
        evaluator: Any = SimpleNamespace(
            start_thread=None, needs_preparation=lambda unit: unit.name in scanned,
            prepare=self._prepare, compute=self._compute,
            compute_together=self._compute_together,
        )  # fmt: skip
        queue: Any = SimpleNamespace(
            take=lambda: self.left.pop(0) if self.left else None,
            take_with_same_reads=lambda unit: self.left.pop(0) if self.left and alike else None,
            wait=self._wait, download_progress=None,
        )  # fmt: skip
        committer: Any = SimpleNamespace(
            bytes_committed=sum(committed) * SIZE, submit=self._submit,
            wait=tell("committed"), close=tell("closed"),
        )  # fmt: skip
        cache: Any = SimpleNamespace(passed_over=self._passed_over)
        self.mapped: set[tuple[str, int]] = set()
        self.computed: list[tuple[int, int, Any]] = []
        self.scheduler = Scheduler(execution, evaluator, queue, committer, cache)
        self.pool: Any = self.scheduler._pool
        self.feed = self.scheduler._feed
        self.preparation_pool: Any = self.feed._pool

    def _check(self) -> None:
        if self.stop.requested:
            raise Interrupted(15)

    def _wait_for_memory(self, stop: Any) -> None:
        assert stop is self.stop
        self.told.append(("memory",))

    def _compute(
        self, unit: Unit, indices: range, preparation: Any, measurements: None
    ) -> tuple[memoryview, bytes]:
        for index in indices:
            self.computed.append((unit.number, index, preparation))
            self.at_block.get((unit.number, index), lambda: None)()
        data = b"".join(
            bytes([index]) * unit.bytes_of(range(index, index + 1)) for index in indices
        )
        return memoryview(data), b"inputs" * len(indices)

    def _compute_together(
        self, units: Any, indices: range, preparation: Any, *, measures: bool
    ) -> Iterator[tuple[memoryview, bytes, None]]:
        for unit in units:
            yield *self._compute(unit, indices, preparation, None), None

    def _passed_over(self, merged: Merged, indices: range) -> None:
        read = {(merged.name, index) for index in indices}
        assert read <= self.mapped, "what was not read yet is not dropped"
        self.told.append(("passed over", merged.name, indices))

    def _prepare(
        self, unit: Unit, run_pass: Any = None, scratch: Scratch | None = None
    ) -> list[Any] | str:
        assert scratch is self.scheduler._scratch
        if run_pass is None:
            return f"serial {unit.name}"
        self.told.append(("pass over", unit.name))

        def read(indices: range) -> list[Any]:
            self.mapped.update((unit.name, index) for index in indices)
            return [(index, self.samples) for index in indices]

        return [*chain.from_iterable(run_pass(unit.expression, read, self.samples))]

    def _submit(self, batch: Any) -> None:
        self.told.append(("submit",))
        self.in_flight.append(self.pool.running)
        taken = {(unit.number, k) for unit, indices in self.pool.tasks for k in indices}
        before = sum(map(len, self.batches))
        self.uncommitted.append(len(taken) - before)
        self.written.append(batch)
        self.batches.append(
            [(written.unit.number, k) for written in batch for k in written.indices]
        )

    def _wait(self, report: Callable[[], None]) -> bool:
        self.told.append(("wait",))
        return False

    def run(self) -> list[int]:
        """Run the scheduler, and return the number of blocks in each batch."""
        self.scheduler.run()
        assert self.pool.is_shut_down and self.preparation_pool.is_shut_down
        return [len(batch) for batch in self.batches]

    def of(self, *kinds: str) -> list[tuple[Any, ...]]:
        return [told for told in self.told if told[0] in kinds]


@pytest.fixture(autouse=True)
def without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (scheduler, unit_feed):
        monkeypatch.setattr(module, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(Pool, "order", [])
    for module in ("resumerge.tensors.target", "resumerge.engine.execute.uncommitted_shares"):
        monkeypatch.setattr(f"{module}.BLOCK_ELEMENTS", BLOCK)
    monkeypatch.setattr(
        "resumerge.engine.execute.uncommitted_shares.BLOCK_RUN_BYTES", RUN_BLOCKS * SIZE
    )


def linear(*blocks: int) -> Plan:
    """Return the plan of a linear merge of tensors of so many blocks."""
    sizes = [BLOCK * count for count in blocks]
    found = plan(LINEAR, vectors("a", *sizes), vectors("b", *sizes))
    assert [unit.blocks for unit in found.units] == [*blocks]
    return found
