"""A recipe that mergekit accepts is accepted: the same weights, and a note on its oddities."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from beside_mergekit import MERGEKIT, assert_same_weights, run_mergekit
from hypothesis import given
from hypothesis import strategies as st
from merging import merge, tensors_of, working_in
from tiny_models import write_family

import resumerge
from resumerge.errors import InputError
from resumerge.planning import check_recipe
from resumerge.recipe import parse_recipe
from resumerge.recipe.spelling import edits, misspelled

LINEAR = """
merge_method: linear
models:
- model: math
  parameters: {weight: 0.3}
- model: code
  parameters: {weight: [0.9, 0.5]}
"""
TIES = """
merge_method: ties
base_model: base
models:
- model: math
  parameters: {weight: 1, density: 1.0}
- model: code
  parameters: {weight: 1, density: 0.5}
"""
STACK = """
merge_method: passthrough
slices:
- sources: [{model: math, layer_range: [0, 2]}]
- sources: [{model: code, layer_range: [2, 4]}]
"""

# what is pasted, and the note on it
ODD = {
    "a comment": (LINEAR + "_comment: a mix\n", "the key '_comment' has no effect"),
    "a name": (LINEAR + "name: my-mix\n", "name has no effect"),
    "a mapping": (LINEAR + "author: {name: me}\n", "the key 'author' has no effect"),
    "a number for a key": (LINEAR + "1: 2\n", "the key '1' has no effect"),
    "in an entry": (
        LINEAR.replace("model: math", "model: math\n  note: good"),
        "the key 'note' has no effect, as in mergekit (models[0].note)",
    ),
    "in a slice": (
        STACK.replace("- sources: [{model: code,", "- why: x\n  sources: [{model: code, role: y,"),
        "the key 'role' has no effect, as in mergekit (slices[1].sources[0].role)",
    ),
    "beside a filter": (
        LINEAR.replace("0.3}", "[{filter: mlp, value: 1, why: x}, {value: 0.3}]}"),
        "the key 'why' has no effect, as in mergekit (models[0].parameters.weight[0].why)",
    ),
    "an unknown parameter": (
        LINEAR + "parameters: {temperature: 1}\n",
        "linear has no parameter 'temperature'",
    ),
    "a number in quotes": (
        LINEAR.replace("0.3", '"0.3"'),
        "models[0].parameters.weight is in quotes: '0.3' counts as the number",
    ),
    "a gradient in quotes": (
        LINEAR.replace("[0.9, 0.5]", '["0.9", "0.5"]'),
        "models[1].parameters.weight[1] is in quotes",
    ),
    "true for a number": (
        LINEAR.replace("0.3", "true"),
        "models[0].parameters.weight is true: it counts as 1",
    ),
    "false in quotes": (
        LINEAR + 'parameters: {normalize: "false"}\n',
        "parameters.normalize is the text 'false': it counts as false",
    ),
    "no": (
        LINEAR + "parameters: {normalize: [N, n]}\n",
        "parameters.normalize[0] is the text 'N': it counts as false",
    ),
    "zero in quotes": (
        LINEAR + 'parameters: {normalize: "0"}\n',
        "parameters.normalize is in quotes: '0'",
    ),
    "a density above 1": (
        TIES.replace("1.0", "1.5"),
        "models[0].parameters.density is 1.5: it counts as 1, the largest value",
    ),
    "a gradient above 1": (
        TIES.replace("1.0", "[0.5, 1.4, 0.1]"),
        "models[0].parameters.density[1] is 1.4: it counts as 1, the largest value",
    ),
    "a range in quotes": (
        STACK.replace("[0, 2]", '["0", 2.0]'),
        "slices[0].sources[0].layer_range[0] is in quotes",
    ),
    "an empty template": (LINEAR + "chat_template: ''\n", ""),
}


def recipe_of(case: str) -> str:
    return "dtype: float32\n" + ODD[case][0]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write `base`, `math` and `code`, and mergekit's output of each odd recipe."""
    folder = write_family(tmp_path_factory.mktemp("models"))
    if MERGEKIT is not None:
        run_mergekit(folder, {str(n): recipe_of(case) for n, case in enumerate(ODD)})
    return folder


@pytest.mark.skipif(MERGEKIT is None, reason="mergekit is not installed")
@pytest.mark.parametrize("case", ODD)
def test_the_weights_are_mergekits(case: str, models: Path, tmp_path: Path) -> None:
    theirs = tensors_of(models / f"{[*ODD].index(case)}.mergekit")
    assert_same_weights(tensors_of(merge(models, recipe_of(case), tmp_path / "out")), theirs)


@pytest.mark.parametrize("case", [case for case, (_, note) in ODD.items() if note])
def test_plan_notes_it(case: str, models: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(recipe_of(case))
    with working_in(models):
        notes = resumerge.plan(tmp_path / "recipe.yaml")["notes"]
    assert [note for note in notes if ODD[case][1] in note]


def test_a_plain_recipe_has_no_note() -> None:
    for text in (LINEAR, TIES, STACK, LINEAR.replace("0.3", "3e-1")):
        assert parse_recipe(text).notes == ()


def test_run_notes_it(models: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(recipe_of("a density above 1") + "_comment: x\n")
    command = [sys.executable, "-m", "resumerge", "run", str(tmp_path / "recipe.yaml")]
    ran = subprocess.run([*command, tmp_path / "out"], cwd=models, capture_output=True, text=True)
    assert "density is 1.5: it counts as 1, the largest value" in ran.stderr
    assert "the key '_comment' has no effect" in ran.stderr


MEANT = {
    "merge_metod": "merge_method",
    "merge-method": "merge_method",
    "Models": "models",
    "model": "models",
    "dtpye": "dtype",
    "base_modle": "base_model",
    "parameter": "parameters",
    "tokeniser_source": "tokenizer_source",
    "silces": "slices",
}


@pytest.mark.parametrize("written", MEANT)
def test_a_misspelled_key_is_refused(written: str) -> None:
    with pytest.raises(InputError, match=f"Did you mean '{MEANT[written]}'"):
        parse_recipe(LINEAR + f"{written}: x\n")


def test_a_parameter_beside_parameters_is_refused() -> None:
    [problem] = check_recipe(parse_recipe(TIES + "normalize: false\n"))
    assert (problem.path, problem.line) == ("normalize", 9)
    assert "Move it under 'parameters:'" in problem.fix


@pytest.mark.parametrize(
    "text",
    [
        LINEAR.replace("0.3", ".nan"),
        LINEAR.replace("0.3", '"nan"'),
        LINEAR.replace("0.3", "half"),
        LINEAR + "parameters: {normalize: 2}\n",
        LINEAR + "parameters: {normalize: 0.5}\n",
        LINEAR + "parameters: {normalize: .nan}\n",
        TIES.replace("1.0", "-0.5"),
        TIES.replace("1.0", ".inf"),
        TIES.replace("1.0", ".nan"),
        STACK.replace("[0, 2]", "[2, 0]"),
        LINEAR + "merge_method: linear\n",
    ],
)
def test_what_means_nothing_stays_refused(text: str) -> None:
    try:
        assert check_recipe(parse_recipe(text))
    except InputError as refused:
        assert refused.problems


WORDS = st.text("ab_c", max_size=6)


@given(WORDS, WORDS)
def test_edits_are_a_distance(a: str, b: str) -> None:
    assert edits(a, b) == edits(b, a)
    assert (edits(a, b) == 0) == (a == b)
    assert abs(len(a) - len(b)) <= edits(a, b) <= max(len(a), len(b))


@given(st.sampled_from(["models", "dtype", "parameters"]), st.integers(0, 9), st.data())
def test_one_edit_is_a_misspelling(word: str, at: int, data: st.DataObject) -> None:
    at %= len(word)
    letter = data.draw(st.sampled_from("abcxyz"))
    kinds = [
        word[:at] + word[at + 1 :],
        word[:at] + letter + word[at:],
        word[:at] + letter + word[at + 1 :],
        word[:at] + word[at : at + 2][::-1] + word[at + 2 :],
    ]
    assert misspelled(data.draw(st.sampled_from(kinds)), [word]) == word


def test_a_key_of_a_million_letters_is_soon_told_apart() -> None:
    started = time.process_time()
    assert misspelled("é" * 10**6, ["models", "dtype", "parameters", "base_model"]) is None
    assert time.process_time() - started < 10.0
