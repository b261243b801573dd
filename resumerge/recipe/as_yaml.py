"""The recipes of commands that extract, and the YAML text of a recipe from a Python mapping."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import numpy as np
import yaml

from resumerge.errors import refuse


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_multi_representer(PurePath, lambda dumper, path: dumper.represent_str(str(path)))
_Dumper.add_multi_representer(
    np.generic,  # type: ignore[type-abstract]
    lambda dumper, number: dumper.represent_data(number.item()),
)
_Dumper.add_multi_representer(
    np.ndarray, lambda dumper, array: dumper.represent_data(array.tolist())
)


def extraction(model: str, number: int) -> dict[str, Any]:
    """Return the recipe that makes a dense model of one expert.

    Args:
        model: the reference to the mixture of experts, as a recipe names it.
        number: the number that the expert has in every layer, counted from 0.
    """
    return {"merge_method": "passthrough", "models": [{"model": model}], "extract_expert": number}


def adapter_extraction(model: str, base_model: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recipe of the adapter that changes a base model into another model.

    Args:
        model: the model that the adapter makes of the base model.
        base_model: the model that the adapter will be loaded on.
        options: the keys below ``extract_lora``; a value that is None or empty is left out.
    """
    options_set = {key: value for key, value in options.items() if value not in (None, (), [])}
    section = {k: list(v) if isinstance(v, tuple) else v for k, v in options_set.items()}
    return {"extract_lora": {"model": model, **section}, "base_model": base_model}


def as_yaml(recipe: Mapping[str, Any]) -> str:
    """Return the YAML text of a recipe, in the order of its keys.

    Raises:
        InputError: a value cannot be written as YAML.
    """
    try:
        return yaml.dump(
            dict(recipe), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=math.inf
        )
    except (yaml.YAMLError, RecursionError) as error:
        raise refuse(
            "The recipe cannot be written as YAML",
            expected="text, paths, numbers, booleans, lists and mappings",
            found=repr(error.args[-1])
            if isinstance(error, yaml.representer.RepresenterError)
            else "a recipe that contains itself",
            fix="convert such values, like float(x) or str(x)",
        ) from None
