"""Promise: tensors of whole numbers are one model's, the base's if it stores them as such; a note
names those that others have otherwise, or that were not compared.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from resumerge.errors import InputError
from resumerge.planning import Plan, Unshared, make_plan, whole_numbers
from resumerge.recipe import parse_recipe
from resumerge.sources.local import open_local
from resumerge.sources.types import Source, numbered
from resumerge.tensors import Stored

SLERP = """\
merge_method: slerp
base_model: b.pt
parameters: {t: 0.5}
models: [{model: a.safetensors}]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def plan(
    *, absent: str = "", union: bool = False, **numbers: tuple[torch.Tensor, torch.Tensor | None]
) -> Plan:
    """Return the plan of a merge of two files.

    Args:
        absent: the file that is not downloaded.
        union: whether tensors that only one has are kept.
        numbers: what `a.safetensors` and `b.pt` have beside the weights.
    """
    files = []
    for file in (0, 1):
        own = {name: pair[file] for name, pair in numbers.items()}
        files.append({"w": torch.ones(4, 4), **{n: t for n, t in own.items() if t is not None}})
    save_file(files[0], "a.safetensors")
    torch.save(files[1], "b.pt")
    recipe = parse_recipe(SLERP)
    sources = {ref: _opened(open_local(ref), absent) for ref in recipe.models}
    unshared = Unshared.UNION if union else Unshared.REFUSED
    return make_plan(recipe, numbered(sources), seed=0, shard_size=1 << 30, unshared=unshared)


def _opened(source: Source, absent: str) -> Source:
    return replace(
        source,
        files={n: replace(f, present=f.name != absent) for n, f in source.files.items()},
    )


def notes(found: Plan) -> list[str]:
    return [note for note in found.notes if "whole numbers" in note]


COUNT = torch.tensor(7), torch.tensor(7)
EMPTY = torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
POSITIONS = torch.arange(5000).expand(2, -1).contiguous(), torch.arange(5000).expand(2, -1)
STEPS = torch.tensor([3, 4]), torch.tensor([3, 5])
MASK = torch.tensor([True, False]), torch.tensor([True, True])


def test_what_is_the_same_everywhere_is_not_worth_a_note() -> None:
    found = plan(count=COUNT, empty=EMPTY, positions=POSITIONS)
    assert notes(found) == []
    copied = {u.name: u.expression for u in found.units}["positions"]
    assert isinstance(copied, Stored) and copied.file == "b.pt"


def test_what_differs_is_named() -> None:
    assert notes(plan(count=COUNT, steps=STEPS, mask=MASK)) == [
        "2 tensors of whole numbers, not the same in all models, taken from b.pt: mask, steps"
    ]


def test_other_shapes_differ_and_other_types_are_compared_as_numbers() -> None:
    found = plan(count=(COUNT[0], COUNT[0].int()), steps=(STEPS[0], STEPS[0][None]))
    assert notes(found) == [
        "1 tensor of whole numbers, not the same in all models, taken from b.pt: steps"
    ]


FLOAT_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def of_file(found: Plan, name: str) -> tuple[str, str]:
    copied = {unit.name: unit.expression for unit in found.units}[name]
    assert isinstance(copied, Stored)
    return copied.file, copied.dtype


@pytest.mark.parametrize("dtype", FLOAT_TYPES)
@pytest.mark.parametrize("first", [True, False])
def test_whole_numbers_that_one_file_has_as_floats(*, dtype: torch.dtype, first: bool) -> None:
    """Whole numbers are copied; positions that the floats cannot represent count as different."""
    few, many = torch.arange(77)[None], torch.arange(5000)[None]
    pair = (few, few.to(dtype)) if first else (few.to(dtype), few)
    found = plan(**{"text.position_ids": pair})
    whole = "a.safetensors" if first else "b.pt"
    assert of_file(found, "text.position_ids") == (whole, "I64")
    assert notes(found) == []
    rounded = plan(ids=(many, many.to(dtype)) if first else (many.to(dtype), many))
    assert of_file(rounded, "ids") == (whole, "I64")
    assert len(notes(rounded)) == (dtype in FLOAT_TYPES[:2])


def test_positions_that_all_files_have_as_floats_are_copied() -> None:
    """Rounding may make an average of equal numbers smaller than they are."""
    positions = torch.arange(77.0)
    found = plan(**{"text.position_ids": (positions, positions.half())})
    assert of_file(found, "text.position_ids") == ("b.pt", "F16")
    assert notes(found) == []
    differing = plan(**{"text.position_ids": (positions, positions + 1)})
    assert "1 tensor of whole numbers, not the same" in notes(differing)[0]


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32])
@pytest.mark.parametrize("first", [True, False])
def test_codes_beside_floats_are_no_whole_numbers(*, dtype: torch.dtype, first: bool) -> None:
    codes, floats = torch.ones(4, 4, dtype=dtype), torch.ones(4, 4)
    with pytest.raises(InputError, match=r"Shapes do not match in tensor q\.weight"):
        plan(**{"q.weight": (codes, floats) if first else (floats, codes)})


def test_what_is_not_downloaded_is_not_compared() -> None:
    assert notes(plan(absent="a.safetensors", steps=STEPS)) == [
        "1 tensor of whole numbers, not compared (large, not downloaded, or of a stage), taken "
        "from b.pt: steps"
    ]


def test_small_ones_are_compared_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_numbers, "LARGEST", 2 * (8 + 16))
    table = torch.arange(3), torch.arange(3)
    assert notes(plan(a_table=table, count=COUNT, steps=STEPS)) == [
        "1 tensor of whole numbers, not the same in all models, taken from b.pt: steps",
        "1 tensor of whole numbers, not compared (large, not downloaded, or of a stage), taken "
        "from b.pt: a_table",
    ]


def test_only_what_several_models_have_is_compared() -> None:
    """A tensor that only one model has is copied from it with --tensor-union, and not compared."""
    found = plan(absent="a.safetensors", union=True, steps=STEPS, epoch=(torch.tensor(2), None))
    assert [note.rpartition(": ")[2] for note in notes(found)] == ["steps"]
    copied = {unit.name for unit in found.units if isinstance(unit.expression, Stored)}
    assert copied == {"steps", "epoch"}
