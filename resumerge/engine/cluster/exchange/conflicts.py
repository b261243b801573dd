"""A shard that was published before is compared with what was computed now."""

from __future__ import annotations

import os
from pathlib import Path

from resumerge.digests import HASH_BYTES
from resumerge.engine.cluster.outcomes import HashConflict, Node
from resumerge.engine.shards.checksums import first_mismatch
from resumerge.engine.shards.shard_record import ShardRecord
from resumerge.errors import Reason, Resumable
from resumerge.kernels.hashes import hash_block
from resumerge.planning.plan import Plan


def compare_with_record(path: Path, name: str, plan: Plan, record: ShardRecord, node: Node) -> None:
    """Compare a shard that somebody published with what was computed here.

    Args:
        path: the path of the shard, or of its copy.
        name: the shard's name.
        plan: the plan of one shard.
        record: the hashes of what was computed here.
        node: where it was computed.

    Raises:
        Resumable: they differ.
    """
    with path.open("rb") as shard:
        for unit, known in zip(plan.units, record.units):
            block = first_mismatch(shard.fileno(), unit, known.hashes)
            if block is not None:
                offset, nbytes = unit.block_span(block)
                first = hash_block(os.pread(shard.fileno(), nbytes, offset)).hex()
                second = known.hashes[HASH_BYTES * block :][:HASH_BYTES].hex()
                conflict = HashConflict(unit.name, block, first, second)
                raise Resumable(Reason.HASH_CONFLICT, conflict.message(name, str(node)))
