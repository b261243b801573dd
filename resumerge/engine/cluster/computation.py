"""A merge on a cluster, from the connection to the last journaled shard."""

from __future__ import annotations

from collections.abc import Sequence

from resumerge.engine.cluster.connection import connected
from resumerge.engine.cluster.driver import Driver
from resumerge.engine.cluster.exchange.base import Exchange
from resumerge.engine.cluster.exchange.bucket import BucketExchange
from resumerge.engine.cluster.exchange.folder import FolderExchange
from resumerge.engine.cluster.journal import ShardJournal
from resumerge.engine.evaluation.source_watch import SourceWatch
from resumerge.engine.execute.computation import Computation
from resumerge.ledger import Progress
from resumerge.options.cluster import LOCAL_CLUSTER


class ClusterComputation(Computation):
    """A computation on a Ray cluster, with a task for each shard that is not sealed."""

    def run(self, progress: Sequence[Progress]) -> None:
        sealed_numbers = {
            row["number"] for row in self.ledger.shards.all() if row["state"] == "sealed"
        }
        pending_shards = [shard for shard in self.plan.shards if shard.number not in sealed_numbers]
        if not pending_shards:
            return
        context, exchange = self.context, self._exchange()
        exchange.open(pending_shards)
        try:
            context.reporter.doing("connecting to the Ray cluster")
            with (
                context.stop.deferred(),
                connected(context.options.ray or LOCAL_CLUSTER, self._check_in) as cluster,
            ):
                context.stop.check()
                context.reporter.doing("merging on the Ray cluster")
                watch = SourceWatch(self.plan, self.ledger, self.reader)
                journal = ShardJournal(self, exchange, watch, [*progress])
                try:
                    Driver(self, cluster, journal, exchange, pending_shards).run()
                finally:
                    # Shards that were published before a stop are kept; running tasks are given up.
                    for shard in exchange.adopt():
                        self.sealed(shard)
                watch.check_all()
        finally:
            exchange.close()

    def _check_in(self) -> None:
        """Send a heartbeat, and raise if a signal asks to stop. Called often during waits."""
        self.context.reporter.heartbeat()
        self.context.stop.check()

    def _exchange(self) -> Exchange:
        """Return the exchange with the tasks: in the mirror's bucket if no disk keeps shards."""
        context = self.context
        if not context.frees_shards:
            return FolderExchange(
                self.plan, self.ledger, self.files, self.context.reporter.heartbeat
            )
        assert context.mirror is not None and self.replicator is not None
        mirror, replicator = context.mirror, self.replicator
        return BucketExchange(
            self.plan, self.ledger, self.files, mirror, replicator, self._check_in
        )
