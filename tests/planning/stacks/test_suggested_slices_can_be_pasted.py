"""Promise: the slices that a refusal suggests can be pasted into a recipe as they are shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from merging import merge, tensors_of
from tiny_models import LLAMA, llama_shapes, random_tensors, write_family, write_model

from resumerge.errors import InputError

DEEP = {**LLAMA, "num_hidden_layers": 6}
ODD = "deep: [one], it's"
"""A name that YAML has to quote."""

MODELS = f"""models:
  - model: math
  - model: "{ODD}"
"""
SLICES = f"""slices:
  - sources:
      - {{model: math, layer_range: [0, 4]}}
      - {{model: "{ODD}", layer_range: [0, 6]}}
"""
REST = "merge_method: linear\nparameters: {weight: 1}\n"


@pytest.mark.parametrize("recipe", [MODELS, SLICES])
def test_both_suggestions_are_merged(recipe: str, tmp_path: Path) -> None:
    models = write_family(tmp_path / "models")
    write_model(models / ODD, random_tensors(llama_shapes(DEEP), seed=3), DEEP)
    with pytest.raises(InputError) as refused:
        merge(models, REST + recipe, tmp_path / "out")
    [problem] = refused.value.problems
    shown = str(problem)
    assert shown.endswith(problem.paste.rstrip("\n")), "in lines that begin at the margin"
    equal, stacked = problem.paste.split("# stacked:\n")
    head = "" if "slices:" in equal else "slices:\n"
    method = "" if "merge_method" in stacked else "merge_method: passthrough\n"
    merge(models, REST + head + equal, tmp_path / "equal")
    merge(models, method + head + stacked, tmp_path / "stacked")
    assert layers(tmp_path / "equal") == 4
    assert layers(tmp_path / "stacked") == 10


def test_layers_of_other_shapes_are_not_suggested_to_be_sliced(tmp_path: Path) -> None:
    wide = {**DEEP, "intermediate_size": 2 * LLAMA["intermediate_size"]}
    models = write_family(tmp_path / "models")
    write_model(models / ODD, random_tensors(llama_shapes(wide), seed=3), wide)
    with pytest.raises(InputError) as refused:
        merge(models, REST + MODELS, tmp_path / "out")
    problem = next(p for p in refused.value.problems if "numbers of layers" in p.what)
    assert not problem.paste and "cannot be sliced" in problem.fix
    assert "mlp." in problem.found and "in math" in problem.found


def layers(out: Path) -> int:
    return len({name.split(".")[2] for name in tensors_of(out) if ".layers." in name})
