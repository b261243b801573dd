"""Promise: a machine whose mirror was taken over, and which has not noticed, deletes no shard that
its successor does not know of."""

from __future__ import annotations

import pytest
from made_up_leases import ELSEWHERE, write
from opened_snapshots import newest_snapshot, open_snapshot
from plain_folder import PlainFolder
from replication import Replication


@pytest.mark.parametrize("before", ["upload ", "uploaded ", "written .resumerge/ledger-"])
def test_no_shard_is_deleted_that_the_successor_does_not_know(
    replication: Replication, before: str
) -> None:
    """The successor has read the mirror before the snapshot that names the shard was written."""
    followed: list[str] = []

    def happens(name: str) -> None:
        if name.startswith(before) and replication.ledger.shards.unmirrored() and not followed:
            followed.append(name)
            write(PlainFolder(replication.store.folder), ELSEWHERE, 2)

    shards = replication.shards()
    replication.store.fails = happens
    replication.begin(then_delete=True)
    replication.wait_until_over()
    assert followed
    gone = shards - replication.shards()
    found = newest_snapshot(replication.store, replication.store.list())
    assert found is not None
    with open_snapshot(found[1]) as ledger:
        assert gone <= set(ledger.mirrored.checksums())
    assert not gone, "the first shard was not named when the successor came"
