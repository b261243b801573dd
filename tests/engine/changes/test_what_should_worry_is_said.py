"""Promise: a merge reports doubtful numbers at its end, and its status reports them too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from merging import Told, tensors_of, working_in
from safetensors.torch import load_file, save_file
from stage_recipes import write_adapter
from tiny_models import LLAMA, write_family, write_model

from resumerge.documents.status import status_json
from resumerge.engine.lifecycle.session import Session
from resumerge.errors import DoubtfulNumbers
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options

TIES = """
merge_method: ties
base_model: base
dtype: bfloat16
models:
  - {model: math, parameters: {weight: 0.6, density: 0.5}}
  - {model: code, parameters: {weight: 0.4, density: 0.3}}
"""
TINY = TIES.replace("0.6", "1e-6").replace("0.4", "1e-6") + "parameters: {normalize: false}\n"
ADDED = "merge_method: task_arithmetic\nbase_model: base\ndtype: float32\nmodels:\n"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("models"), LLAMA)


def accounts(state: Path) -> dict[str, Any]:
    [run] = status_json(RunStore(state), None)["runs"]
    found: dict[str, Any] = run["accounts"]
    json.dumps(found, allow_nan=False)
    return found


def told(models: Path, text: str, out: Path, **options: Any) -> list[str]:
    """Merge, and return the warnings of the status, which the merge reports at its end."""
    config = out.with_suffix(".yaml")
    config.write_text(text)
    reporter = Told()
    with working_in(models):
        Session(Options(state_dir=out.with_suffix(".state"), **options), reporter).run(config, out)
    notes = reporter.notes[reporter.notes.index("done") + 1 :]
    found: list[str] = accounts(out.with_suffix(".state"))["warnings"]
    assert [note for note in notes if note in found] == found
    return found


def test_a_sound_merge_is_no_cause_for_worry(models: Path, tmp_path: Path) -> None:
    assert told(models, TIES.replace("bfloat16", "float32"), tmp_path / "out") == []


def test_a_model_that_contributed_nothing_is_named(models: Path, tmp_path: Path) -> None:
    both = "".join(f"- {{model: {m}, parameters: {{weight: 1}}}}\n" for m in ("math", "./base"))
    [found] = told(models, ADDED + both, tmp_path / "out")
    assert found.startswith("./base contributed nothing: each of its tensors")


def test_a_change_that_was_lost_to_rounding_is_told_with_the_remedy(
    models: Path, tmp_path: Path
) -> None:
    lost, equal = told(models, TINY, tmp_path / "out")
    assert lost.startswith("About 100% of the elements that were to change did not")
    assert "smaller than BF16 can hold" in lost and "out_dtype: float32" in lost
    assert "equal base, although a model differs there" in equal
    assert told(models, TINY + "out_dtype: float32\n", tmp_path / "kept") == []


@pytest.mark.parametrize(("factor", "said"), [(0.0, "nothing"), (2e-3, "lost"), (1.0, "")])
def test_an_adapter_that_its_model_cannot_hold_is_told(
    factor: float, said: str, models: Path, tmp_path: Path
) -> None:
    (folder := tmp_path / "models").mkdir()
    base = {name: tensor.bfloat16() for name, tensor in tensors_of(models / "base").items()}
    write_model(folder / "base", base, {**LLAMA, "dtype": "bfloat16"})
    path = write_adapter(folder / "adapter") / "adapter_model.safetensors"
    save_file({n: t * factor if "lora_B" in n else t for n, t in load_file(path).items()}, path)
    recipe = "merge_method: passthrough\nmodels: [{model: base+adapter}]\n"
    found = told(folder, recipe, tmp_path / "out")
    assert len(found) == bool(said)
    if said == "nothing":
        assert found[0].startswith("base+adapter contributed nothing: ")
    elif said:
        assert "of the elements that were to change did not" in found[0]
        assert "smaller than BF16 can hold" in found[0]
    numbers = accounts(tmp_path / "out.state")["numbers"]
    assert [model["model"] for model in numbers["models"]] == ["base+adapter"]
    assert numbers["tensors"] == 2
    wide = told(folder, recipe + "dtype: float32\n", tmp_path / "wide")
    assert [sentence for sentence in wide if "smaller than" in sentence] == []
    exact = accounts(tmp_path / "wide.state")["numbers"]
    assert exact["tensors"] >= 2 and exact["models"][0]["model"] == "base+adapter"
    assert exact["models"][0]["exact"]["equal"] == (2 if said == "nothing" else 0)


def test_tensors_that_equal_the_base_are_named(models: Path, tmp_path: Path) -> None:
    """A weight of 0 for all tensors of a kind leaves the base's numbers in the output."""
    weights = "[{filter: q_proj, value: 0}, {value: 1}]"
    text = ADDED + f"- {{model: math, parameters: {{weight: {weights}}}}}\n"
    [found] = told(models, text, tmp_path / "out")
    assert found.startswith("4 tensors (model.layers.0.self_attn.q_proj.weight, ")
    assert "of the output equal base" in found


def test_what_is_not_finite_is_told_with_where_it_comes_from(models: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(models, tmp_path / "models")
    path = folder / "code" / "model.safetensors"
    tensors = load_file(path)
    name = next(n for n in tensors if "q_proj" in n)
    tensors[name].view(-1)[:2] = torch.tensor([torch.nan, torch.inf])
    save_file(tensors, path, {"format": "pt"})
    linear = "merge_method: linear\ndtype: float16\nparameters: {normalize: false}\nmodels:\n"
    linear += "- {model: math, parameters: {weight: 1e6}}\n- {model: code, parameters: {weight: 0}}"
    found = told(folder, linear, tmp_path / "out")
    assert found[0].startswith(f"2 NaN numbers are in 1 tensor ({name})")
    assert "not finite in code either" in found[0]
    infinite = sum(int(t.isinf().sum()) for t in tensors_of(tmp_path / "out").values())
    assert found[1].startswith(f"{infinite:,} numbers are too large for F16")
    assert "out_dtype: bfloat16" in found[1]
    exact = accounts(tmp_path / "out.state")["numbers"]["exact"]
    assert exact == {"equal": 0, "nan": 2, "infinite": infinite, "overflow": infinite}


def test_a_change_that_is_too_large_is_not_said_to_be_rounded_away(
    models: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(models, tmp_path / "models")
    path = folder / "math" / "model.safetensors"
    large = {name: 3e6 * tensor.float() for name, tensor in load_file(path).items()}
    save_file(large, path, {"format": "pt"})
    text = ADDED.replace("float32", "float32\nout_dtype: float16")
    found = told(folder, text + "- {model: math, parameters: {weight: 1}}\n", tmp_path / "out")
    assert "are too large for F16" in found[0]
    assert len(found) == 1


def test_the_status_has_the_numbers_of_the_whole_model(models: Path, tmp_path: Path) -> None:
    told(models, TIES.replace("bfloat16", "float32"), tmp_path / "out")
    changes = accounts(tmp_path / "out.state")["numbers"]
    out, base, math, code = (
        {name: t.double().numpy() for name, t in tensors_of(folder).items()}
        for folder in (tmp_path / "out", *(models / name for name in ("base", "math", "code")))
    )

    def whole(some: dict[str, Any]) -> np.ndarray:
        return np.concatenate([(some[name] - base[name]).ravel() for name in base])

    change, deltas = whole(out), {"math": whole(math), "code": whole(code)}
    assert changes["tensors"] == len(base)
    assert changes["elements"] == changes["measured"] == change.size
    estimate = changes["estimate"]
    assert np.isclose(estimate["change"], np.linalg.norm(change), rtol=1e-5)
    assert estimate["survived"] == 1.0 and estimate["lost"] == 0.0
    conflicts = deltas["math"] * deltas["code"] < 0
    assert np.isclose(estimate["conflicts"], conflicts.mean(), rtol=1e-6)
    assert [model["model"] for model in changes["models"]] == ["math", "code"]
    for model in changes["models"]:
        delta, found = deltas[model["model"]], model["estimate"]
        lengths = np.linalg.norm(delta) * np.linalg.norm(change)
        assert np.isclose(found["length"], np.linalg.norm(delta), rtol=1e-5)
        assert np.isclose(found["cosine"], delta @ change / lengths, rtol=1e-4)
        assert np.isclose(found["differs"], (delta != 0).mean(), rtol=1e-9)
        assert model["exact"] == {"equal": 0} and model["reference"] == "base"


def test_nothing_is_said_where_nothing_is_measured(models: Path, tmp_path: Path) -> None:
    assert told(models, TINY, tmp_path / "out", no_accounts=True) == []
    assert accounts(tmp_path / "out.state")["numbers"] is None


def test_strict_exits_with_75_after_such_a_merge_and_again(models: Path, tmp_path: Path) -> None:
    """Exit code 75 keeps a script from using the complete model, also after another `run`."""
    config, reporter = tmp_path / "out.yaml", Told()
    config.write_text(TINY)
    for _ in range(2):
        session = Session(Options(state_dir=tmp_path / "out.state", strict=True), reporter)
        with pytest.raises(DoubtfulNumbers) as raised, working_in(models):
            session.run(config, tmp_path / "out")
        assert not any("BF16" in note for note in reporter.notes)  # it is said once, by the error
        assert raised.value.exit_code == 75
        assert "smaller than BF16 can hold" in str(raised.value)
        assert len(raised.value.as_json()["warnings"]) == 2
        assert accounts(tmp_path / "out.state")["numbers"]
        assert (tmp_path / "out" / "config.json").is_file()
    told(models, TIES, tmp_path / "sound", strict=True)
