"""Promise: a run is found by its id, by its output folder however that is written, as the newest,
and also where its ledger is damaged.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from ledger_rows import RUN, SHARD, UNIT

from resumerge.errors import InputError
from resumerge.ledger import LEDGER_FILE, Ledger, take_snapshot
from resumerge.ledger.run_store import STAGED, RunStore
from resumerge.storage import Storage

Add = Callable[..., Path]


@pytest.fixture
def add(tmp_path: Path) -> Add:
    """Return a function that adds a run to the state folder, `state`."""

    def add(name: str, created: int, output: Path | str) -> Path:
        folder = tmp_path / "state" / name
        folder.mkdir(parents=True)
        at = f"2026-01-01T00:00:{created:02}+00:00"
        with closing(Ledger.create(folder / LEDGER_FILE)) as ledger:
            run = {**RUN, "id": name, "created": at, "output": str(output)}
            ledger.begin(run, [], [SHARD], [UNIT])
            take_snapshot(ledger, Storage())
        return folder

    return add


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "state")


def test_runs_are_in_the_order_of_their_making(add: Add, store: RunStore) -> None:
    """Two runs of one moment are in the order of their names."""
    assert store.runs() == []
    first, third, second = add("c", 1, "/1"), add("a", 3, "/2"), add("b", 2, "/3")
    assert store.runs() == [first, second, third]
    assert store.find(None) == third
    again = add("d", 3, "/4")
    assert store.runs() == [first, second, third, again]


def test_a_folder_that_is_being_made_or_removed_is_no_run(add: Add, store: RunStore) -> None:
    run, fresh = add("run", 1, "/1"), add(f"fresh{STAGED}", 2, "/1")
    (store.folder / "something else").mkdir()
    assert store.runs() == [run]
    assert store.of_output(Path("/1")) == [run]
    assert store.staged() == [fresh]
    assert store.publish(fresh, Storage()) == store.folder / "fresh"
    assert store.find(None) == store.folder / "fresh"
    assert store.staged() == []


def test_a_run_is_found_by_its_id_and_before_that_of_an_output_of_the_name(
    add: Add, store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    by_id, by_output = add("merged", 1, "/1"), add("other", 2, tmp_path / "merged")
    assert store.find("merged") == by_id
    assert store.find(str(tmp_path / "merged")) == by_output
    assert store.find("./merged") == by_output


def test_an_output_is_the_same_by_any_path(add: Add, store: RunStore, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "other").symlink_to("real")
    run = add("run", 1, tmp_path / "link")
    for name in ("link", "real", "other"):
        assert store.of_output(tmp_path / name) == [run], name
    assert store.of_output(tmp_path / "none") == []


def test_of_the_runs_of_one_output_the_newest_is_meant(add: Add, store: RunStore) -> None:
    new, old = add("a", 2, "/out"), add("b", 1, "/out")
    assert store.of_output(Path("/out")) == [old, new]
    assert store.find("/out") == new


@pytest.mark.parametrize("damage", [b"\xa5" * 5000, None], ids=["damaged", "gone"])
def test_a_run_is_found_by_its_snapshot(add: Add, store: RunStore, damage: bytes | None) -> None:
    run = add("run", 1, "/out")
    (run / LEDGER_FILE).unlink()
    if damage is not None:
        (run / LEDGER_FILE).write_bytes(damage)
    assert store.runs() == store.of_output(Path("/out")) == [run]


def test_where_there_is_none_those_that_there_are_are_named(
    add: Add, store: RunStore, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="There is no run yet") as none:
        store.find(None)
    assert none.value.problems[0].found == "no runs in this state folder"
    for number in range(6):
        add(f"run{number}", number, f"/{number}")
    for file in (store.folder / "run3").iterdir():
        file.write_bytes(b"damaged")
    with pytest.raises(InputError, match="There is no run 'other'") as error:
        store.find("other")
    [problem] = error.value.problems
    found = problem.found.split(", ")
    assert len(found) == 5 and found[-1] == "run5", "the newest"
    assert "run3 (ledger and snapshot damaged)" in problem.found or "run3" not in problem.found
    assert f"resumerge run {store.folder}/run3/recipe.yaml OUT" in problem.fix


@pytest.mark.parametrize(
    ("output", "begins"),
    [
        ("merged", "merged-"),
        ("a model, ähnlich", "a-model-hnlich-"),
        ("--", "merge-"),
        ("o" * 60, "o" * 40 + "-"),
    ],
)
def test_a_run_s_id_is_its_output_s_name_as_far_as_a_command_can_have_it(
    store: RunStore, output: str, begins: str
) -> None:
    folders = {store.stage(output, Storage()) for _ in range(3)}
    assert len(folders) == 3, "runs of one second have several ids"
    for folder in folders:
        assert folder.is_dir() and folder.name.startswith(begins)
        assert folder.suffix == STAGED and folder.name.count(".") == 1


def test_the_state_folder_is_named_by_the_command_or_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RESUMERGE_STATE_DIR", raising=False)
    assert RunStore().folder == tmp_path / "state"
    monkeypatch.setenv("RESUMERGE_STATE_DIR", "ledgers")
    assert RunStore().folder == tmp_path / "ledgers"
    assert RunStore("named").folder == tmp_path / "named"
