"""Promise: tensors of whole numbers are the base model's, and a note names those that others have
otherwise, or that were not compared.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from resumerge.planning import Plan, Unshared, make_plan
from resumerge.planning.flat import whole_numbers
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
    """A plan of two files.

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


def test_other_types_and_shapes_differ() -> None:
    found = plan(count=(COUNT[0], COUNT[0].int()), steps=(STEPS[0], STEPS[0][None]))
    assert notes(found) == [
        "2 tensors of whole numbers, not the same in all models, taken from b.pt: count, steps"
    ]


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
    """With --tensor-union a tensor that one model alone has is that model's."""
    found = plan(absent="a.safetensors", union=True, steps=STEPS, epoch=(torch.tensor(2), None))
    assert [note.rpartition(": ")[2] for note in notes(found)] == ["steps"]
    copied = {unit.name for unit in found.units if isinstance(unit.expression, Stored)}
    assert copied == {"steps", "epoch"}
