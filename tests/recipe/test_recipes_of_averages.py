"""An average is so many linear recipes, one for each window and schedule; every mistake in it is a
problem at its line."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resumerge.recipe import Recipe, parse_recipe
from resumerge.recipe.average import DECAYS, Schedule
from resumerge.recipe.load import InvalidRecipe
from resumerge.recipe.normalized import normalized

STEPS = [f"org/model@step-{number}" for number in (10, 20, 30, 40, 50)]


def average(text: str, after: str = "dtype: bfloat16\n") -> Recipe:
    return parse_recipe(f"average:\n{text}{after}", "r.yaml")


def windows(recipe: Recipe) -> dict[str, list[str]]:
    return {
        name: [input_.model.text for input_ in variant.slices[0].inputs]
        for name, variant in recipe.variants.items()
    }


def weights(recipe: Recipe) -> list[list[object]]:
    found = (variant.slices[0].inputs for variant in recipe.variants.values())
    return [[input_.parameters["weight"] for input_ in inputs] for inputs in found]


def test_without_a_window_it_is_one_average_of_all() -> None:
    found = average(f"  checkpoints: {STEPS}\n")
    assert windows(found) == {"step-50": STEPS}
    [values] = weights(found)
    assert values == pytest.approx([0.2] * 5)


def test_each_output_is_a_linear_recipe() -> None:
    found = average(f"  checkpoints: {STEPS}\n  window: 2\n  weights: cosine\n")
    for variant in found.variants.values():
        assert variant.merge_method == "linear" and variant.parameters == {"normalize": False}
        assert variant.dtype == "bfloat16"
        assert normalized(parse_recipe(variant.text)) == normalized(variant)


def test_windows_end_with_the_last_checkpoint() -> None:
    found = average(f"  checkpoints: {STEPS}\n  window: 2\n  stride: 2\n")
    assert windows(found) == {"step-30": STEPS[1:3], "step-50": STEPS[3:5]}
    [note] = [note for note in found.notes if "no window" in note]
    assert STEPS[0] in note


def test_schedules_of_a_window_follow_each_other() -> None:
    found = average(
        f"  checkpoints: {STEPS}\n  window: 4\n  weights: [uniform, 1-sqrt, {{ema: 0.5}}]\n"
    )
    schedules = "uniform", "1-sqrt", "ema-0.5"
    assert [*found.variants] == [f"step-{n}_{s}" for n in (40, 50) for s in schedules]
    assert weights(found)[2] == [0.125, 0.125, 0.25, 0.5]


SCHEDULES = [*map(Schedule, DECAYS), Schedule("ema", 0.9)]


@given(st.sampled_from(SCHEDULES), st.integers(1, 60))
def test_weights_are_positive_and_sum_to_one(schedule: Schedule, count: int) -> None:
    found = schedule.weights(count)
    assert len(found) == count and all(weight > 0 for weight in found)
    assert math.fsum(found) == pytest.approx(1, abs=1e-14)


@given(st.sampled_from(["uniform", "cosine", "1-sqrt"]), st.integers(2, 30))
def test_what_training_added_counts_as_the_decay_says(name: str, count: int) -> None:
    """The training itself is the oracle: checkpoints are sums of updates, and each update counts as
    much as the learning rate that the decay leaves at its time.
    """
    updates = [math.sin(number) for number in range(1, count)]
    checkpoints = [math.fsum(updates[:number]) for number in range(count)]
    merged = math.fsum(w * x for w, x in zip(Schedule(name).weights(count), checkpoints))
    decayed = math.fsum(
        DECAYS[name](number / count) * update for number, update in enumerate(updates, 1)
    )
    assert merged == pytest.approx(decayed, abs=1e-12)


def test_the_weights_of_a_moving_average_are_its_recursion() -> None:
    mean = [1.0, 0.0, 0.0]
    for step in (1, 2):
        mean = [0.8 * value + 0.2 * (number == step) for number, value in enumerate(mean)]
    assert Schedule("ema", 0.8).weights(3) == pytest.approx(mean)


def test_a_pattern_is_folders_in_natural_order_and_stays_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in (9, 10, 100):
        (tmp_path / "runs" / f"step-{number}" / "model").mkdir(parents=True)
    (tmp_path / "runs" / "step-1.log").write_text("no folder")
    text = "average:\n  checkpoints: runs/step-*  # all\n  window: 2\n"
    found = parse_recipe(text)
    named = [f"runs/step-{number}" for number in (9, 10, 100)]
    assert windows(found) == {"step-10": named[:2], "step-100": named[1:]}
    below = parse_recipe(text.replace("step-*", "step-*/model"))
    assert [*below.variants] == ["step-10", "step-100"]
    (tmp_path / "runs" / "step-200").mkdir()
    assert [*parse_recipe(text).variants] == ["step-10", "step-100", "step-200"]
    again = parse_recipe(found.text)
    assert normalized(again) == normalized(found) and again.text == found.text


def test_names_are_what_tells_checkpoints_apart(tmp_path: Path) -> None:
    folders = [tmp_path / name / "last" for name in ("a", "b")]
    for folder in folders:
        folder.mkdir(parents=True)
    found = average(f"  checkpoints: {[*map(str, folders)]}\n  window: 1\n")
    assert [*found.variants] == ["a", "b"]
    found = average("  checkpoints: [org/a@v1, org/b@v2]\n  window: 1\n")
    assert [*found.variants] == ["a-v1", "b-v2"]
    found = average("  checkpoints: [org/a, org/a@v2]\n  window: 1\n")
    assert [*found.variants] == ["a", "v2"]


MISTAKES = {
    "no checkpoints": ("  window: 2\n", "names no checkpoints", 1),
    "nothing": ("  checkpoints:\n", "neither a pattern nor a list", 2),
    "a number": ("  checkpoints: [org/a, 3]\n", "not the name of a checkpoint", 2),
    "no match": ("  checkpoints: nowhere/step-*\n", "matches no checkpoint", 2),
    "one twice": ("  checkpoints: [org/a, org/a]\n", "listed twice", 2),
    "a large window": (f"  checkpoints: {STEPS}\n  window: 6\n", "larger than their number", 3),
    "no window": (f"  checkpoints: {STEPS}\n  window: 0\n", "window of the average", 3),
    "a stride of text": (f"  checkpoints: {STEPS}\n  stride: two\n", "stride of the average", 3),
    "a typo": (f"  checkpoints: {STEPS}\n  windows: 2\n", "no key 'windows'", 3),
    "a schedule": (f"  checkpoints: {STEPS}\n  weights: cosin\n", "no schedule", 3),
    "no schedules": (f"  checkpoints: {STEPS}\n  weights: []\n", "no schedule", 3),
    "a decay": (f"  checkpoints: {STEPS}\n  weights: [{{ema: 1}}]\n", "no schedule", 3),
    "the same weights": (
        f"  checkpoints: {STEPS}\n  weights: [uniform, linear]\n",
        "give the same weights",
        3,
    ),
    "too many": (
        f"  checkpoints: {[f'org/a@{n}' for n in range(120)]}\n  window: 2\n",
        "119 outputs",
        1,
    ),
    "models": (f"  checkpoints: {STEPS}\nmodels: [{{model: org/a}}]\n", "'models'", 3),
    "parameters": (f"  checkpoints: {STEPS}\nparameters: {{weight: 1}}\n", "'parameters'", 3),
    "a sweep": (f"  checkpoints: {STEPS}\nsweep: {{t: [1]}}\n", "'sweep'", 3),
    "another method": (f"  checkpoints: {STEPS}\nmerge_method: ties\n", "no other merge", 3),
    "no name of a model": ("  checkpoints: [org/a, 'a b']\n", "neither a folder", 2),
    "no dtype": (f"  checkpoints: {STEPS}\ndtype: x\n", "dtype", 3),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_have_their_line(name: str) -> None:
    text, words, line = MISTAKES[name]
    with pytest.raises(InvalidRecipe, match=words) as caught:
        average(text, "")
    [problem, *_] = caught.value.problems
    assert problem.line == line and problem.where == "r.yaml"
    assert problem.expected and problem.fix


def test_an_average_of_stages_and_no_stage_is_one() -> None:
    stage = "name: a\nmerge_method: linear\nmodels: [{model: org/x, parameters: {weight: 1}}]\n"
    found = parse_recipe(f"{stage}---\naverage: {{checkpoints: [a, org/b]}}\n")
    assert windows(found) == {"org-b": ["a", "org/b"]}
    with pytest.raises(InvalidRecipe, match="A stage makes several models"):
        parse_recipe(
            f"name: m\naverage: {{checkpoints: [org/a]}}\n---\n{stage}  # m\n".replace("org/x", "m")
        )
