"""Experts whose gates hardly tell them apart are named, with the layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dense_models import CONFIGS, PROMPTED, mixture, write_dense
from merging import Told, working_in

from resumerge.engine.lifecycle.session import Session
from resumerge.experts.upcycling.gates.dependence import dependence_notes, dependent_gates
from resumerge.options import Options


@pytest.fixture(scope="module")
def llamas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dense(tmp_path_factory.mktemp("llama"), CONFIGS["llama"])


def notes_of(models: Path, folder: Path, recipe: str) -> list[str]:
    told = Told()
    (folder / "recipe.yaml").write_text(recipe)
    with working_in(models):
        options = Options(state_dir=folder / "state")
        Session(options, told).run(folder / "recipe.yaml", folder / "out")
    return [note for note in told.notes if note.startswith(("the gate", "gates of"))]


@pytest.mark.parametrize("mode", ["cheap_embed", "hidden_avg"])
def test_a_merge_names_experts_of_the_same_prompts(llamas: Path, tmp_path: Path, mode: str) -> None:
    recipe = mixture(mode, "mixtral").replace("Once upon a time", "def main")
    [note] = notes_of(llamas, tmp_path, recipe)
    assert note.startswith("the gates of experts 1 and 2 are nearly the same in all layers")


def test_a_shared_expert_is_not_compared(llamas: Path, tmp_path: Path) -> None:
    """The gate of a shared expert does not choose between experts."""
    recipe = mixture("cheap_embed", "qwen", PROMPTED.replace("[it]", "[def main]"))
    assert not notes_of(llamas, tmp_path, recipe)


def test_two_that_are_alike_in_one_layer() -> None:
    gates = np.array([[[1, 0, 0], [0, 1, 0], [1, 0, 0]], np.eye(3)], np.float32)
    assert dependent_gates(gates) == {(0, 2): [0]}
    [note] = dependence_notes(gates)
    assert "experts 0 and 2 are nearly the same in layer 0:" in note


@pytest.mark.parametrize("angle, alike", [(0.19, True), (0.21, False)])
def test_two_that_are_nearly_alike(angle: float, alike: bool) -> None:
    """The limit is a cosine of about 0.98."""
    gates = np.array([[[1, 0], [np.cos(angle), np.sin(angle)]]], np.float32)
    assert bool(dependent_gates(gates)) is alike


def test_one_that_lies_between_others() -> None:
    """A token cannot choose the third gate alone, although no two gates are alike."""
    rows = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.6, 0.8, 0]], np.float32)
    gates = np.stack([np.eye(4, 3, dtype=np.float32), rows, rows, rows])
    gates[0, 3] = [-1, 0, 0]
    assert dependent_gates(gates) == {(0, 3): [0], (0, 1, 3): [1, 2, 3]}
    first, second = dependence_notes(gates)
    assert "experts 0, 1 and 3 are nearly dependent in layers 1 to 3" in first
    assert "experts 0 and 3 are nearly the same in layer 0" in second


def test_two_that_are_the_same_but_for_their_rounding_span_no_plane() -> None:
    """A third gate of any direction would otherwise count as a combination of the two."""
    gates = np.array([[[1, 0], [1, 1e-6], [0, 1]]], np.float32)
    assert dependent_gates(gates) == {(0, 1): [0]}


def test_one_that_points_nowhere() -> None:
    gates = np.array([[[1, 0], [0, 0]]] * 2, np.float32)
    assert list(dependence_notes(gates)) == [
        "the gate of expert 1 is zero in all layers: its positive and negative prompts say the same"
    ]


def test_many_groups_take_few_lines() -> None:
    gates = np.repeat(np.eye(12, dtype=np.float32), 2, axis=0)[None]
    notes = list(dependence_notes(gates))
    assert len(notes) == 9 and "4 further groups" in notes[-1]
