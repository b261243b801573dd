"""Promise: `resumerge try` says whether a model computes, and how well it predicts a text."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from dense_models import CONFIGS, SIZES, write_dense
from rich.console import Console
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import resumerge
from resumerge.cli.main import _exit_code as exit_code_of
from resumerge.documents import try_model
from resumerge.errors import InputError, Resumable
from resumerge.host.memory import Memory
from resumerge.ui.terminal.try_result import show_try_result

TEXT = "Once upon a time there was a sum. "


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with `base`, `a`, `b`, `c`, a text, and `out`, merged of `a` and `b`."""
    folder = write_dense(tmp_path_factory.mktemp("models"), CONFIGS["llama"], torch.float32)
    (folder / "text.txt").write_text(TEXT)
    recipe = {
        "merge_method": "linear",
        "models": [{"model": str(folder / "a")}, {"model": str(folder / "b")}],
        "parameters": {"weight": 0.5},
    }
    resumerge.run(recipe, folder / "out", state_dir=folder / "state")
    return folder


@pytest.fixture
def attempt(place: Path) -> Callable[..., dict[str, Any]]:
    def tried(out: Path = place / "out", **options: Any) -> dict[str, Any]:
        options = {"state_dir": place / "state", "tokens": 3, **options}
        return resumerge.try_model(out, "Hello", **options)

    return tried


def changed(place: Path, folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> Path:
    """Write a copy of the merged model with changed tensors."""
    shutil.copytree(place / "out", folder)
    [file] = folder.glob("*.safetensors")
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})
    return folder


def tokens_of(folder: Path, text: str) -> list[int]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    begin = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    return [*begin, *tokenizer(text, add_special_tokens=False)["input_ids"]]


def perplexity(folder: Path) -> float:
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.tensor([tokens_of(folder, TEXT)])
    with torch.no_grad():
        return math.exp(model(ids, labels=ids).loss)


def test_a_text_is_predicted_as_by_transformers(
    place: Path, attempt: Callable[..., dict[str, Any]]
) -> None:
    found = attempt(text=place / "text.txt")
    assert [fit["model"] for fit in found["fits"]] == [str(place / n) for n in ("out", "a", "b")]
    for fit in found["fits"]:
        assert fit["perplexity"] == pytest.approx(perplexity(Path(fit["model"])), rel=1e-5)
        bits = math.log2(fit["perplexity"]) * fit["tokens"] / len(TEXT)
        assert fit["bits_per_byte"] == pytest.approx(bits)
    assert (found["characters"], found["notes"]) == (len(TEXT), [])


def test_every_token_of_a_long_text_is_predicted_once(
    place: Path,
    attempt: Callable[..., dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The windows have the model's largest length, 64 tokens; each begins with a known token."""
    monkeypatch.setattr(try_model, "CHARACTERS", 150)
    (tmp_path / "long.txt").write_text(TEXT * 10)
    found = attempt(text=tmp_path / "long.txt")
    assert found["characters"] == 150
    model = AutoModelForCausalLM.from_pretrained(place / "out")
    ids = torch.tensor(tokens_of(place / "out", (TEXT * 10)[:150]))
    windows = [ids[start : start + 64] for start in range(0, len(ids) - 1, 63)]
    with torch.no_grad():
        losses = [float(model(w[None], labels=w[None]).loss) * (len(w) - 1) for w in windows]
    assert found["fits"][0]["tokens"] == len(ids) - 1 == sum(len(w) - 1 for w in windows)
    assert math.log(found["fits"][0]["perplexity"]) == pytest.approx(sum(losses) / (len(ids) - 1))


def test_what_follows_is_what_transformers_generates(
    place: Path, attempt: Callable[..., dict[str, Any]]
) -> None:
    found = attempt(tokens=5)
    model = AutoModelForCausalLM.from_pretrained(place / "out")
    tokenizer = AutoTokenizer.from_pretrained(place / "out")
    ids = torch.tensor([tokens_of(place / "out", "Hello")])
    made = model.generate(ids, max_new_tokens=5, do_sample=False, pad_token_id=0)
    assert found["text"] == tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True)
    assert found["sound"] and found["finite"] and found["fits"] == []


def test_numbers_that_are_not_finite_are_told(
    place: Path, attempt: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    def break_it(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.norm.weight"][0] = math.nan

    found = attempt(changed(place, tmp_path / "out", break_it), text=place / "text.txt")
    assert not found["finite"] and not found["sound"]
    assert found["fits"][0]["perplexity"] is None
    json.dumps(found, allow_nan=False)


def test_a_tensor_that_is_missing_is_named(
    place: Path, attempt: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """transformers would compute with random numbers instead of the tensor."""
    name = "model.layers.1.mlp.up_proj.weight"
    found = attempt(changed(place, tmp_path / "out", lambda tensors: tensors.pop(name)))
    assert found["missing"] == [name]
    assert found["finite"] and not found["sound"]


def test_the_command_ends_with_2_where_the_model_is_not_sound(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def tell(out: Path, *words: str) -> tuple[int, str]:
        state = ["--state-dir", str(place / "state"), "--tokens", "2"]
        code = exit_code_of(["try", str(out), "Hello", *state, *words])
        return code, capsys.readouterr().out

    code, told = tell(place / "out", "--json")
    assert (code, json.loads(told)["sound"]) == (0, True)
    name = "lm_head.weight"
    code, told = tell(changed(place, tmp_path / "out", lambda tensors: tensors.pop(name)))
    assert code == 2 and name in told


def test_what_a_person_sees(place: Path) -> None:
    fits = [try_model.Fit("out", 12.3456, 1.5, 10), try_model.Fit("org/base", None, None, 10)]
    found = try_model.TryResult("out", "Hello", "world\x1b", 1, True, [], fits, 40, ["A note"])
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(show_try_result(found))
    assert console.export_text().splitlines() == [
        "out: all logits are finite",
        "1 token after 'Hello':",
        "  world\\x1b",
        "How well 40 characters of the text are predicted:",
        "  out       perplexity 12.35, 1.500 bits for each byte, 10 tokens",
        "  org/base  not a finite number, 10 tokens",
        "A note",
    ]


@pytest.mark.parametrize(
    ("gone", "note"),
    [("a", "is not compared: OSError"), ("state", "The sources are not known")],
)
def test_sources_that_are_not_here_are_noted(
    gone: str, note: str, place: Path, attempt: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    (place / gone).rename(tmp_path / gone)
    try:
        found = attempt(text=place / "text.txt")
    finally:
        (tmp_path / gone).rename(place / gone)
    assert len(found["fits"]) == (2 if gone == "a" else 1)
    assert found["sound"] and note in found["notes"][0]


def test_a_source_with_an_adapter_is_compared_without_it(place: Path, tmp_path: Path) -> None:
    name = "base_model.model.model.layers.0.mlp.up_proj.lora_{}.weight"
    shapes = {"A": (2, SIZES["hidden_size"]), "B": (SIZES["intermediate_size"], 2)}
    (tmp_path / "lora").mkdir()
    tensors = {name.format(letter): torch.ones(shape) for letter, shape in shapes.items()}
    save_file(tensors, tmp_path / "lora" / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["up_proj"]}
    (tmp_path / "lora" / "adapter_config.json").write_text(json.dumps(config))
    model = f"{place / 'a'}+{tmp_path / 'lora'}"
    recipe = {"merge_method": "passthrough", "models": [{"model": model}]}
    resumerge.run(recipe, tmp_path / "out", state_dir=tmp_path / "state")
    given = {"text": place / "text.txt", "state_dir": tmp_path / "state", "tokens": 1}
    found = resumerge.try_model(tmp_path / "out", "Hello", **given)
    merged, base = found["fits"]
    assert base["model"] == str(place / "a") and base["perplexity"] != merged["perplexity"]
    assert found["notes"] == [f"{model} is compared without its adapter"]


def test_libraries_that_are_missing_are_named(
    attempt: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError) as error:
        attempt()
    [problem] = error.value.problems
    assert problem.fix == "pip install 'resumerge[mixtures]'"
    assert problem.found == "no transformers"


def test_what_is_no_finished_model_is_refused(
    place: Path, attempt: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="There is no model to try"):
        attempt(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "none such"}')
    (tmp_path / "tokenizer.json").touch()
    with pytest.raises(InputError, match="cannot load or compute the model"):
        attempt(tmp_path)
    with pytest.raises(InputError, match="The text cannot be read"):
        attempt(text=tmp_path / "none")
    (tmp_path / "bare").mkdir()
    shutil.copy(place / "out" / "config.json", tmp_path / "bare")
    with pytest.raises(InputError, match="The model has no tokenizer"):
        attempt(tmp_path / "bare")
    (tmp_path / "empty").touch()
    with pytest.raises(InputError, match="The text is empty"):
        attempt(text=tmp_path / "empty")


def test_a_model_larger_than_the_memory_is_not_loaded(
    attempt: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(try_model, "measure_memory", lambda: Memory(total=2000, available=1000))
    with pytest.raises(Resumable, match="Not enough memory to load"):
        attempt()
