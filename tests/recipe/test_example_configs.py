"""Every example in configs/ is a recipe that has nothing to note."""

from pathlib import Path

import pytest

from resumerge.recipe import load_recipe

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_parses(path: Path) -> None:
    recipe = load_recipe(path)
    assert recipe.notes == ()
    assert {str(ref) for ref in recipe.source_models} <= {
        "models/base",
        "models/math",
        "models/code",
    }
    assert path.stem == ("stages" if recipe.stages else recipe.merge_method)


def test_there_are_examples_of_the_first_methods() -> None:
    assert {path.stem for path in CONFIGS} >= {
        "linear",
        "slerp",
        "task_arithmetic",
        "ties",
        "dare_linear",
        "dare_ties",
        "passthrough",
        "stages",
        "mixture",
    }
