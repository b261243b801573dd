"""Promise: a batch that read a file is committed only if the file is the one from the beginning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from merging import merge, shards_of
from small_batches import use_small_batches
from tiny_models import TWO_LAYERS, write_family

from resumerge.engine.execute.committer import Committer, WrittenBlocks
from resumerge.errors import Resumable
from resumerge.ledger.units import Units
from resumerge.tensors import stored_in

COMPUTED = (
    "merge_method: linear\nmodels: [{model: base}, {model: math}]\n"
    "parameters: {weight: 0.5}\ndtype: float32\n"
)
ONE_AFTER_THE_OTHER = (
    "merge_method: passthrough\nslices:\n"
    "  - sources: [{model: base, layer_range: [0, 1]}]\n"
    "  - sources: [{model: math, layer_range: [1, 2]}]\n"
)
CHANGE_BEFORE = 3


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return write_family(tmp_path / "models", TWO_LAYERS)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make batches of one block each."""
    use_small_batches(monkeypatch, 2048)


def committed_before_the_change(
    models: Path, changed: str, recipe: str, out: Path, batch: int = CHANGE_BEFORE
) -> list[set[str]]:
    """Merge; change a model's last byte just before a batch of that number would be committed.

    Returns:
        the models that each committed batch was computed from.
    """
    commit, journal = Committer._commit, Units.commit_batch
    committed: list[set[str]] = []
    now: list[set[str]] = []

    def change_first(committer: Committer, written_blocks: list[WrittenBlocks]) -> None:
        sources = committer._execution.plan.sources
        tensors = [t for written in written_blocks for t in stored_in(written.unit.expression)]
        now.append({sources[tensor.source].ref.text for tensor in tensors})
        if len(now) == batch:
            with (models / changed / "model.safetensors").open("r+b") as file:
                file.seek(-1, 2)
                file.write(b"?")
        commit(committer, written_blocks)

    def told(units: Units, *batch: Any) -> None:
        committed.append(now[-1])
        journal(units, *batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Committer, "_commit", change_first)
        patch.setattr(Units, "commit_batch", told)
        with pytest.raises(Resumable, match="changed or disappeared during the merge"):
            merge(models, recipe, out)
    return committed


def test_a_batch_that_read_it_is_not_committed(models: Path, tmp_path: Path) -> None:
    committed = committed_before_the_change(models, "math", COMPUTED, tmp_path / "out")
    assert len(committed) == CHANGE_BEFORE - 1


def test_a_batch_that_did_not_is(models: Path, tmp_path: Path) -> None:
    """All batches before the first one that read the changed file are committed."""
    committed = committed_before_the_change(models, "math", ONE_AFTER_THE_OTHER, tmp_path / "out")
    assert len(committed) > CHANGE_BEFORE
    assert set().union(*committed) == {"base"}


def test_the_model_is_not_done_if_a_file_changed_after_its_last_batch(
    models: Path, tmp_path: Path
) -> None:
    """The merge reads nothing more of `base` when its file changes."""
    calm = merge(models, ONE_AFTER_THE_OTHER, tmp_path / "calm")
    before = (models / "base" / "model.safetensors").read_bytes()
    out = tmp_path / "out"
    committed = committed_before_the_change(models, "base", ONE_AFTER_THE_OTHER, out, 20)
    assert len(committed) > 20
    assert not (out / "config.json").exists()
    (models / "base" / "model.safetensors").write_bytes(before)
    merge(models, ONE_AFTER_THE_OTHER, out)
    assert shards_of(out) == shards_of(calm)
