"""The YAML language: the reading of a recipe file into a valid `Recipe`, and of its parameters.

Nothing here opens a model. `schema/` declares the sections and keys of the file and reads their
values.

The schema does not use pydantic, because the settings that mergekit lets users write in several
ways need readers and messages of their own either way: with pydantic it was about 100 lines shorter
and took 16 MB more memory. YAML is read here because no library gives the line of each value and
refuses alias bombs.
"""

from resumerge.recipe.load import load_recipe, parse_recipe
from resumerge.recipe.resolve import interpolate, resolve
from resumerge.recipe.types import (
    Conditional,
    Input,
    ModelRef,
    Module,
    Recipe,
    Scalar,
    Setting,
    Slice,
    TokenizerSetting,
    TokenRow,
)

__all__ = [
    "Conditional",
    "Input",
    "ModelRef",
    "Module",
    "Recipe",
    "Scalar",
    "Setting",
    "Slice",
    "TokenRow",
    "TokenizerSetting",
    "interpolate",
    "load_recipe",
    "parse_recipe",
    "resolve",
]
