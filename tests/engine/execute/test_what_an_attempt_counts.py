"""Promise: an attempt counts its own work, and reports the progress of the whole run."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from merging import Told, working_in
from small_batches import use_small_batches
from tiny_models import TWO_LAYERS, write_family

from resumerge.engine.execute import committer
from resumerge.engine.execute.committer import Committer, WrittenBlocks
from resumerge.engine.lifecycle.session import Session
from resumerge.engine.recovery.checked_shard import unit_of_row
from resumerge.engine.reporter import ProgressUpdate
from resumerge.errors import Resumable
from resumerge.ledger import LEDGER_FILE, SNAPSHOT_FILE, Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.ledger.units import Units
from resumerge.options import Options

RECIPE = (
    "merge_method: linear\nmodels: [{model: base}, {model: math}]\n"
    "parameters: {weight: 0.5}\ndtype: float32\nout_dtype: bfloat16\n"
)
BATCHES = 12


class Watching(Told):
    """A reporter that also keeps all progress updates."""

    def __init__(self) -> None:
        super().__init__()
        self.updates: list[ProgressUpdate] = []

    def progressed(self, progressed: ProgressUpdate) -> None:
        self.updates.append(progressed)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return write_family(tmp_path / "models", TWO_LAYERS)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make batches of one block each, and sample each of them."""
    use_small_batches(monkeypatch, 2048)
    monkeypatch.setattr(committer, "LEDGER_SAMPLE_SECONDS", 0.0)
    monkeypatch.setattr(committer, "SAMPLES", math.inf)  # each batch is sampled, however slow it is


def merge(models: Path, out: Path) -> Watching:
    config = out.with_suffix(".yaml")
    config.write_text(RECIPE)
    told = Watching()
    options = Options(state_dir=out.with_suffix(".state"), shard_size=8000, threads=2)
    with working_in(models):
        Session(options, told).run(config, out)
    return told


@pytest.fixture
def folder(models: Path, tmp_path: Path) -> Iterator[Path]:
    """Yield the folder of a run whose disk was full after some batches."""
    commit, left = Units.commit_batch, iter(range(BATCHES))

    def until_full(units: Units, *batch: Any) -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        commit(units, *batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Units, "commit_batch", until_full)
        with pytest.raises(Resumable):
            merge(models, tmp_path / "out")
    (folder,) = RunStore(tmp_path / "out.state").runs()
    yield folder


def test_the_work_of_two_attempts_adds_up(folder: Path, models: Path, tmp_path: Path) -> None:
    with closing(Ledger(folder / LEDGER_FILE)) as ledger:
        before, [stopped] = ledger.totals(), ledger.attempts.all()
        written = sum(
            unit_of_row(row).block_span(index)[1]
            for row in ledger.units.all()
            for index in range(row["committed_blocks"])
        )
    assert (stopped["batches"], stopped["outcome"]) == (BATCHES, "error")
    assert stopped["units_committed"] == before.units_committed > 0
    assert stopped["bytes_committed"] == written > 0
    told = merge(models, tmp_path / "out").updates
    with closing(Ledger(folder / LEDGER_FILE)) as ledger:
        after, [_, done] = ledger.totals(), ledger.attempts.all()
        last = ledger.samples.last() or {}
        samples = [group["done"] for group in ledger.samples.groups(1000)]
    assert done["units_committed"] == after.units - before.units_committed
    assert done["bytes_committed"] == after.nbytes - written
    assert done["peak_rss"] > 0 and done["batch_bytes"] == 2048
    assert 0 < done["merging_seconds"] <= done["seconds"]
    assert last["bytes_done"] == after.nbytes, "of the run, not of the attempt"
    assert samples == sorted(samples)
    assert told[0].bytes_done > written
    assert [update.bytes_done for update in told] == sorted(update.bytes_done for update in told)
    assert told[0].units_done >= before.units_committed
    assert told[-1].units_done == told[-1].units_total == after.units
    assert told[-1].bytes_total == after.nbytes
    assert all(update.bytes_done <= after.nbytes for update in told)


def test_what_is_committed_before_it_is_reported_counts_once(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = Committer.submit

    def and_wait(self: Committer, batch: list[WrittenBlocks]) -> None:
        submit(self, batch)
        self.wait()

    monkeypatch.setattr(Committer, "submit", and_wait)
    told = merge(models, tmp_path / "out").updates
    steps = [after.bytes_done - before.bytes_done for before, after in pairwise(told)]
    assert steps and max(steps) <= 2048, "a batch"
    assert told[-1].bytes_done == told[-1].bytes_total


def test_each_sealed_shard_is_in_the_snapshot(folder: Path) -> None:
    """A damaged ledger costs no shard, because its snapshot has the sealed ones."""
    with closing(Ledger(folder / SNAPSHOT_FILE, read_only=True)) as snapshot:
        sealed = snapshot.shards.sealed()
        assert snapshot.attempts.all()[-1]["outcome"] == "error", "and how the attempt ended"
    with closing(Ledger(folder / LEDGER_FILE)) as ledger:
        assert sealed == ledger.shards.sealed() != []


def test_a_shard_that_is_sealed_is_in_the_snapshot_from_then_on(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, commit = [], Units.commit_batch

    def look(units: Units, *batch: Any) -> None:
        folder = units._db.path.parent
        with (
            closing(Ledger(folder / SNAPSHOT_FILE, read_only=True)) as snapshot,
            closing(Ledger(folder / LEDGER_FILE, read_only=True)) as ledger,
        ):
            seen.append(snapshot.shards.sealed() == ledger.shards.sealed())
        commit(units, *batch)

    monkeypatch.setattr(Units, "commit_batch", look)
    merge(models, tmp_path / "out")
    assert all(seen)


def test_samples_come_at_a_bounded_rate(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "LEDGER_SAMPLE_SECONDS", 1e9)
    merge(models, tmp_path / "out")
    (folder,) = RunStore(tmp_path / "out.state").runs()
    with closing(Ledger(folder / LEDGER_FILE)) as ledger:
        assert (ledger.samples.last() or {})["id"] == 3, (
            "twice at the beginning, and of the first batch"
        )
        assert ledger.attempts.all()[0]["batches"] > BATCHES
