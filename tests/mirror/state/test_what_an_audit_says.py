"""Promise: an audit says of each promised file what is wrong with it; what a run that is writing
changes meanwhile is no damage."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from made_up_mirrors import put
from mirror_audit import check_mirror
from plain_folder import PlainFolder

from resumerge.mirror.damaged_files import find_damaged


def test_each_damage_is_said_by_its_name(tmp_path: Path) -> None:
    store = PlainFolder(tmp_path / "mirror")
    store.put(dict.fromkeys(("right", "short", "long", "other", "folder/right"), b"data"))
    (tmp_path / "outside").write_bytes(b"data")
    sha256 = hashlib.sha256(b"data").hexdigest()
    outside = [f"../{tmp_path.name}/outside", str(tmp_path / "outside"), "folder/../right"]
    promised = dict.fromkeys(("right", "folder/right", "missing", *outside), (4, sha256))
    promised |= {"short": (5, sha256), "long": (3, sha256), "other": (4, "0" * 64)}
    assert find_damaged(store, promised, lambda nbytes: None) == {
        "missing": "it is missing",
        "short": "it has 4 bytes instead of 5",
        "long": "it has 4 bytes instead of 3",
        "other": "its content differs",
        **dict.fromkeys(outside, "its name points outside of the mirror"),
    }


@pytest.mark.parametrize("writing", [True, False])
def test_a_run_that_writes_during_the_audit_does_no_damage(
    made: Path, there: Path, writing: bool
) -> None:
    """The run has replaced the snapshot that named the missing shard."""
    put(made, there)
    first = min(there.glob("*.safetensors"))
    audits: list[None] = []

    def happens(operation: str) -> None:
        if operation == "get":
            audits.append(None)
        if operation == "get" and first.exists():
            if writing:
                put(made, there, f"DELETE FROM mirrored WHERE name = '{first.name}'", number=2)
            first.unlink()

    found = check_mirror(PlainFolder(there, happens))
    assert found.state == "unfinished"
    assert found.problems == ({} if writing else {first.name: "it is missing"})
    assert len(audits) == (2 if writing else 1), "it is repeated only where something changed"
