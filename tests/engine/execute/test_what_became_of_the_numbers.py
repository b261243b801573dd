"""Promise: the accounts of numbers are right for every method, also after an interruption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from measurements import check, measurements
from merging import merge, tensors_of
from safetensors.torch import load_file
from stage_recipes import write_adapter
from test_bits_do_not_depend_on import LARGEST, every_method, recipe
from tiny_models import LLAMA, write_family, write_model

from resumerge.engine.execute.committer import Committer

TIES = """
merge_method: ties
base_model: base
dtype: bfloat16
models:
  - {model: math, parameters: {weight: 0.6, density: 0.5}}
  - {model: code, parameters: {weight: 0.4, density: 0.3}}
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("models"), {**LLAMA, "vocab_size": 3001})


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks so small that the embedding has 49, and a layer's matrices one each."""
    monkeypatch.setattr("resumerge.tensors.target.BLOCK_ELEMENTS", 1000)


@every_method
def test_they_are_numpys(method: str, models: Path, tmp_path: Path) -> None:
    text = recipe(method)
    state = tmp_path / "ledgers"
    out = tensors_of(merge(models, text, tmp_path / "out", state_dir=state))
    exact = tensors_of(merge(models, text + "out_dtype: float32\n", tmp_path / "exact"))
    files = {name: tensors_of(models / name) for name in ("base", "math", "code")}
    found = measurements(state)
    assert found.keys() == out.keys() or method == "passthrough"
    names_of = {}
    for unit, measured in found.items():
        names_of[unit] = measured.models
        if method == "passthrough":  # whose layers are others in the output
            continue
        first, *others = (files[model][unit].bfloat16() for model in measured.models)
        check(measured, first, others, exact[unit], out[unit])
    expected = [m["model"] for m in yaml.safe_load(text).get("models", [])]
    base = yaml.safe_load(text).get("base_model")
    if base and method != "passthrough":
        assert {names[0] for names in names_of.values()} == {base}
        assert all(set(names) == {base, *expected} for names in names_of.values())


def test_a_stage_and_an_adapter_are_operands_like_any_other(models: Path, tmp_path: Path) -> None:
    """A stage and an adapter have the numbers that they have when merged alone, to float32."""
    (folder := tmp_path / "models").mkdir()
    for path in models.iterdir():
        (folder / path.name).symlink_to(path)
    write_adapter(folder / "adapter")
    stage = "merge_method: linear\ndtype: float32\nmodels:\n"
    stage += (
        "- {model: math, parameters: {weight: 0.7}}\n- {model: code, parameters: {weight: 0.3}}\n"
    )
    adapted = "merge_method: passthrough\ndtype: float32\nmodels: [{model: base+adapter}]\n"
    last = TIES.replace("math", "first").replace("code", "base+adapter")
    text = f"name: first\n{stage}---{last}".replace("bfloat16", "float32")
    out = tensors_of(merge(folder, text, tmp_path / "out", state_dir=tmp_path / "state"))
    base = tensors_of(models / "base")
    alone = tensors_of(merge(folder, stage, tmp_path / "first"))
    with_adapter = tensors_of(merge(folder, adapted, tmp_path / "adapted"))
    found = measurements(tmp_path / "state")
    assert found.keys() == out.keys()
    for unit, measured in found.items():
        assert measured.models == ("base", "first", "base+adapter")
        check(measured, base[unit], [alone[unit], with_adapter[unit]], out[unit], out[unit])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_what_an_adapter_alone_changes_is_counted_from_its_model(
    dtype: str, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resumerge.tensors.target.BLOCK_ELEMENTS", 128)
    monkeypatch.setattr("resumerge.kernels.measurements.LEAST_MEASURED", 64)
    (folder := tmp_path / "models").mkdir()
    base = {n: t.to(getattr(torch, dtype)) for n, t in tensors_of(models / "base").items()}
    write_model(folder / "base", base, {**LLAMA, "vocab_size": 3001, "dtype": dtype})
    adapter = load_file(write_adapter(folder / "adapter") / "adapter_model.safetensors")
    recipe = "merge_method: passthrough\nmodels: [{model: base+adapter}]\n"
    out = tensors_of(merge(folder, recipe, tmp_path / "out", threads=2))
    plain = tensors_of(merge(folder, recipe, tmp_path / "plain", no_accounts=True))
    assert all(out[name].equal(plain[name]) for name in out)
    found = measurements(tmp_path / "out.state")
    modules = ("model.layers.1.mlp.up_proj", "model.layers.3.self_attn.q_proj")
    assert found.keys() == {f"{module}.weight" for module in modules}
    for module in modules:
        name = f"{module}.weight"
        a, b = (adapter[f"base_model.model.{module}.lora_{k}.weight"].double() for k in "AB")
        assert found[name].models == ("base", "base+adapter")
        assert found[name].blocks > 1
        assert found[name]["measured"] == 64 * found[name].blocks
        exact = base[name].double() + 2.0 * b @ a
        check(found[name], base[name], [out[name]], exact.float(), out[name])


@pytest.mark.parametrize("method", ["ties", "linear", "nuslerp", "iso_c", "dare_ties"])
def test_they_do_not_depend_on_threads_or_batches(
    method: str, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge(models, recipe(method), tmp_path / "first", threads=1)
    expected = measurements(tmp_path / "first.state")
    monkeypatch.setattr(LARGEST, 5_000)
    monkeypatch.setattr("resumerge.engine.execute.uncommitted_shares.BLOCK_RUN_BYTES", 2 * 4 * 1000)
    merge(models, recipe(method), tmp_path / "again", threads=4, shard_size=100_000)
    assert measurements(tmp_path / "again.state") == expected


class Killed(Exception):
    """The simulated end of the process."""


@pytest.mark.parametrize("commits", [1, 2, 5, 9])
def test_they_go_on_where_the_process_was_killed(
    commits: int, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge(models, TIES, tmp_path / "calm")
    monkeypatch.setattr(LARGEST, 5_000)
    commit, left = Committer._commit, [commits]

    def until_killed(self: Committer, batch: Any) -> None:
        if not left[0]:
            raise Killed
        left[0] -= 1
        commit(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Committer, "_commit", until_killed)
        with pytest.raises(Killed):
            merge(models, TIES, tmp_path / "out")
    merge(models, TIES, tmp_path / "out")
    assert measurements(tmp_path / "out.state") == measurements(tmp_path / "calm.state")


def test_nothing_is_measured_if_that_is_asked(models: Path, tmp_path: Path) -> None:
    out = merge(models, TIES, tmp_path / "out", no_accounts=True)
    assert measurements(tmp_path / "out.state") == {}
    other = merge(models, TIES, tmp_path / "measured")
    assert (out / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
