"""Promise: `reproduce` makes a model again from its card alone, and says whether it is the same.

A model that is gone or differs is named; nothing is written if the result cannot be the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import stage_recipes
from hypothesis import example, given
from hypothesis import strategies as st
from merging import merge, shards_of, working_in
from tiny_models import TWO_LAYERS, write_family

import resumerge
from resumerge.cli.main import main
from resumerge.engine.reproduction.comparison import Reproduction
from resumerge.errors import InputError
from resumerge.output.provenance import KEY, read_provenance

DARE = """
merge_method: dare_ties
base_model: base
models:
  - {model: math, parameters: {weight: 0.6, density: 0.5}}
  - {model: code, parameters: {weight: 0.4, density: 0.5}}
dtype: bfloat16
"""
SLERP = """
merge_method: slerp
base_model: math
models: [{model: code}]
parameters: {t: 0.3}
"""
RECIPES = {"dare": DARE, "slerp": SLERP}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("models"), TWO_LAYERS)


@pytest.fixture
def family(models: Path, tmp_path: Path) -> Path:
    """Copy the models, so that a test can change them."""
    return Path(shutil.copytree(models, tmp_path / "models"))


def reproduce(models: Path, original: Path, out: Path) -> Reproduction:
    """Make a model again, with a state folder that does not know its run."""
    with working_in(models):
        return resumerge.reproduce(original, out, state_dir=out.with_name("elsewhere"))


@pytest.mark.parametrize("method", RECIPES)
def test_seed_and_size_of_shards_are_those_of_the_original(
    models: Path, method: str, tmp_path: Path
) -> None:
    out = merge(models, RECIPES[method], tmp_path / "out", seed=7, shard_size=20_000)
    found = reproduce(models, out, tmp_path / "again")
    assert found.identical and not found.reasons and found.files
    assert shards_of(tmp_path / "again") == shards_of(out)
    assert found.tensors == 21


def test_a_model_of_stages_without_those_that_were_kept(tmp_path: Path) -> None:
    models = stage_recipes.write_models(tmp_path / "models")
    recipe = stage_recipes.RECIPES["three in a row"]
    out = merge(models, recipe, tmp_path / "out", keep=["first"])
    assert reproduce(models, out, tmp_path / "again").identical
    assert (out / "stages").exists() and not (tmp_path / "again" / "stages").exists()


def test_by_the_id_of_a_run(models: Path, tmp_path: Path) -> None:
    merge(models, DARE, tmp_path / "out")
    state = tmp_path / "out.state"
    [run] = [folder.name for folder in state.iterdir() if folder.is_dir()]
    with working_in(models):
        assert resumerge.reproduce(run, tmp_path / "again", state_dir=state).identical


def test_a_model_that_is_another_is_named(family: Path, tmp_path: Path) -> None:
    out = merge(family, SLERP, tmp_path / "out")
    flip(family / "code" / "model.safetensors", -1)
    found = reproduce(family, out, tmp_path / "again")
    assert len(found.differing) == 1 and not found.identical
    [reason] = found.reasons
    assert reason.startswith("code is another: its content was ")


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def test_an_original_that_is_damaged_is_told_by_tensor_and_file(
    models: Path, tmp_path: Path
) -> None:
    out = merge(models, DARE, tmp_path / "out")
    flip(out / "model.safetensors", -1)
    (out / "config.json").write_text("{}")
    with working_in(models):
        words = ["reproduce", str(out), str(tmp_path / "again"), "--no-supervise"]
        assert exit_code([*words, "--state-dir", str(tmp_path / "state")]) == 2
    found = reproduce(models, out, tmp_path / "again2")
    assert len(found.differing) == 2 and found.differing["config.json"] == "the file differs"
    assert any("block 0 differs" in what for what in found.differing.values())
    (out / "config.json").unlink()
    (out / "model.safetensors").unlink()
    found = reproduce(models, out, tmp_path / "again2")
    assert found.differing["config.json"] == "the original has no such file"
    assert len(found.differing) == 22 and "lm_head.weight" in found.differing


def exit_code(words: list[str]) -> int:
    with pytest.MonkeyPatch.context() as patched, pytest.raises(SystemExit) as ended:
        patched.setattr("sys.argv", ["resumerge", *words])
        main()
    return int(ended.value.code or 0)


def test_a_model_that_is_gone_is_named_and_nothing_is_written(family: Path, tmp_path: Path) -> None:
    out = merge(family, DARE, tmp_path / "out")
    shutil.rmtree(family / "code")
    with pytest.raises(InputError, match="code"):
        reproduce(family, out, tmp_path / "again")
    assert not (tmp_path / "again").exists()


Edit = Callable[[str], str]
EDITS: dict[str, tuple[Edit, str]] = {
    "numerics": (lambda card: card.replace("numerics: ", "numerics: 9"), "numerics: 9"),
    "method": (lambda card: card.replace("version: 1", "version: 0"), "version 0 from built in"),
    "no metadata": (lambda card: card.replace(f"{KEY}:", "other:"), "without what resumerge notes"),
    "other option": (lambda card: card.replace("seed:", "memory:"), "unknown: memory"),
    "no number": (lambda card: card.replace("seed: 0", "seed: many"), "nothing usable"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_what_cannot_be_the_same_is_refused_before_anything_is_written(
    models: Path, edit: str, tmp_path: Path
) -> None:
    out = merge(models, DARE, tmp_path / "out")
    change, said = EDITS[edit]
    card = (out / "README.md").read_text()
    assert change(card) != card
    (out / "README.md").write_text(change(card))
    with pytest.raises(InputError, match=said):
        reproduce(models, out, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_what_was_not_merged_here_says_nothing_of_itself(models: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"(?s)does not say what it was made of.*no README.md"):
        reproduce(models, models / "math", tmp_path / "again")
    with pytest.raises(InputError, match="neither a local folder"):
        reproduce(models, tmp_path / "nothing here", tmp_path / "again")


def test_not_in_place_of_the_original(models: Path, tmp_path: Path) -> None:
    out = merge(models, DARE, tmp_path / "out")
    with working_in(models), pytest.raises(InputError, match="beside the original"):
        resumerge.reproduce(out, out, state_dir=tmp_path / "out.state")


def test_a_run_that_hashed_nothing_proves_no_model(models: Path, tmp_path: Path) -> None:
    out = merge(models, SLERP, tmp_path / "out", trust_sources=True)
    found = reproduce(models, out, tmp_path / "again")
    assert found.identical
    assert set(found.reasons) == {
        f"{model}: the card does not say what was read of it" for model in ("math", "code")
    }


@given(st.text() | st.text().map(lambda text: f"---\n{KEY}:\n  {text}\n---\n"))
@example(f"---\n{KEY}: {{versions: 1, options: [], models: {{}}}}\n---\n")
@example(f"---\n{KEY}: {{versions: {{}}, options: {{}}, models: [{{}}]}}\n---\n")
@example("---\n" + "[" * 5000)
def test_any_card_is_read(card: str) -> None:
    found = read_provenance(card)
    assert found is None or found.as_metadata().keys() == {"versions", "options", "models"}
