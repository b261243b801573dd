"""Promise: recovery seals a complete shard, notes it in the snapshot, and leaves sealed ones."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from ledger_rows import change
from merging import shards_of, working_in
from ordered_storage import Ordered
from tiny_models import TWO_LAYERS, write_family

from resumerge.engine.lifecycle.session import Session
from resumerge.ledger import LEDGER_FILE, SNAPSHOT_FILE, Ledger, take_snapshot
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.storage import Storage

RECIPE = "merge_method: passthrough\nmodels: [{model: math}]\n"


class Killed(Ordered):
    """A storage that ends the process before the first companion has its name."""

    def rename(self, source: Path, target: Path) -> None:
        if target.suffix in (".json", ".yml", ".md"):
            raise KeyboardInterrupt
        super().rename(source, target)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Make a folder with a finished run."""
    write_family(tmp_path / "models", TWO_LAYERS)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    go_on(tmp_path, Storage())
    return tmp_path


def go_on(place: Path, storage: Storage) -> None:
    options = Options(state_dir=place / "state", shard_size=8000)
    with working_in(place / "models"):
        Session(options, storage=storage).run(place / "recipe.yaml", place / "out")


def unseal(place: Path, number: int) -> Path:
    """Reopen a complete shard, and return the folder of the ledger."""
    (folder,) = RunStore(place / "state").runs()
    open_again = "UPDATE shards SET state = 'open', sealed_at = NULL WHERE number = ?"
    change(folder / LEDGER_FILE, open_again, [number])
    change(folder / LEDGER_FILE, "UPDATE run SET state = 'interrupted'")
    with closing(Ledger(folder / LEDGER_FILE)) as ledger:
        name = ledger.shards.all()[number]["name"]
        take_snapshot(ledger, Storage())
    (place / "out" / name).rename(place / "out" / f"{name}.partial")
    return folder


def test_a_shard_that_recovery_seals_is_in_the_snapshot_at_once(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, folder, storage = shards_of(place / "out"), unseal(place, 1), Killed()
    sealed: list[list[str]] = []
    rename = Storage.rename

    def look(self: Storage, source: Path, target: Path) -> None:
        rename(self, source, target)
        if target.name == SNAPSHOT_FILE:
            with closing(Ledger(target, read_only=True)) as snapshot:
                sealed.append(snapshot.shards.open())

    monkeypatch.setattr(Storage, "rename", look)
    with pytest.raises(KeyboardInterrupt):
        go_on(place, storage)
    names = sorted(before)
    shards = [done for done in storage.done if names[1] in done]
    assert shards == [f"sync {names[1]}.partial", f"rename to {names[1]}"]
    first = storage.done.index(f"rename to {SNAPSHOT_FILE}")
    assert storage.done.index(f"rename to {names[1]}") < first
    assert sealed[0] == []
    assert len(sealed) == 2, "and one at the end of the attempt"
    assert not any(name in done for done in storage.done for name in (names[0], *names[2:]))
    monkeypatch.undo()
    go_on(place, Storage())
    assert shards_of(place / "out") == before
    with closing(Ledger(folder / LEDGER_FILE)) as ledger:
        assert ledger.shards.open() == []
