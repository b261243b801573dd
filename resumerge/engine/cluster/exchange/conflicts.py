"""The comparison of a shard that another task published with newly computed hashes."""

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
    """Compare a shard that another task published with the hashes computed on this machine.

    Args:
        path: the path of the published shard, or of a copy of that shard.
        name: the name of the shard in the output, for the message.
        plan: the plan of one shard, in which that shard is the only one.
        record: the hashes of the blocks that this machine computed.
        node: the machine that computed the hashes of `record`.

    Raises:
        Resumable: the hashes of a block differ.
    """
    with path.open("rb") as shard:
        for unit, commit in zip(plan.units, record.units):
            block_number = first_mismatch(shard.fileno(), unit, commit.hashes)
            if block_number is not None:
                offset, nbytes = unit.block_span(block_number)
                published_hash = hash_block(os.pread(shard.fileno(), nbytes, offset)).hex()
                computed_hash = commit.hashes[HASH_BYTES * block_number :][:HASH_BYTES].hex()
                conflict = HashConflict(unit.name, block_number, published_hash, computed_hash)
                raise Resumable(Reason.HASH_CONFLICT, conflict.message(name, str(node)))
