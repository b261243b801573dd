"""Promise: recovery creates no file too early, keeps the mirror's shards, and reports its reads."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from ledger_rows import change
from merging import merge, working_in
from tiny_models import TWO_LAYERS, write_family

from resumerge.engine.lifecycle.session import Session
from resumerge.engine.recovery.recovery import Recovery
from resumerge.engine.shards.shard_files import ShardFiles
from resumerge.ledger import LEDGER_FILE, Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.planning import Plan
from resumerge.recipe import parse_recipe
from resumerge.storage import Storage

RECIPE = "merge_method: passthrough\nmodels: [{model: math}]\n"


@dataclass
class Found:
    """A finished run of several shards."""

    plan: Plan
    ledger: Ledger
    out: Path
    moved: list[tuple[int, int]] = field(default_factory=list)

    def names(self) -> list[str]:
        return [shard.name for shard in self.plan.shards]

    def units(self, shard: int) -> list[int]:
        found = self.plan.shards[shard]
        return list(range(found.first, found.last))

    def open(self, shard: int) -> Path:
        """Reopen a sealed shard, and return its partial file."""
        again = "UPDATE shards SET state = 'open', sealed_at = NULL WHERE number = ?"
        change(self.ledger.path, again, [shard])
        path = self.out / self.names()[shard]
        return path.rename(path.with_name(f"{path.name}.partial"))

    def recover(self, *suspects: int, lazy: bool = False) -> list[int]:
        """Recover, and return the units that are pending then."""
        storage, told = Storage(), lambda *now: self.moved.append(now)
        with closing(ShardFiles(self.plan, self.out, storage)) as files:
            again = Recovery(self.plan, self.ledger, files, storage, {*suspects}, told, lazy).run()
        return [number for number, known in enumerate(again) if not known.checksum]

    def events(self) -> list[str]:
        known = {"source_touched", "stopped"}
        return [event["kind"] for event in self.ledger.events.all() if event["kind"] not in known]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    write_family(folder / "models", TWO_LAYERS)
    merge(folder / "models", RECIPE, folder / "out", shard_size=8000)
    return folder


@pytest.fixture
def found(made: Path, tmp_path: Path) -> Iterator[Found]:
    with working_in(made / "models"):
        plan = Session(Options(shard_size=8000)).plan(parse_recipe(RECIPE))
    (run,) = RunStore(made / "out.state").runs()
    out = Path(shutil.copytree(made / "out", tmp_path / "out"))
    with closing(Ledger(Path(shutil.copy(run / LEDGER_FILE, tmp_path)))) as ledger:
        yield Found(plan, ledger, out)


@pytest.mark.parametrize("lazy", [False, True])
def test_a_shard_without_anything_in_it_gives_its_space_back_where_shards_are_freed(
    found: Found, lazy: bool
) -> None:
    partial, before = found.open(1), found.events()
    found.ledger.units.forget(found.units(1), "noted")
    assert found.recover(lazy=lazy) == found.units(1)
    assert partial.exists() is not lazy
    assert found.events() == [*before, "noted"]


@pytest.mark.parametrize("lazy", [False, True])
def test_one_tensor_in_it_is_enough_to_keep_it(found: Found, lazy: bool) -> None:
    several = max(range(len(found.names())), key=lambda number: len(found.units(number)))
    partial, others = found.open(several), found.units(several)[1:]
    assert others
    found.ledger.units.forget(others, "noted")
    data = partial.read_bytes()
    assert found.recover(lazy=lazy) == others
    assert partial.read_bytes() == data


@pytest.mark.parametrize("lazy", [False, True])
def test_one_that_is_lost_gets_its_file_later_where_shards_are_freed(
    found: Found, lazy: bool
) -> None:
    partial = found.open(1)
    size = partial.stat().st_size
    partial.unlink()
    assert found.recover(lazy=lazy) == found.units(1)
    assert partial.exists() is not lazy
    assert lazy or partial.stat().st_size == size
    assert found.events()[-1] == "shard_lost"


def test_one_that_the_mirror_alone_has_is_sealed_and_one_that_is_nowhere_is_lost(
    found: Found,
) -> None:
    names = found.names()
    found.ledger.set_mirror("/mirror")
    found.ledger.mirrored.record(names[0], (found.out / names[0]).stat().st_size, "a" * 64)
    for name in names[:2]:
        (found.out / name).unlink()
    assert found.recover() == found.units(1)
    assert found.ledger.shards.open() == [names[1]]
    assert not (found.out / names[0]).exists()


def test_one_that_the_mirror_has_and_that_is_damaged_here_is_computed_again(found: Found) -> None:
    """The shard here is the one that `verify` and the user read."""
    names = found.names()
    found.ledger.set_mirror("/mirror")
    found.ledger.mirrored.record(names[0], (found.out / names[0]).stat().st_size, "a" * 64)
    (found.out / names[0]).write_bytes(b"cut off")
    assert found.recover() == found.units(0)
    assert found.ledger.mirrored.checksums() == {}


def test_suspects_are_compared_and_nothing_else_and_it_is_told_how_far(found: Found) -> None:
    """One of two damaged tensors in sealed shards is a suspect."""
    first, second = found.plan.units[found.units(0)[0]], found.plan.units[found.units(1)[-1]]
    for unit in (first, second):
        with (found.out / found.names()[unit.shard]).open("r+b") as file:
            file.seek(unit.offset)
            byte = file.read(1)[0]
            file.seek(unit.offset)
            file.write(bytes([byte ^ 1]))
    suspects = [unit.number for unit in found.plan.units if unit is not first]
    assert found.recover(*suspects) == [second.number]
    total = sum(found.plan.units[number].nbytes for number in suspects)
    done = [now for now, _ in found.moved]
    assert (len(done), sorted(done), done[-1]) == (len(suspects), done, total)
    assert {of for _, of in found.moved} == {total}
    assert found.ledger.shards.open() == [found.names()[1]]
    assert (found.out / f"{found.names()[1]}.partial").exists()
