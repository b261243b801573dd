"""Promise: a model whose files look changed is the same if what was read of it is the same."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from ledger_rows import change
from merging import merge, working_in
from tiny_models import LLAMA, write_family

from resumerge.engine.checks.contents import changed_files, touched_files, units_of
from resumerge.engine.lifecycle.session import Session
from resumerge.engine.recovery.touched_sources import stamps_of
from resumerge.ledger import Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.planning import Plan, estimate
from resumerge.planning.plan import SourceFileKey
from resumerge.recipe import parse_recipe

RECIPE = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: math}, {model: code}]\n"
MATH, CODE = (0, "model.safetensors"), (1, "model.safetensors")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a finished run, `out`, beside its models."""
    folder = tmp_path_factory.mktemp("made")
    write_family(folder / "models", {**LLAMA, "num_hidden_layers": 1})
    merge(folder / "models", RECIPE, folder / "out")
    return folder


@dataclass
class Found:
    """A copy of the run's ledger and of its models."""

    models: Path
    ledger: Ledger
    moved: list[tuple[int, int]]

    @property
    def plan(self) -> Plan:
        """The plan of the models as they are now."""
        with working_in(self.models):
            return Session(Options()).plan(parse_recipe(RECIPE))

    def touched(self) -> set[SourceFileKey]:
        return touched_files(self.plan, self.ledger)

    def changed(self, touched: set[SourceFileKey] | None = None) -> set[SourceFileKey]:
        with working_in(self.models):
            plan = self.plan
            return changed_files(
                plan,
                estimate(plan),
                self.ledger,
                touched or self.touched(),
                lambda *moved: self.moved.append(moved),
            )

    def units(self, changed: set[SourceFileKey]) -> list[str]:
        """Return the names of the units that have to be computed again."""
        plan = self.plan
        return [plan.units[n].name for n in units_of(plan, self.ledger, self.touched(), changed)]

    def file(self, model: str) -> Path:
        return self.models / model / "model.safetensors"

    def flip(self, model: str, tensor: str) -> None:
        """Change the last byte of a tensor, and keep the file's time."""
        source = next(s for s in self.plan.sources if s.ref.name == model)
        info, before = source.tensors[tensor], self.file(model).stat()
        with self.file(model).open("r+b") as file:
            file.seek(info.offset + info.nbytes - 1)
            last = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([last ^ 1]))
        os.utime(self.file(model), ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.fixture
def found(made: Path, tmp_path: Path) -> Iterator[Found]:
    (run,) = RunStore(made / "out.state").runs()
    shutil.copytree(made / "models", tmp_path / "models")
    with closing(Ledger(Path(shutil.copy(run / "ledger.db", tmp_path)))) as ledger:
        found = Found(tmp_path / "models", ledger, [])
        ledger.set_stamps({s.ref.text: stamps_of(s) for s in found.plan.sources})
        yield found


def test_untouched(found: Found) -> None:
    assert found.touched() == set()
    assert found.changed({MATH, CODE}) == set(), "what was read is what is there"


def test_a_new_time_is_a_touch_and_no_change(found: Found) -> None:
    os.utime(found.file("code"))
    assert found.touched() == {CODE}
    assert found.changed() == set()
    assert found.units(set()) == []
    done, totals = zip(*found.moved)
    assert list(done) == sorted(done) and set(totals) == {done[-1]}
    assert done[-1] == sum(t.nbytes for t in found.plan.sources[1].tensors.values())


@pytest.mark.parametrize("how", ["copied", "another mode"])
def test_what_only_the_kernel_sees_is_a_touch_too(found: Found, how: str) -> None:
    file = found.file("math")
    if how == "copied":
        shutil.copy2(file, file.with_suffix(".copy"))
        file.with_suffix(".copy").replace(file)
    else:
        file.chmod(0o600)
    assert found.touched() == {MATH}
    assert found.changed() == set()


@pytest.mark.parametrize("tensor", ["model.norm.weight", "lm_head.weight"])
def test_one_bit_is_a_change_whatever_the_time_says(found: Found, tensor: str) -> None:
    found.flip("code", tensor)
    assert found.touched() == {CODE}
    assert found.changed() == {CODE}
    assert sorted(found.units({CODE})) == sorted(found.plan.sources[1].tensors)


def test_a_change_of_what_nobody_read_is_none(found: Found) -> None:
    """A difference in a tensor of which nothing is committed is not a change."""
    found.flip("code", "lm_head.weight")
    [number] = [u.number for u in found.plan.units if u.name == "lm_head.weight"]
    found.ledger.units.forget([number], "test")
    assert found.changed() == set()
    assert found.units(set()) == []


def test_without_a_stamp_each_file_is_touched(found: Found) -> None:
    """A ledger has no stamps of the models on a machine to which the run moved."""
    change(found.ledger.path, "UPDATE sources SET stamps = NULL WHERE number = 1")
    assert found.touched() == {CODE}
    change(found.ledger.path, "UPDATE sources SET stamps = NULL")
    assert found.touched() == {MATH, CODE}


def test_where_it_is_not_known_what_was_read_it_is_another(found: Found) -> None:
    """A touched file without input hashes counts as changed, because it cannot be compared."""
    os.utime(found.file("code"))
    change(found.ledger.path, "UPDATE units SET input_hashes = NULL WHERE name = 'lm_head.weight'")
    assert found.changed() == {CODE}


def test_a_tensor_that_was_not_finished_is_computed_again_where_a_model_was_touched(
    found: Found,
) -> None:
    """The statistics of an incomplete unit depend on blocks whose hashes are not known yet."""
    os.utime(found.file("code"))
    name = "model.embed_tokens.weight"
    change(found.ledger.path, f"UPDATE units SET blocks = 2 WHERE name = '{name}'")
    plan = found.plan
    [unit] = [unit for unit in plan.units if unit.name == name]
    object.__setattr__(unit, "block_elements", unit.numel // 2 + 1)
    assert unit.blocks == 2
    assert units_of(plan, found.ledger, {CODE}, set()) == [unit.number]
    assert units_of(plan, found.ledger, set(), set()) == []
