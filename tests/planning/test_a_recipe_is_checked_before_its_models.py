"""Promise: what can be known of a recipe without its models is reported before they are opened."""

from __future__ import annotations

from pathlib import Path

import pytest
from lora_files import write_lora_files
from merging import working_in

from resumerge.errors import InputError
from resumerge.methods import METHODS
from resumerge.planning import check_recipe, read_recipe
from resumerge.planning.check_recipe import find_method
from resumerge.recipe import parse_recipe

TWO = "models: [{model: a}, {model: b}]\n"
THREE = TWO.replace("}]", "}, {model: c}]")


def whats(text: str) -> list[str]:
    return [problem.what for problem in check_recipe(parse_recipe(text))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"merge_method: linear\nparameters: {{weight: 1}}\n{TWO}", []),
        (f"merge_method: slerp\nbase_model: a\nparameters: {{t: 1}}\n{TWO}", []),
        (
            f"merge_method: slerp\nbase_model: a\nparameters: {{t: 1}}\n{THREE}",
            ["slerp takes exactly 2 models"],
        ),
        (f"merge_method: slrp\nparameters: {{t: 1}}\n{TWO}", ["Unknown merge method 'slrp'"]),
        (
            f"merge_method: slrp\nparameters: {{t: x}}\n{TWO}",
            ["Unknown merge method 'slrp'", "The parameter 't' has an invalid value"],
        ),
        (
            f"merge_method: nothing_like_it\nparameters: {{t: x}}\n{TWO}",
            ["Unknown merge method 'nothing_like_it'"],
        ),
        (
            f"merge_method: linear\nparameters: {{weight: x}}\nchat_template: chatmi\n{TWO}",
            ["Unknown chat template 'chatmi'", "The parameter 'weight' has an invalid value"],
        ),
        (
            "merge_method: linear\nparameters: {weight: x}\n"
            f"sweep: {{dtype: [float16, float32]}}\n{TWO}",
            ["The parameter 'weight' has an invalid value"],
        ),
        (
            f"name: s\nmerge_method: slerp\nbase_model: a\nparameters: {{t: x}}\n{TWO}---\n"
            "merge_method: linear\nparameters: {weight: y}\nmodels: [{model: s}]\n",
            [
                "The parameter 't' has an invalid value",
                "The parameter 'weight' has an invalid value",
            ],
        ),
        (f"merge_method: ties\nparameters: {{weight: 1}}\nbase_model: c\n{TWO}", []),
        ("base_model: a\nextract_lora: {model: b}\n", []),
    ],
)
def test_methods_values_models_and_templates(text: str, expected: list[str]) -> None:
    assert whats(text) == expected


def test_a_base_is_needed_unless_all_models_may_be_adapters(tmp_path: Path) -> None:
    """Adapters are combined without a base. Whether a model on the Hub is one is not known yet."""
    needs = ["ties needs a base model"]

    def ties(*models: str, more: str = "", method: str = "ties") -> list[str]:
        listed = ", ".join(f"{{model: {model}}}" for model in models)
        text = f"merge_method: {method}\nparameters: {{weight: 1}}\nmodels: [{listed}]\n{more}"
        return whats(text)

    with working_in(tmp_path):
        for seed, name in enumerate(("one", "two")):
            write_lora_files(tmp_path / name, {"q_proj": (4, 4)}, seed)
        (tmp_path / "model").mkdir()
        assert ties("./one", "./two") == []
        assert ties("./model", "./one") == needs
        assert ties("./model", "./model2") == needs
        assert ties("org/x", "org/y") == []
        assert ties("org/x", "./one") == []
        assert ties("org/x", "./model") == needs
        assert ties("./one", "./tow") == [], "a misspelt one is told as that"
        assert ties("org/x+org/y") == needs
        assert ties("./one", "./two", method="slerp") == [], "told with the plan"
        assert ties("org/x", "org/y", method="slerp") == ["slerp needs a base model"]
        stage = f"name: s\nmerge_method: linear\nparameters: {{weight: 1}}\n{TWO}---\n"
        last = "merge_method: ties\nparameters: {weight: 1}\nmodels: [{model: s}]\n"
        assert whats(stage + last) == needs


def test_all_problems_of_a_file_are_told_in_the_order_of_its_lines(tmp_path: Path) -> None:
    """The problems include those of the parts that can be read despite other errors."""
    file = tmp_path / "recipe.yaml"
    file.write_text(
        "merge_method: linear\nparameters: {weight: x}\nmodels:\n  - {model: a}\n  - {model: a}\n"
        "dtype: float99\n"
    )
    with pytest.raises(InputError) as refused:
        read_recipe(file)
    lines = [problem.line or 0 for problem in refused.value.problems]
    assert lines == sorted(lines) and lines[0] == 2 and len(lines) >= 2
    file.write_text(f"merge_method: linear\nparameters: {{weight: 1}}\n{TWO}")
    assert read_recipe(file).merge_method == "linear"


def test_a_method_is_found_by_its_name() -> None:
    assert find_method("ties") is METHODS["ties"]
    with pytest.raises(InputError, match="RESUMERGE_METHODS") as refused:
        find_method("tise")
    [problem] = refused.value.problems
    assert "ties" in problem.fix.partition("For a method")[0]
    assert problem.expected == ", ".join(METHODS)
