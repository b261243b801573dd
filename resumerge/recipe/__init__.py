"""The YAML language: a recipe file in, a checked `Recipe` out, and its parameters by tensor."""

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
