"""A run whose tasks put their shards into a bucket, in this process."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from contextlib import closing

from loopback_clouds import Container
from loopback_s3 import Bucket
from loopback_s3.servers import SECRET
from shard_tasks import Shards

from resumerge.engine.cluster.exchange.bucket_task import BucketEndpoint, opening
from resumerge.engine.cluster.outcomes import Finished, Node, Outcome
from resumerge.engine.cluster.shard_plan import shard_plan
from resumerge.engine.cluster.task import ShardTask, run_task
from resumerge.engine.recovery.uploaded import adopt_uploaded
from resumerge.engine.resources.signals import StopRequest
from resumerge.engine.shards.shard_files import ShardFiles
from resumerge.mirror.names import TaskName
from resumerge.mirror.stores.buckets.store import BucketStore
from resumerge.mirror.stores.registry import open_store
from resumerge.options import Options
from resumerge.planning.versions import Versions
from resumerge.storage import Storage

TOKEN = 7


class InBucket:
    """A run whose tasks put their shards into a bucket."""

    def __init__(self, shards: Shards, bucket: Bucket | Container) -> None:
        self.shards, self.bucket = shards, bucket
        store = open_store(f"{bucket.url}/m")
        assert isinstance(store, BucketStore)
        self.store = store
        shards.ledger.set_mirror(store.url)

    def task(self, number: int, attempt: int = 1) -> ShardTask:
        """Return a task as a worker receives it."""
        plan = shard_plan(self.shards.plan, number)
        name = TaskName(TOKEN, f"shard{number}-{attempt}")
        self.store.put({name.name: opening("nonce")})
        task = ShardTask(
            name.task,
            number,
            self.shards.plan.shards[number].first,
            BucketEndpoint(self.store.url, name, "nonce", None, 60.0),
            self.shards.fingerprint,
            Versions.of_plan(plan),
            pickle.dumps(plan),
            Options(threads=1),
        )
        sent = pickle.dumps(task)
        assert SECRET.encode() not in sent
        return pickle.loads(sent)  # type: ignore[no-any-return]

    def run(self, task: ShardTask) -> Outcome:
        return run_task(task, Node("", "here"), StopRequest())

    def compute(self, number: int, attempt: int = 1) -> Finished:
        outcome = self.run(self.task(number, attempt))
        assert isinstance(outcome, Finished), outcome
        return outcome

    def name(self, number: int) -> str:
        return self.shards.plan.shards[number].name

    def there(self) -> dict[str, bytes]:
        return self.bucket.contents("m/")

    def tasks(self) -> list[str]:
        return sorted(name for name in self.there() if "/task-" in name)

    def give_up(self, number: int) -> None:
        self.store.put({}, [name for name in self.tasks() if f"shard{number}-" in name])

    def adopt(self, token: int = TOKEN) -> list[int]:
        return self.adopt_and_tidy(token)[0]

    def adopt_and_tidy(
        self, token: int = TOKEN, check_lease: Callable[[], None] = lambda: None
    ) -> tuple[list[int], list[str]]:
        shards = self.shards
        with closing(ShardFiles(shards.plan, shards.out, Storage())) as files:
            parts = (shards.plan, shards.ledger, files, self.store, token)
            return adopt_uploaded(*parts, check_lease)

    def change_record(self, number: int, **values: object) -> None:
        [name] = [name for name in self.tasks() if f"shard{number}-" in name]
        found = json.loads(self.there()[name])
        found["record"] |= values
        self.bucket.put(f"m/{name}", json.dumps(found).encode())
