"""Promise: what one model is to the other is found, with its numbers: a copy, a rescaling, …"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from compared import as_stored, changed, compare, drawn, pair, write
from tiny_models import LLAMA

from resumerge.comparison.models import Models
from resumerge.engine.resources import device
from resumerge.errors import InputError

EMBEDDINGS = ("model.embed_tokens.weight", "lm_head.weight")


def test_a_copy(tmp_path: Path) -> None:
    a, b = (write(tmp_path / name, drawn()) for name in "ab")
    found = pair(tmp_path, a, b)
    assert (found["relation"], found["findings"]) == (
        "copy",
        ["All 39 tensors are equal in every number"],
    )


def test_a_copy_in_a_wider_type(tmp_path: Path) -> None:
    narrow = {name: as_stored(array, "bfloat16") for name, array in drawn().items()}
    a, b = write(tmp_path / "a", narrow, "bfloat16"), write(tmp_path / "b", narrow)
    found = pair(tmp_path, a, b)
    assert found["relation"] == "copy" and "stored in another type" in found["findings"][0]


@pytest.mark.parametrize(
    ("factor", "dtypes"),
    [
        *((factor, ("float32", "float32")) for factor in (0.5, -1.75, 1.0003, 3.7)),
        *((factor, ("bfloat16", "bfloat16")) for factor in (0.5, -1.75, 3.7)),
        *((factor, ("float32", "float16")) for factor in (0.5, -1.75, 3.7)),
    ],
)
def test_a_scaled_copy(factor: float, dtypes: tuple[str, str], tmp_path: Path) -> None:
    base = {name: as_stored(array, dtypes[0]) for name, array in drawn().items()}
    scaled = {name: (array * np.float64(factor)).astype(np.float32) for name, array in base.items()}
    a, b = write(tmp_path / "a", base, dtypes[0]), write(tmp_path / "b", scaled, dtypes[1])
    found = pair(tmp_path, a, b)
    assert found["relation"] == "scaled copy"
    factors = [tensor["details"]["factor"] for tensor in found["tensors"]]
    assert np.allclose(factors, factor, rtol=1e-6 if dtypes[1] == "float32" else 3e-3)
    told = float(found["findings"][0].split("scaled by ")[1].split()[0])
    assert told == pytest.approx(factor, rel=1e-3)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn"])
@pytest.mark.parametrize("stored", ["its own type", "float32"])
def test_a_rounding(dtype: str, stored: str, tmp_path: Path) -> None:
    """The rounded model is stored in either type, and is recognised from either side."""
    base = drawn()
    narrow = {name: as_stored(array, dtype) for name, array in base.items()}
    a = write(tmp_path / "a", base)
    b = write(tmp_path / "b", narrow, "float32" if stored == "float32" else dtype)
    found, other = pair(tmp_path, a, b), pair(tmp_path, b, a)
    if stored == "float32" and dtype.startswith("float8"):
        assert found["relation"] == "different", "no type says so"
        return
    name = {"bfloat16": "BF16", "float16": "F16"}.get(dtype, "F8_E4M3")
    for document, of_first in ((found, True), (other, False)):
        assert document["relation"] == "rounding"
        assert {
            (tensor["details"]["dtype"], tensor["details"]["of_first"])
            for tensor in document["tensors"]
            if tensor["relation"] == "rounded"
        } == {(name, of_first)}
        assert f"in {b} what {a} has, rounded to {name}" in document["findings"][0]


def test_a_small_change_in_bfloat16_is_no_rounding_and_no_scaling(tmp_path: Path) -> None:
    """Most elements stay the same, and the others move to a neighbour."""
    base = {name: as_stored(array, "bfloat16") for name, array in drawn().items()}
    a = write(tmp_path / "a", base, "bfloat16")
    b = write(tmp_path / "b", changed(base, 1, 1e-5), "bfloat16")
    found = pair(tmp_path, a, b)
    assert set(found["total"]["relations"]) <= {"different", "equal"}
    assert found["total"]["differing"] < 0.5 * found["total"]["elements"]


def test_an_extension_of_the_vocabulary(tmp_path: Path) -> None:
    base, more = drawn(), drawn(7)
    longer = {
        name: np.concatenate([array, more[name][:5]]) if name in EMBEDDINGS else array
        for name, array in base.items()
    }
    tokens = {f"t{n}": n for n in range(48)}
    a = write(tmp_path / "a", base, tokens=tokens)
    config = {**LLAMA, "vocab_size": 53}
    new = {f"new{n}": 48 + n for n in range(5)}
    b = write(tmp_path / "b", longer, config=config, tokens=tokens | new)
    document = compare(tmp_path, a, b)
    [found] = document["pairs"]
    assert found["relation"] == "vocabulary extended"
    assert (
        f"{b} has 5 rows more in model.embed_tokens.weight; the first 48 are equal"
        in (found["findings"])
    )
    assert any(
        f"The tokenizer of {b} extends that of {a} by 5 tokens" in s for s in found["findings"]
    )
    tables = {t["name"]: t["rows"] for t in found["tensors"] if t["rows"]}
    assert tables == {name: [48, 53] for name in EMBEDDINGS}
    assert document["config"]["differences"] == [{"key": "vocab_size", "values": ["48", "53"]}]
    assert document["config"]["same_architecture"] and not document["config"]["same"]
    assert found["vocabulary"]["only_second"] == {"count": 5, "examples": list(new)}
    [back] = compare(tmp_path, b, a)["pairs"]
    assert back["relation"] == "vocabulary extended"
    assert back["vocabulary"]["first_extends_second"]


def test_tokens_with_other_ids_are_named(tmp_path: Path) -> None:
    a = write(tmp_path / "a", drawn(), tokens={"x": 0, "y": 1, "z": 2})
    b = write(tmp_path / "b", drawn(), tokens={"y": 0, "x": 1, "w": 2})
    found = pair(tmp_path, a, b)["vocabulary"]
    assert found["moved"] == {"count": 2, "examples": ["x", "y"]}
    assert found["only_first"]["examples"] == ["z"] and found["only_second"]["examples"] == ["w"]
    assert not found["same"] and not found["second_extends_first"]


def test_what_only_one_has_and_what_has_another_shape(tmp_path: Path) -> None:
    one, two = drawn(), drawn()
    del two["model.layers.3.mlp.up_proj.weight"]
    two["model.layers.3.extra"] = np.ones(4, np.float32)
    two["model.layers.2.mlp.up_proj.weight"] = np.ones((4, 4), np.float32)
    found = pair(tmp_path, write(tmp_path / "a", one), write(tmp_path / "b", two))
    assert found["only_first"] == ["model.layers.3.mlp.up_proj.weight"]
    assert found["only_second"] == ["model.layers.3.extra"]
    assert found["not_comparable"] == [
        {
            "name": "model.layers.2.mlp.up_proj.weight",
            "shapes": [[40, 16], [4, 4]],
            "dtypes": ["F32", "F32"],
        }
    ]
    assert found["relation"] == "different" and len(found["findings"]) == 4


def test_models_whose_names_differ_by_a_wrapper(tmp_path: Path) -> None:
    one = drawn()
    two = {name.replace("model.", "model.language_model."): a for name, a in one.items()}
    found = pair(tmp_path, write(tmp_path / "a", one), write(tmp_path / "b", two))
    assert found["relation"] == "copy" and found["total"]["tensors"] == 39


@pytest.mark.needs("torch")
def test_a_model_with_its_adapter_is_the_merge_of_it(tmp_path: Path) -> None:
    """A comparison reads any reference of a recipe, such as `model+adapter`."""
    base, draw = drawn(), np.random.default_rng(3)
    a = write(tmp_path / "a", base)
    names = [name for name in base if "q_proj" in name]
    factors = {
        f"base_model.model.{name.removesuffix('.weight')}.lora_{part}.weight": draw.standard_normal(
            (4, 16) if part == "A" else (16, 4)
        ).astype(np.float32)
        for name in names
        for part in "AB"
    }
    adapter = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
    write(tmp_path / "lora", factors)
    (tmp_path / "lora/config.json").unlink()
    (tmp_path / "lora/model.safetensors").rename(tmp_path / "lora/adapter_model.safetensors")
    (tmp_path / "lora/adapter_config.json").write_text(json.dumps(adapter))
    merged = {
        name: array
        + (
            2
            * factors[f"base_model.model.{name.removesuffix('.weight')}.lora_B.weight"]
            @ factors[f"base_model.model.{name.removesuffix('.weight')}.lora_A.weight"]
            if name in names
            else 0
        )
        for name, array in base.items()
    }
    b = write(tmp_path / "b", {n: x.astype(np.float32) for n, x in merged.items()})
    found = pair(tmp_path, b, f"{a}+{tmp_path / 'lora'}")
    assert found["total"]["max_abs"] < 1e-5
    assert found["total"]["relations"]["equal"] >= 35


def test_an_adapter_is_refused_where_torch_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "_has_torch", lambda: False)
    monkeypatch.setattr(Models, "needs_torch", True)
    a = write(tmp_path / "a", drawn())
    with pytest.raises(InputError, match="Torch, which applies adapters"):
        compare(tmp_path, a, a)
