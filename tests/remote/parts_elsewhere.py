"""An adapter in a bucket, its model on the Hub and one in a single file, and their names."""

from __future__ import annotations

from bucket_merges import adapter, shard, sharded, whole

from resumerge.sources.remote.prefetch import Prefetcher

BASE, LORA = sharded(1), adapter(2)
SHARDS = [shard(1, 2), shard(2, 2)]
WEIGHTS = "adapter_model.safetensors"
NAME = "model.safetensors"
MODEL = whole(3)


def until_all_are_ready(fetcher: Prefetcher, count: int) -> None:
    while fetcher.ready_count < count:
        fetcher.wait(10)
