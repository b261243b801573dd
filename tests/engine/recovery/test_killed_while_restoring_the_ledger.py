"""Promise: a damaged ledger comes back from its snapshot, even if that is killed halfway.

Until everything has been read and compared once, no file is trusted unread.
"""

from __future__ import annotations

import pytest
from crashing import Bench, Merge

from resumerge.ledger import LEDGER_FILE


@pytest.mark.parametrize("mode", ["kill", "power"])
def test_killed_while_restoring_the_ledger(
    bench: Bench, reference: dict[str, bytes], operations: int, mode: str, soak: bool
) -> None:
    """The recheck of an interrupted run is off, because it would find the damage as well."""

    def prepare(merge: Merge) -> None:
        merge.options = {**merge.options, "no_recheck": True}
        merge.run(operations * 3 // 4)
        (folder,) = merge.runs()
        (folder / LEDGER_FILE).write_bytes(b"not a database" * 1000)
        shard = merge.out / "model-00001-of-00004.safetensors"
        data = shard.read_bytes()
        shard.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))

    def check(merge: Merge) -> None:
        merge.finish()
        merge.assert_done(reference)
        assert {"ledger_restored", "checksum_mismatch", "ledger_reconciled"} <= {*merge.events()}

    points = range(1, 36, 1 if soak else 4)
    reached = bench.each_state(points, check, mode, prepare=prepare, command="resume")
    assert reached > 0.85 * len(points)
