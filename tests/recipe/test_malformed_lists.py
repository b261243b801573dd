"""Promise: a list of models or slices that is malformed hides nothing that is wrong elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from resumerge.errors import InputError
from resumerge.planning import read_recipe

LISTS = {
    "no list": ("models: 5\n", "models"),
    "a misspelled key": ("models: [{modl: org/a}]\n", "models[0].modl"),
    "no mapping": ("slices: [7]\n", "slices[0]"),
    "no sources": ("slices: [{sources: 5}]\n", "slices[0].sources"),
    "in a module": ("modules: {text: {models: 5}}\n", "modules.text.models"),
}


def told(tmp_path: Path, text: str) -> list[tuple[int | None, str]]:
    (tmp_path / "recipe.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        read_recipe(tmp_path / "recipe.yaml")
    return [(problem.line, problem.path) for problem in caught.value.problems]


@pytest.mark.parametrize("case", LISTS)
def test_method_parameters_and_options_are_told_with_it(tmp_path: Path, case: str) -> None:
    written, path = LISTS[case]
    text = (
        f"merge_method: tiess\n{written}"
        "parameters: {density: -7, wieght: 1}\ndtype: float17\ntokenizer_source: unoin\n"
    )
    assert told(tmp_path, text) == [
        (1, "merge_method"),
        (2, path),
        (3, "parameters.density"),
        (3, "parameters.wieght"),
        (4, "dtype"),
        (5, "tokenizer_source"),
    ]


def test_without_a_method_or_with_malformed_parameters_the_rest_is_told(tmp_path: Path) -> None:
    assert told(tmp_path, "models: 5\nparameters: {density: -7}\n") == [
        (1, "merge_method"),
        (1, "models"),
    ]
    assert told(tmp_path, "merge_method: tiess\nmodels: 5\nparameters: 5\n") == [
        (1, "merge_method"),
        (2, "models"),
        (3, "parameters"),
    ]


def test_an_entry_is_called_by_its_list(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("merge_method: ties\nslices: [7]\n")
    with pytest.raises(InputError, match="An entry of 'slices' is not a mapping"):
        read_recipe(tmp_path / "recipe.yaml")


def test_a_model_without_its_key_is_told_how_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("merge_method: linear\nmodels: [org/a]\n")
    with pytest.raises(InputError, match="Write '- model: org/a'"):
        read_recipe(tmp_path / "recipe.yaml")


def test_a_file_that_no_format_reads_is_not_called_a_wrong_name(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("merge_method: linear\nmodels: [{model: org/a/b.h5}]\n")
    with pytest.raises(InputError, match=r"Name the model that org/a/b[.]h5 was made"):
        read_recipe(tmp_path / "recipe.yaml")
