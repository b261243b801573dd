"""Promise: of another machine's work a ledger takes over the results, and nothing that was only
true there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ledger_rows import RUN, SHARD, UNIT, change

from resumerge.ledger import Ledger, UnitCommit
from resumerge.ledger.tables import TABLES
from resumerge.ledger.validators import MOST_SECONDS

SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
HASHES = b"there" + bytes(11)
STAMPS = '{"model.safetensors": [1]}'
MODELS = ("base", "math")


def source(number: int, model: str) -> dict[str, Any]:
    return {
        **{"number": number, "model": model, "kind": "local", "folder": f"/there/{model}"},
        **{"identity": "{}", "stamps": STAMPS},
    }


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """Yield a ledger of two shards of two tensors, and of two models.

    It was copied from a machine `there`, whose process was killed.
    """
    with closing(Ledger.create(tmp_path / "ledger.db")) as ledger:
        run = {**RUN, "host": "there", "output": "/there/out"}
        shards = [{**SHARD, "number": n, "name": name} for n, name in enumerate(SHARDS)]
        units = [{**UNIT, "number": n, "name": f"t{n}", "shard": n // 2} for n in range(4)]
        ledger.begin(run, [source(n, model) for n, model in enumerate(MODELS)], shards, units)
        ledger.attempts.start({"pid": 1, "host": "there", "boot_id": None})
        yield ledger


def commit(ledger: Ledger, *numbers: int, hashes: bytes = HASHES) -> None:
    units = [
        UnitCommit(number=n, hashes=hashes, input_hashes=HASHES, checksum=f"{n:032x}", seconds=0.5)
        for n in numbers
    ]
    ledger.units.commit_batch(1, 1, units, {"units_committed": 0, "bytes_committed": 0})


def results(ledger: Ledger) -> list[tuple[str, bytes, bytes, str, int | None, int | None]]:
    names = ("state", "block_hashes", "input_hashes", "checksum", "attempt", "batch")
    return [tuple(unit[name] for name in names) for unit in ledger.units.all()]  # type: ignore[misc]


def test_a_shard_of_another_machine_is_sealed_with_its_results(
    ledger: Ledger, tmp_path: Path
) -> None:
    """The other machine's results replace those that this machine computed of the shard."""
    commit(ledger, 0, 2, hashes=b"here" + bytes(12))
    before = results(ledger)
    with closing(Ledger.create(tmp_path / "other.db")) as other:
        units = [{**UNIT, "number": n, "name": f"t{n}"} for n in range(2)]
        other.begin(RUN, [], [{**SHARD, "name": SHARDS[0]}], units)
        other.attempts.start({"pid": 2, "host": "other", "boot_id": None})
        commit(other, 0, 1)
        theirs = other.units.all(0)
    ledger.shards.adopt_mirrored({0: theirs}, {SHARDS[0]: (24, "a" * 64)})
    taken = ("committed", HASHES, HASHES)
    assert results(ledger)[:2] == [(*taken, f"{n:032x}", None, None) for n in range(2)]
    assert results(ledger)[2:] == before[2:]
    assert [shard["state"] for shard in ledger.shards.all()] == ["sealed", "open"]
    assert ledger.mirrored.files() == {SHARDS[0]: (24, "a" * 64)}
    [event] = ledger.events.all("shard_from_mirror")
    assert event["data"] == {"shard": SHARDS[0], "units": 2}


def test_local_models_are_compared_after_another_machine_read_its_own(ledger: Ledger) -> None:
    """The recorded times of change are those of the files on this machine."""
    ledger.shards.adopt_mirrored({}, {})
    assert [row["stamps"] for row in ledger.sources()] == [STAMPS] * 2
    commit(ledger, 0, 1)
    ledger.shards.adopt_mirrored({0: ledger.units.all(0)}, {})
    assert [row["stamps"] for row in ledger.sources()] == [None] * 2


def test_what_this_machine_knows_of_the_mirror_is_kept(ledger: Ledger) -> None:
    ledger.mirrored.record(SHARDS[0], 24, "a" * 64)
    ledger.shards.adopt_mirrored({}, {SHARDS[0]: (25, "b" * 64), "config.json": (2, "c" * 64)})
    assert ledger.mirrored.files() == {SHARDS[0]: (24, "a" * 64), "config.json": (2, "c" * 64)}
    assert ledger.mirrored.checksums() == {SHARDS[0]: "a" * 64, "config.json": "c" * 64}


def test_a_ledger_that_moved_is_of_this_machine(ledger: Ledger) -> None:
    commit(ledger, 0, 1, 2)
    ledger.shards.seal(0)
    ledger.mirrored.record(SHARDS[0], 24, "a" * 64)
    here = {"output": "/here", "config_path": "/c.yaml", "mirror": "/mirror", "host": "here"}
    ledger.move_here(here, {1: "/here/math"}, [2], 1)
    run = ledger.run()
    assert {name: run[name] for name in here} == here
    assert run["state"] == "interrupted"
    assert [row["folder"] for row in ledger.sources()] == ["/there/base", "/here/math"]
    assert [unit["state"] for unit in ledger.units.all()] == ["committed"] * 2 + ["pending"] * 2
    assert [shard["state"] for shard in ledger.shards.all()] == ["sealed", "open"]
    assert list(ledger.mirrored.checksums()) == SHARDS[:1]
    [attempt] = ledger.attempts.all()
    assert (attempt["outcome"], attempt["ended"]) == ("killed", attempt["last_seen"])
    [event] = ledger.events.all("moved_here")
    told = {"units": 1, "mirror": "/mirror", "came_from": "there", "shards": 1}
    assert event["data"] == told


def test_nothing_is_in_another_mirror_and_all_is_in_the_same_by_another_name(
    ledger: Ledger,
) -> None:
    ledger.set_mirror("/one")
    ledger.mirrored.record(SHARDS[0], 24, "a" * 64)
    ledger.set_mirror_url("/also/one")
    assert (ledger.run()["mirror"], list(ledger.mirrored.checksums())) == (
        "/also/one",
        SHARDS[:1],
    )
    ledger.set_mirror("/two")
    assert (ledger.run()["mirror"], ledger.mirrored.checksums()) == ("/two", {})


def test_what_is_noted_of_a_model_is_noted_of_that_one(ledger: Ledger) -> None:
    ledger.set_stamps({"math": "{}"})
    ledger.set_contents({"base": "0" * 32})
    rows = ledger.sources()
    assert [row["model"] for row in rows] == list(MODELS)
    assert [row["stamps"] for row in rows] == [STAMPS, "{}"]
    assert [row["content"] for row in rows] == ["0" * 32, None]


def test_sources_are_in_the_order_of_the_plan(ledger: Ledger) -> None:
    change(ledger.path, "UPDATE sources SET number = 5 WHERE model = 'base'")
    assert [row["model"] for row in ledger.sources()] == ["math", "base"]


@pytest.mark.parametrize("mirrored", [None, (40, "a" * 64)])
def test_a_shard_that_a_task_left_is_sealed_with_its_results(
    ledger: Ledger, mirrored: tuple[int, str] | None
) -> None:
    done = [
        UnitCommit(
            number=n, hashes=HASHES, input_hashes=bytes(16), checksum=f"{n:032x}", seconds=1e300
        )
        for n in (2, 3)
    ]
    ledger.shards.adopt_computed(1, done, mirrored)
    assert results(ledger)[2:] == [
        ("committed", HASHES, bytes(16), f"{n:032x}", None, None) for n in (2, 3)
    ]
    assert {unit["seconds"] for unit in ledger.units.all(1)} == {MOST_SECONDS}
    assert (ledger.shards.open(), ledger.shards.sealed()) == (SHARDS[:1], SHARDS[1:])
    assert ledger.mirrored.files() == ({SHARDS[1]: mirrored} if mirrored else {})
    assert [event["data"] for event in ledger.events.all("shard_adopted")] == [
        {"shard": SHARDS[1], "units": 2}
    ]


def test_every_result_of_a_unit_is_committed_with_it() -> None:
    declared = {column.name for column in TABLES["units"].columns if column.result}
    assert {
        *UnitCommit(
            number=0, hashes=HASHES, input_hashes=bytes(16), checksum=None, seconds=1.0
        ).results
    } == declared | {"state"}
