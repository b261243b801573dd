"""Promise: a run replaces only companions that it recorded, or that have the run's own content."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from ledger_rows import change, query
from merging import merge
from tiny_models import TWO_LAYERS, write_family

from resumerge.kernels.hashes import hash_block
from resumerge.ledger import LEDGER_FILE, Ledger
from resumerge.ledger.run_store import RunStore

RECIPE = "merge_method: passthrough\nmodels: [{model: math}]\n"
OLDER = b'{"of": "an older version"}'


@dataclass
class Stopped:
    """A run that stopped just before its ledger recorded its end."""

    models: Path
    out: Path

    @property
    def ledger(self) -> Path:
        (folder,) = RunStore(self.out.with_name("out.state")).runs()
        return folder / LEDGER_FILE

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.out.iterdir()}

    def finish(self) -> list[str]:
        """Continue the run, and return the kinds of its events."""
        with closing(Ledger(self.ledger)) as ledger:
            ledger.set_state("interrupted")
        merge(self.models, RECIPE, self.out)
        return [row["kind"] for row in query(self.ledger, "SELECT kind FROM events")]


@pytest.fixture
def stopped(tmp_path: Path) -> Stopped:
    models = write_family(tmp_path / "models", TWO_LAYERS)
    return Stopped(models, merge(models, RECIPE, tmp_path / "out"))


@pytest.mark.parametrize("name", ["config.json", "README.md"])
def test_what_it_noted_is_replaced_whatever_it_would_write_now(stopped: Stopped, name: str) -> None:
    """Another version of the program may write another file."""
    before = stopped.files()
    (stopped.out / name).write_bytes(OLDER)
    with closing(Ledger(stopped.ledger)) as ledger:
        ledger.companions.record(name, len(OLDER), hash_block(OLDER).hex())
    assert not {"file_set_aside", "file_kept"} & {*stopped.finish()}
    assert stopped.files() == before


def test_what_is_as_it_would_write_it_needs_no_note(stopped: Stopped) -> None:
    before, noted = stopped.files(), query(stopped.ledger, "SELECT * FROM companions")
    change(stopped.ledger, "DELETE FROM companions")
    assert not {"file_set_aside", "file_kept"} & {*stopped.finish()}
    assert stopped.files() == before
    assert query(stopped.ledger, "SELECT * FROM companions") == noted


def test_what_it_noted_of_one_file_says_nothing_of_another(stopped: Stopped) -> None:
    before = stopped.files()
    (stopped.out / "config.json").write_bytes(before["README.md"])
    assert "file_set_aside" in stopped.finish()
    assert stopped.files() == {**before, "config.json.kept": before["README.md"]}
