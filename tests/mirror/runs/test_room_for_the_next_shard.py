"""Promise: downloads to the disk of the output leave room for the shard that is next."""

from __future__ import annotations

from pathlib import Path

from merging import working_in
from mirrored import RECIPE, Bench

from resumerge.engine.lifecycle.session import Session
from resumerge.engine.shards.shard_files import ShardFiles
from resumerge.engine.shards.space_reservation import SpaceReservation
from resumerge.host.machine import FREE_BESIDE_SHARDS
from resumerge.ledger import Progress
from resumerge.mirror import Lease, ReplicationOptions, Replicator
from resumerge.mirror.stores.folder import FolderStore
from resumerge.options import Options
from resumerge.recipe import parse_recipe
from resumerge.storage import Storage

PENDING = Progress(
    committed_blocks=0, hashes=b"", input_hashes=b"", checksum=None, attempt=None, batch=None
)


def test_downloads_leave_room(small_models: Path, tmp_path: Path) -> None:
    cache = tmp_path / "hf" / "hub"
    with working_in(small_models):
        plan = Session(Options(shard_size=8000)).plan(parse_recipe(RECIPE))
    out = tmp_path / "out"
    out.mkdir()
    files, progress = ShardFiles(plan, out, Storage()), [PENDING] * len(plan.units)
    first, second = plan.shards[:2]

    store = FolderStore(tmp_path / "mirror")
    lease = Lease.acquire(store, "run")
    mirror = Replicator(
        store, lease, None, out, ReplicationOptions(then_delete=True), Storage(), print, print
    )
    quota = SpaceReservation(plan, files, progress, mirror)
    lease.release()
    assert (
        quota.reserved_bytes(False, cache)
        == quota.reserved_bytes(True, cache)
        == first.nbytes + FREE_BESIDE_SHARDS
    )
    assert quota.reserve(0)
    assert files.partial(first).stat().st_size == first.nbytes
    assert quota.reserved_bytes(False, cache) == second.nbytes + FREE_BESIDE_SHARDS
    assert quota.reserved_bytes(True, cache) == 0, "the shard that has its file goes first"
    assert SpaceReservation(plan, files, progress).reserved_bytes(False, cache) == 0, (
        "without a mirror all have their files"
    )


def test_no_shard_is_deleted_where_there_is_no_mirror(bench: Bench) -> None:
    merge = bench.merge(mirror_then_delete=True)
    merge.options["mirror"] = None
    ended = merge.run()
    assert ended.code == 2, ended.stderr
    assert "add --mirror DEST" in ended.stderr
    assert not merge.out.exists() and not merge.state.exists()
