"""A recipe to begin with: the parameters of one method, with what they mean and their defaults."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from resumerge.errors import InputError, refuse
from resumerge.methods import Parameter
from resumerge.planning.check_recipe import check_recipe, find_method
from resumerge.recipe.as_yaml import as_yaml
from resumerge.recipe.load import parse_recipe
from resumerge.sources.formats.registry import is_readable

USUAL = {"weight": 1.0, "t": 0.5}
"""Values of parameters that have no default."""

COMMENTS_AT = 34
"""Column at which comments begin, where what they explain is shorter."""


def new_recipe(method: str, models: Sequence[str], base: str | None, dtype: str) -> str:
    """Return a recipe with comments, which `resumerge run` takes as it is.

    Args:
        method: the merge method's name.
        models: the models, without the base model.
        base: the base model; None for none.
        dtype: the output's dtype.

    Raises:
        InputError: there is no such method, or these are not the models that it takes.
    """
    if isinstance(models, str):  # a sequence, too: of letters
        raise refuse("The models are not a list", expected="a list of names", found=repr(models))
    chosen = find_method(method)
    per_model = [parameter for parameter in chosen.parameters if parameter.per_model]
    lines = [_commented(f"merge_method: {method}", chosen.summary)]
    if base is not None:
        lines.append(as_yaml({"base_model": base}).strip())
    lines.append("models:")
    for model in models:
        lines.append(f"  - {as_yaml({'model': model}).strip()}")
        lines += _parameters(per_model, "    ")
    lines += _parameters([p for p in chosen.parameters if not p.per_model], "")
    lines += [
        _commented(
            as_yaml({"dtype": dtype}).strip(), "of the output: bfloat16, float16 or float32"
        ),
        _commented("# tokenizer_source: union", "if the models' vocabularies differ"),
    ]
    text = "\n".join(lines) + "\n"
    if problems := check_recipe(parse_recipe(text, "the new recipe")):
        raise InputError(problems)
    return text


def check_is_new(file: Path) -> None:
    """Check that a recipe can be written to a file, as far as that is known before.

    Raises:
        InputError: there is such a file, or no such folder; or a weight file was named, which is
            the second model of ``--models A B``.
    """
    if is_readable(file.name):
        raise refuse(
            "This is the name of a weight file, not of a recipe",
            where=file,
            expected="the recipe to write, like merge.yaml",
            found=file.name,
            fix=f"separate models by commas: --models other.safetensors,{file}",
        )
    if os.path.lexists(file):
        raise _unwritable(file, os.strerror(errno.EEXIST))
    if not file.parent.is_dir():
        raise _unwritable(file, os.strerror(errno.ENOENT))


def write_recipe(file: Path, text: str) -> None:
    """Write a recipe to a new file, whole or not at all.

    Raises:
        InputError: there is such a file, or it cannot be written.
    """
    try:
        opened = file.open("x", encoding="utf-8")
    except OSError as error:
        raise _unwritable(file, error.strerror) from None
    try:
        with opened:
            opened.write(text)
    except OSError as error:
        file.unlink()
        raise _unwritable(file, error.strerror) from None


def _unwritable(file: Path, found: object) -> InputError:
    return refuse(
        "The recipe cannot be written",
        where=file,
        expected="a new file, in a folder that exists and that you can write to",
        found=found,
        fix="name another file, or remove this one",
    )


def _parameters(parameters: Sequence[Parameter], indent: str) -> list[str]:
    """Return a block of parameters; those with a default are comments, and so may the block be."""
    if not parameters:
        return []
    lines = [
        _commented(f"{indent}  {_setting(parameter)}", parameter.meaning)
        if parameter.required
        else _commented(f"{indent}  # {_setting(parameter)}", parameter.meaning)
        for parameter in parameters
    ]
    is_empty = not any(parameter.required for parameter in parameters)
    return [f"{indent}{'# ' * is_empty}parameters:", *lines]


def _setting(parameter: Parameter) -> str:
    value = USUAL.get(parameter.name, 1.0) if parameter.required else parameter.default
    return as_yaml({parameter.name: value}).strip()


def _commented(line: str, comment: str) -> str:
    return f"{line.ljust(COMMENTS_AT)}  # {comment}"
