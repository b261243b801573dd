"""Promise: of files that look changed, the bytes that were read decide, and no others."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ledger_rows import change
from loopback_hub import Hub
from made_up_plans import plan as plan_of
from merging import merge, shards_of, working_in
from safetensors.torch import save_file
from small_batches import use_small_batches
from tiny_models import TWO_LAYERS, random_tensors, write_family

from resumerge.engine.checks.contents import (
    changed_files,
    read_before,
    touched_files,
    units_of,
)
from resumerge.engine.checks.drift import check_contents
from resumerge.engine.context import RunContext
from resumerge.engine.evaluation.evaluator import Evaluator
from resumerge.engine.evaluation.input_hashes import content_hashes
from resumerge.engine.recovery.touched_sources import record_touched, stamps_of
from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import InputError, Resumable
from resumerge.event_kinds import EventKind
from resumerge.ledger import Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.ledger.units import Units
from resumerge.options import Options
from resumerge.planning import Plan, estimate
from resumerge.planning.plan import Unit
from resumerge.recipe import ModelRef
from resumerge.sources import open_source
from resumerge.storage import Storage
from resumerge.tensors import stored_in

FILE = "model.safetensors"
RECIPES = {
    "computed": "merge_method: linear\nmodels: [{model: base}, {model: math}]\n"
    "parameters: {weight: 0.5}\ndtype: float32\nout_dtype: bfloat16\n",
    "statistics": "merge_method: ties\nbase_model: base\nmodels: [{model: math}]\n"
    "parameters: {weight: 1.0, density: 0.5}\ndtype: float32\n",
    "copied": "merge_method: passthrough\nslices:\n"
    "  - sources: [{model: base, layer_range: [0, 1]}]\n"
    "  - sources: [{model: math, layer_range: [1, 2]}]\n",
}

BATCHES = {"computed": 7, "statistics": 7, "copied": 19}
"""The number of batches after which a tensor is committed in part, and `math` was read."""


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make batches as small as one block."""
    use_small_batches(monkeypatch, 2048)


@dataclass
class Stopped:
    """A merge whose disk was full after some batches."""

    models: Path
    recipe: str
    path: Path

    def plan(self) -> Plan:
        """Return the plan of the recipe with the models as they are now."""
        with working_in(self.models):
            sources = [open_source(ModelRef(name, name)) for name in ("base", "math")]
            return plan_of(self.recipe, *sources)

    def key(self, model: str) -> tuple[int, str]:
        """Return the number of a model's source, and the name of its file."""
        texts = [source.ref.text for source in self.plan().sources]
        return texts.index(model), FILE

    def rows(self) -> list[dict[str, Any]]:
        with closing(Ledger(self.path)) as ledger:
            return ledger.units.all()

    def touched(self) -> set[tuple[int, str]]:
        with closing(Ledger(self.path)) as ledger:
            return touched_files(self.plan(), ledger)

    def changed(self) -> set[tuple[int, str]]:
        """Return the touched files that have changed, and check that the progress is complete."""
        plan, told = self.plan(), []
        with closing(Ledger(self.path)) as ledger:
            touched = touched_files(plan, ledger)
            found = changed_files(
                plan, estimate(plan), ledger, touched, lambda *now: told.append(now)
            )
        assert told == sorted(told)
        assert not told or told[-1][0] == told[-1][1]
        return found

    def units(self, *changed: tuple[int, str]) -> set[int]:
        plan = self.plan()
        with closing(Ledger(self.path)) as ledger:
            return set(units_of(plan, ledger, touched_files(plan, ledger), {*changed}))

    def flip(self, model: str, unit: int, block: int) -> None:
        """Flip a bit in the last byte of a model that a block reads."""
        plan = self.plan()
        wanted, (number, _) = plan.units[unit], self.key(model)
        [tensor] = [t for t in stored_in(wanted.expression) if t.source == number]
        at = (
            tensor.offset
            + wanted.block_run(range(block + 1)).length * tensor.nbytes // tensor.numel
            - 1
        )
        with (self.models / model / FILE).open("r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1]))

    def touch(self, model: str) -> None:
        os.utime(self.models / model / FILE)


def interrupt(
    monkeypatch: pytest.MonkeyPatch, models: Path, recipe: str, out: Path, batches: int
) -> None:
    """Start a merge, and stop it by a full disk after so many batches."""
    commit, left = Units.commit_batch, iter(range(batches))

    def until_full(units: Units, *batch: Any) -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        commit(units, *batch)

    with monkeypatch.context() as patch:
        patch.setattr(Units, "commit_batch", until_full)
        with pytest.raises(Resumable):
            merge(models, recipe, out, threads=2)


@pytest.fixture(params=RECIPES)
def stopped(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Stopped:
    models = write_family(tmp_path / "models", TWO_LAYERS)
    recipe = RECIPES[request.param]
    interrupt(monkeypatch, models, recipe, tmp_path / "out", BATCHES[request.param])
    [run] = RunStore(tmp_path / "out.state").runs()
    found = Stopped(models, recipe, run / "ledger.db")
    assert any(0 < row["committed_blocks"] < row["blocks"] for row in found.rows())
    return found


def blocks(stopped: Stopped, model: str) -> Iterator[tuple[int, int, bool]]:
    """Yield each block of the units that read a model: unit, block, and whether it is committed."""
    number, _ = stopped.key(model)
    for unit, row in zip(stopped.plan().units, stopped.rows()):
        if any(tensor.source == number for tensor in stored_in(unit.expression)):
            for block in range(unit.blocks):
                yield unit.number, block, block < row["committed_blocks"]


@pytest.mark.parametrize("model", ["base", "math"])
def test_every_byte_that_was_read_counts(stopped: Stopped, model: str) -> None:
    """A file that is touched, and whose bytes are the same, has not changed."""
    read = [(unit, block) for unit, block, was_read in blocks(stopped, model) if was_read]
    for other in ("base", "math"):
        stopped.touch(other)
    assert stopped.changed() == set()
    for unit, block in [read[0], read[len(read) // 2], read[-1]]:
        stopped.flip(model, unit, block)
        assert stopped.changed() == {stopped.key(model)}
        stopped.flip(model, unit, block)
    assert stopped.changed() == set()


def test_bytes_that_were_not_read_do_not(stopped: Stopped) -> None:
    for unit, block in [(u, b) for u, b, was_read in blocks(stopped, "math") if not was_read][:5]:
        stopped.flip("math", unit, block)
    assert stopped.touched() == {stopped.key("math")}
    assert stopped.changed() == set()


def test_what_was_not_read_before_is_not_called_the_same(stopped: Stopped) -> None:
    plan, key = stopped.plan(), stopped.key("math")
    with closing(Ledger(stopped.path)) as ledger:
        assert read_before(plan, ledger, {key}) == "some"
    blocks = {unit.number: unit.blocks for unit in plan.units}
    change(stopped.path, "UPDATE units SET committed_blocks = 0")
    with closing(Ledger(stopped.path)) as ledger:
        assert read_before(plan, ledger, {key}) == "none"
    change(stopped.path, "UPDATE units SET committed_blocks = blocks")
    with closing(Ledger(stopped.path)) as ledger:
        assert {row["number"]: row["committed_blocks"] for row in ledger.units.all()} == blocks
        assert read_before(plan, ledger, {key}) == "all"


def test_a_file_is_read_to_its_first_difference(
    stopped: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check reads no block of a file after the first one that differs."""
    read = [(unit, block) for unit, block, was_read in blocks(stopped, "math") if was_read]
    stopped.flip("math", *read[1])
    again: list[tuple[int, int]] = []
    real = Evaluator.input_hashes

    def noted(evaluator: Evaluator, unit: Unit, index: int, operands: Sequence[int]) -> bytes:
        again.append((unit.number, index))
        return real(evaluator, unit, index, operands)

    monkeypatch.setattr(Evaluator, "input_hashes", noted)
    assert stopped.changed() == {stopped.key("math")}
    assert again == read[:2]


def test_what_is_not_touched_is_not_read(stopped: Stopped) -> None:
    assert stopped.touched() == set()
    assert stopped.units() == set()
    stopped.touch("math")
    assert stopped.touched() == {stopped.key("math")}
    with closing(Ledger(stopped.path)) as ledger:
        sources = {source.ref.text: source for source in stopped.plan().sources}
        ledger.set_stamps({"math": stamps_of(sources["math"])})
    assert stopped.touched() == set()


def test_both_models_are_named_where_both_differ(stopped: Stopped) -> None:
    for model in ("base", "math"):
        unit, block, _ = next(found for found in blocks(stopped, model) if found[2])
        stopped.flip(model, unit, block)
    assert stopped.changed() == {stopped.key("base"), stopped.key("math")}


def test_of_an_adapted_model_the_part_that_differs_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model and its adapter are hashed together: the stamps show which of them has changed."""
    models = write_family(tmp_path / "models", TWO_LAYERS)
    query = "base_model.model.model.layers.0.self_attn.q_proj"
    for seed, name in enumerate(("adapter", "other")):
        tensors = random_tensors({f"{query}.lora_A.weight": (2, 16)}, seed)
        tensors |= random_tensors({f"{query}.lora_B.weight": (16, 2)}, seed)
        (models / name).mkdir()
        save_file(tensors, models / name / "adapter_model.safetensors")
        config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4}
        (models / name / "adapter_config.json").write_text(json.dumps(config))
    recipe = RECIPES["computed"].replace("model: base", "model: base+adapter")
    interrupt(monkeypatch, models, recipe, tmp_path / "out", batches=24)
    shutil.copytree(models / "other", models / "adapter", dirs_exist_ok=True)
    with pytest.raises(InputError) as refused:
        merge(models, recipe, tmp_path / "out")
    [line] = [p.found for p in refused.value.problems]
    assert "adapter_model.safetensors has different contents" in line
    assert "base" not in line.replace("base+adapter", "")


def test_a_local_model_after_one_of_the_hub_is_compared_with_its_own_hashes(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model of the Hub has no input hashes, because its content is pinned."""
    models = write_family(tmp_path / "models", TWO_LAYERS)
    hub.commit("org/base", {path.name: path.read_bytes() for path in (models / "base").iterdir()})
    recipe = RECIPES["computed"].replace("model: base", "model: org/base")
    interrupt(monkeypatch, models, recipe, tmp_path / "out", BATCHES["computed"])
    os.utime(models / "math" / FILE)
    merge(models, recipe, tmp_path / "out")
    merge(models, recipe, tmp_path / "calm")
    assert shards_of(tmp_path / "out") == shards_of(tmp_path / "calm")


def test_hashes_that_are_not_there_prove_nothing(stopped: Stopped) -> None:
    change(stopped.path, "UPDATE units SET input_hashes = NULL WHERE committed_blocks")
    stopped.touch("math")
    is_copied = "passthrough" in stopped.recipe  # whose output is what was read
    assert stopped.changed() == (set() if is_copied else {stopped.key("math")})


def test_what_was_computed_of_a_changed_model_is_pending_and_nothing_else(
    stopped: Stopped,
) -> None:
    """An incomplete unit that read a touched model is pending: its statistics have no hash."""
    read = {unit for unit, _, was_read in blocks(stopped, "math") if was_read}
    rows = stopped.rows()
    stopped.touch("math")
    assert stopped.units(stopped.key("math")) == read
    assert stopped.units() == {unit for unit in read if not rows[unit]["checksum"]}
    stopped.touch("base")
    begun = {row["number"] for row in rows if row["committed_blocks"] and not row["checksum"]}
    assert stopped.units(stopped.key("math")) == read | begun
    assert stopped.units() == begun


def test_a_check_changes_nothing_and_what_it_found_is_taken_afterwards(
    stopped: Stopped, tmp_path: Path
) -> None:
    """The check only reads the ledger; `record_touched` writes later what it found."""
    stopped.touch("math")
    plan, notes = stopped.plan(), list[str]()
    context = RunContext(Options(), Reporter(), Storage(), StopRequest(), RunStore(tmp_path))
    with closing(Ledger(stopped.path, read_only=True)) as ledger:
        touched = check_contents(context, ledger.run(), plan, estimate(plan), ledger)
    assert touched is not None
    reporter = Reporter()
    reporter.note = notes.append  # type: ignore[method-assign]
    with closing(Ledger(stopped.path)) as ledger:
        record_touched(touched, plan.sources, ledger, reporter)
        assert check_contents(context, ledger.run(), plan, estimate(plan), ledger) is None
        kinds = {event["kind"] for event in ledger.events.all()}
        pending = [u.committed_blocks == 0 for u in ledger.units.progress()]
    assert kinds >= {EventKind.SOURCE_TOUCHED}
    assert all(pending[unit] for unit in touched.units)
    [note] = notes
    assert note.startswith("1 model file: the modification time changed; ")


def test_a_content_has_one_name_however_it_was_merged(stopped: Stopped, tmp_path: Path) -> None:
    """Interruptions do not change a content hash; another byte changes only its model's."""

    def names(state: str) -> dict[str, str]:
        [run] = RunStore(tmp_path / state).runs()
        with closing(Ledger(run / "ledger.db")) as ledger:
            found = content_hashes(stopped.plan(), ledger)
            assert found == {row["model"]: row["content"] for row in ledger.sources()}
        return found

    merge(stopped.models, stopped.recipe, tmp_path / "out")
    merge(stopped.models, stopped.recipe, tmp_path / "again")
    assert names("out.state") == names("again.state")
    unit, block, _ = next(found for found in blocks(stopped, "math") if found[1] > 0)
    stopped.flip("math", unit, block)
    merge(stopped.models, stopped.recipe, tmp_path / "other")
    assert names("other.state")["base"] == names("out.state")["base"]
    assert names("other.state")["math"] != names("out.state")["math"]
