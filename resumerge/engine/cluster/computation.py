"""A merge on a cluster, from its connection to the last journaled shard."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from resumerge.engine.cluster.connection import connected
from resumerge.engine.cluster.driver import Dispatcher
from resumerge.engine.cluster.journal import ShardJournal
from resumerge.engine.compute.computation import Computation
from resumerge.engine.execute.shard_files import TASKS
from resumerge.engine.execute.source_watch import SourceWatch
from resumerge.engine.recovery.published import adopt_published, remove_tasks
from resumerge.ledger import Progress
from resumerge.options.types import LOCAL_CLUSTER


class ClusterComputation(Computation):
    """Computes on a Ray cluster: each shard that is not sealed is a task."""

    def run(self, progress: Sequence[Progress]) -> float:
        sealed = {row["number"] for row in self.ledger.shards() if row["state"] == "sealed"}
        pending = [shard for shard in self.plan.shards if shard.index not in sealed]
        if not pending:
            return 0.0
        context, out = self.context, self.files.folder
        folder = out / TASKS / secrets.token_hex(8)
        context.storage.make_folder(folder)
        try:
            context.reporter.doing("connecting to the Ray cluster")
            with (
                context.stop.deferred(),
                connected(context.options.ray or LOCAL_CLUSTER, self._waits) as cluster,
            ):
                context.stop.check()
                context.reporter.doing("merging on the Ray cluster")
                journal = self._journal([*progress])
                try:
                    Dispatcher(self, cluster, journal, folder, pending).run()
                finally:
                    # What was published before a stop counts; tasks that go on find no folder.
                    for shard in adopt_published(self.plan, self.ledger, self.files):
                        self._sealed(shard)
                journal.watch.check_all()
        finally:
            remove_tasks(out)
        return 0.0

    def _waits(self) -> None:
        self.context.reporter.heartbeat()
        self.context.stop.check()

    def _journal(self, progress: list[Progress]) -> ShardJournal:
        return ShardJournal(
            self.plan,
            self.ledger,
            self.attempt,
            self.budget.memory,
            self.files,
            SourceWatch(self.plan, self.ledger, self.reader),
            self.context.storage,
            progress,
            self._sealed,
            self.context.reporter.heartbeat,
        )
