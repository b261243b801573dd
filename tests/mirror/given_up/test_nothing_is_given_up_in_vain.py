"""Promise: `--restart` gives up nothing, here or in the mirror, where it then cannot begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from finished_runs import Bed
from machines import files_of
from made_up_mirrors import RECIPE

from resumerge.errors import InputError
from resumerge.ledger.run_store import RunStore


def take_source(bed: Bed) -> dict[str, Any]:
    (bed.work / "math").rename(bed.work / "gone")
    return {"offline": True}  # nor is it asked of the Hub


def put_file(bed: Bed) -> dict[str, Any]:
    bed.out.mkdir(exist_ok=True)
    (bed.out / "holiday.jpg").write_bytes(b"a picture")
    return {}


def ask_little(_: Bed) -> dict[str, Any]:
    return {"memory": 1_000_000}


def take_output_as_source(bed: Bed) -> dict[str, Any]:
    (bed.work / "recipe.yaml").write_text(RECIPE.replace("math", "./out"))
    return {}


def take_mirror_as_source(bed: Bed) -> dict[str, Any]:
    (bed.work / "recipe.yaml").write_text(RECIPE.replace("math", str(bed.mirror)))
    return {}


def put_file_there(bed: Bed) -> dict[str, Any]:
    (bed.mirror / "holiday.jpg").write_bytes(b"a picture")
    return {}


def mirror_inside(bed: Bed) -> dict[str, Any]:
    return {"mirror": str(bed.out / "mirror")}


HINDRANCES = [
    take_source, put_file, ask_little, take_mirror_as_source, put_file_there, mirror_inside
]  # fmt: skip


@pytest.mark.parametrize("hinder", [*HINDRANCES, take_output_as_source])
def test_where_the_run_is_known(bed: Bed, hinder: Callable[[Bed], dict[str, Any]]) -> None:
    options = hinder(bed)
    before = files_of(bed.out), files_of(bed.mirror)
    runs = RunStore(bed.state).runs()
    with pytest.raises(InputError):
        bed.run(restart=True, **options)
    assert (files_of(bed.out), files_of(bed.mirror)) == before
    assert (bed.mirror / ".resumerge" / "done.json").exists()
    assert RunStore(bed.state).runs() == runs


@pytest.mark.parametrize("hinder", HINDRANCES[:-1])
def test_on_a_machine_that_knows_the_mirror_alone(
    bed: Bed, hinder: Callable[[Bed], dict[str, Any]]
) -> None:
    bed.forget()
    options = hinder(bed)
    before = files_of(bed.mirror)
    with pytest.raises(InputError):
        bed.run(restart=True, **options)
    assert files_of(bed.mirror) == before
    assert (bed.mirror / ".resumerge" / "done.json").exists()
