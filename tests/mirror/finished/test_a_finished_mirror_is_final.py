"""Promise: once a mirror has a manifest and all that it names, no machine replaces or removes it,
however far the machine believed itself to be."""

from __future__ import annotations

from pathlib import Path

import pytest
from finished_runs import Bed
from ledger_rows import change
from made_up_mirrors import edited_manifest
from plain_folder import PlainFolder

from resumerge.ledger.run_store import RunStore
from resumerge.mirror.manifest import read_manifest, write_manifest
from resumerge.mirror.names import MANIFEST_FILE


def manifest_file(bed: Bed) -> tuple[int, bytes]:
    """Return the inode of the manifest, which a rewrite changes, and its bytes."""
    path = bed.mirror / MANIFEST_FILE
    return path.stat().st_ino, path.read_bytes()


@pytest.mark.parametrize("known", ["all of them", "all but one", "none"])
def test_a_machine_that_did_not_hear_of_the_end_leaves_it(bed: Bed, known: str) -> None:
    """The machine was killed before it recorded what it, or its successor, had mirrored."""
    before = manifest_file(bed)
    (run,) = RunStore(bed.state).runs()
    change(run / "ledger.db", "UPDATE run SET state = 'running'")
    names = {"all of them": "''", "all but one": "(SELECT min(name) FROM mirrored)"}
    if known == "none":
        change(run / "ledger.db", "DELETE FROM mirrored")
    else:
        change(run / "ledger.db", f"DELETE FROM mirrored WHERE name = {names[known]}")
    assert not bed.run().already_done
    assert manifest_file(bed) == before
    assert [path.name for path in (bed.mirror / ".resumerge").iterdir()] == ["done.json"]
    assert bed.run().already_done


def test_the_manifest_of_who_was_first_stays(bed: Bed) -> None:
    store, before = PlainFolder(bed.mirror), manifest_file(bed)
    late = edited_manifest(before[1], finished="2031-01-01T00:00:00.000+00:00")
    manifest = read_manifest(store)
    assert manifest is not None
    write_manifest(store, late, 1, manifest.files)
    assert manifest_file(bed) == before


def test_the_manifest_of_another_run_stays(bed: Bed) -> None:
    store, before = PlainFolder(bed.mirror), manifest_file(bed)
    with pytest.raises(OSError, match="the manifest of another run"):
        write_manifest(store, edited_manifest(before[1], run="another-run"), 1, ())
    assert manifest_file(bed) == before


def test_what_has_the_new_content_is_not_written_again(tmp_path: Path) -> None:
    store = PlainFolder(tmp_path / "mirror")
    store.put({"a": b"1", "b": b""})
    before = (tmp_path / "mirror" / "a").stat().st_ino
    assert store.put_if_unchanged("a", b"1", b"0", ["b"])
    assert (tmp_path / "mirror" / "a").stat().st_ino == before
    assert set(store.list()) == {"a"}
