"""Promise: a sweep is mirrored, continued and found finished by other machines like any merge."""

from __future__ import annotations

from pathlib import Path

import pytest
from machines import SLOW, Machine, files_of, in_mirror, kill
from safetensors.numpy import save_file
from waiting import wait_until

RECIPE = """\
merge_method: slowly
models: [{model: a}, {model: b}]
sweep: {out_dtype: [float32, float16, bfloat16]}
"""
TENSORS = 6


@pytest.fixture(scope="module")
def weights(store: Path) -> Path:
    import numpy as np

    folder, draw = store / "of a sweep", np.random.default_rng(0)
    for name in "ab":
        (folder / name).mkdir(parents=True)
        tensors = {f"t{k}": draw.normal(size=(30, 20)).astype("float32") for k in range(TENSORS)}
        save_file(tensors, folder / name / "model.safetensors")
    return folder


def test_another_machine_goes_on_and_a_third_finds_it_finished(
    tmp_path: Path, weights: Path
) -> None:
    mirror = tmp_path / "mirror"
    calm = Machine(tmp_path / "calm", weights, RECIPE)
    calm.call("run", "recipe.yaml", "merged", "--shard-size", "8kB")
    first = Machine(tmp_path / "first", weights, RECIPE)
    first.hold(3 * TENSORS - 4)
    process = first.begin(mirror, **SLOW)
    wait_until(lambda: in_mirror(mirror).sealed, process)
    kill(process)
    first.wipe()
    second = Machine(tmp_path / "second", weights, RECIPE)
    second.call("resume", mirror)
    assert files_of(mirror) == files_of(calm.out)
    assert {name.partition("/")[0] for name in files_of(mirror) if "/" in name} == {
        f"out_dtype-{dtype}" for dtype in ("float32", "float16", "bfloat16")
    }
    third = Machine(tmp_path / "third", weights, RECIPE)
    third.call("run", "recipe.yaml", "merged", "--mirror", str(mirror), "--bring-back")
    assert files_of(third.out) == files_of(calm.out)
