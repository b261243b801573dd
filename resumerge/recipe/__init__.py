"""The YAML language: reads a recipe file into a valid `Recipe`, and resolves its parameters.

Nothing here opens a model. `schema/` declares the sections and keys of the file and reads their
values.

The schema does not use pydantic. mergekit lets users write many settings in several ways, and these
need readers and messages of their own with pydantic, too. A version with pydantic was about 100
lines shorter and needed 16 MB more memory. `yaml_lines.py` reads YAML on top of PyYAML, because no
library both reports the line of each value and refuses alias bombs.
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
