"""The YAML language: reads a recipe file into a valid `Recipe`, and resolves its parameters.

Nothing here opens a model. `load.py` makes the `Recipe` of `types.py` from a file, or reports all
problems. `yaml_lines.py` parses the file and records the line of each value. `schema/` declares the
sections and keys of the file and reads their values. `references.py` reads references to models,
`invalid.py` has the error of one value, and `spelling.py` finds the name that a misspelled one
resembles. `notes.py` has notes on settings that have no effect, or a surprising one. `stages.py`
makes one recipe of several documents; `sweep.py` and `average.py` expand the keys of these names to
several documents.

`resolve.py` finds the value of a parameter for one tensor. `normalized.py` returns the part of a
recipe that decides the result, for the fingerprint. `as_yaml.py` has the recipes of the commands
that extract, and writes recipes as YAML.

The schema does not use pydantic. mergekit lets users write many settings in several ways, and these
need readers and messages of their own with pydantic, too. A version with pydantic was about 100
lines shorter and needed 16 MB more memory. `yaml_lines.py` uses PyYAML, because no library both
reports the line of each value and refuses alias bombs.
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
