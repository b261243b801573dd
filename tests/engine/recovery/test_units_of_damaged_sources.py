"""Promise: units computed from a damaged source file are computed again, and no others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from ledger_rows import RUN, SHARD, UNIT, change
from made_up_plans import llama, plan, tensor

from resumerge.engine.recovery.damaged_sources import find_damage, forget_damaged
from resumerge.event_kinds import EventKind
from resumerge.ledger import LEDGER_FILE, Ledger, UnitCommit
from resumerge.planning import Plan
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources.remote.files import remote_file
from resumerge.sources.types import SourceFile

RECIPE = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"
FIRST, SECOND = "m.safetensors", "n.safetensors"
RIGHT, WRONG = b"right", b"wrong"
ETAG = {name: hashlib.sha256(name.encode() + RIGHT).hexdigest() for name in (FIRST, SECOND)}
HEAD, NORM = "lm_head.weight", "model.norm.weight"
"""Tensors of the second file and of the first."""


@dataclass
class Found:
    """A run that reads two files of a model of the Hub."""

    plan: Plan
    ledger: Ledger
    metadata: MetadataCache

    def put(self, name: str, data: bytes = RIGHT, *, links: bool = True) -> Path:
        """Put a file into the cache, and return the path of its content."""
        file = remote_file(self.plan.sources[1], name)
        path = file.blob if links else file.pointer
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(name.encode() + data)
        if links:
            file.link()
        return path

    def damage(self, name: str, *, links: bool = True) -> None:
        """Put a damaged file into the cache, and record that it is damaged."""
        self.metadata.record_verdict(self.put(name, WRONG, links=links), ETAG[name], intact=False)

    def number(self, name: str) -> int:
        return next(unit.number for unit in self.plan.units if unit.name == name)

    def commit(self, name: str, *, whole: bool = True) -> None:
        done = UnitCommit(
            number=self.number(name),
            hashes=bytes(16),
            input_hashes=b"",
            checksum="0" * 32 if whole else None,
            seconds=0.5,
        )
        self.ledger.units.commit_batch(1, 1, [done], {"units_committed": 1, "bytes_committed": 16})

    def committed(self) -> set[str]:
        progress = self.ledger.units.progress()
        return {u.name for u, known in zip(self.plan.units, progress) if known.committed_blocks}

    def forget(self) -> list[tuple[str, str, int]]:
        """Forget damaged units; return the model, file and number of units of each event."""
        forget_damaged(self.plan, self.ledger, self.metadata, lambda: None)
        told = [event["data"] for event in self.ledger.events.all(EventKind.SOURCE_DAMAGED)]
        return [(data["model"], data["file"], data["units"]) for data in told]

    def found(self) -> set[str]:
        return {name for _, name in find_damage(self.plan, self.ledger, self.metadata)}


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Found]:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    head = replace(tensor(HEAD, (10, 4)), file=SECOND)
    made = plan(RECIPE, llama("a", 1), llama("b", 1, others=[head]))
    files = {n: SourceFile(n, len(n) + len(RIGHT), {"etag": ETAG[n]}) for n in (FIRST, SECOND)}
    there = replace(made.sources[1], kind="hub", revision="c" * 40, files=files)
    made = replace(made, sources=(made.sources[0], there))
    units = [{**UNIT, "number": unit.number, "name": unit.name} for unit in made.units]
    with closing(Ledger.create(tmp_path / LEDGER_FILE)) as ledger:
        ledger.begin(RUN, [], [SHARD], units)
        ledger.attempts.start({"pid": 1, "host": "here", "boot_id": None})
        metadata = MetadataCache(tmp_path)
        yield Found(made, ledger, metadata)
        metadata.close()


@pytest.mark.parametrize("lies", ["linked", "under its name", "without a name"])
@pytest.mark.parametrize("whole", [True, False])
def test_what_was_computed_from_it_is_pending_and_nothing_else(
    found: Found, lies: str, whole: bool
) -> None:
    """A tensor that is committed in part was computed from the damaged file as well.

    The cache has the content under the name itself if a disk has no links.
    """
    found.commit(NORM, whole=whole)
    found.commit(HEAD, whole=whole)
    found.put(FIRST)
    found.damage(SECOND, links=lies != "under its name")
    if lies == "without a name":
        remote_file(found.plan.sources[1], SECOND).pointer.unlink()
    assert found.found() == {SECOND}
    assert found.forget() == [("b", SECOND, 1)]
    assert found.committed() == {NORM}


def test_a_damage_is_handled_once(found: Found) -> None:
    found.put(FIRST)
    found.damage(SECOND)
    found.put(SECOND)
    found.commit(HEAD)
    assert len(found.forget()) == 1
    found.commit(HEAD)
    assert found.found() == set()
    assert len(found.forget()) == 1
    assert found.committed() == {HEAD}


def test_the_next_damage_of_the_same_file_is_another(found: Found) -> None:
    found.put(FIRST)
    found.damage(SECOND)
    found.put(SECOND)
    found.forget()
    found.commit(HEAD)
    found.damage(SECOND)
    assert len(found.forget()) == 2
    assert found.committed() == set()


def test_a_damage_from_before_the_run_is_none_of_it(found: Found) -> None:
    found.commit(HEAD)
    found.damage(SECOND)
    change(found.ledger.path, "UPDATE run SET created = '2999-01-01T00:00:00+00:00'")
    assert found.found() == set()
    assert found.forget() == []
    assert found.committed() == {HEAD}


def test_a_file_that_is_still_needed_and_was_read_is_read_again_first(found: Found) -> None:
    """The file was damaged while no process could notice it."""
    found.put(FIRST, WRONG)
    found.put(SECOND)
    found.commit(NORM)
    assert found.forget() == [("b", FIRST, 1)]
    assert found.committed() == set()


def test_a_file_of_a_tensor_that_is_committed_in_part_is_needed_and_was_read(found: Found) -> None:
    found.put(FIRST)
    found.put(SECOND, WRONG)
    found.commit(HEAD, whole=False)
    assert found.forget() == [("b", SECOND, 1)]


def test_a_file_that_nothing_needs_any_more_or_that_nothing_was_computed_from_is_not_read(
    found: Found,
) -> None:
    """A check reads a file that is not needed any more; an unused file is read when needed."""
    found.put(FIRST, WRONG)
    found.put(SECOND, WRONG)
    found.commit(HEAD)
    assert found.forget() == []
    assert found.committed() == {HEAD}
