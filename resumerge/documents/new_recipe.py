"""A recipe to begin with: the parameters of one method, with their meanings and defaults."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from resumerge.errors import InputError, refuse
from resumerge.methods import Parameter
from resumerge.planning.check_recipe import check_recipe, find_method
from resumerge.recipe.as_yaml import as_yaml
from resumerge.recipe.load import parse_recipe
from resumerge.sources.formats.registry import is_readable

WITHOUT_EXAMPLE = 1.0
"""The value of a parameter that declares neither default nor example: one of a user's method."""

COMMENTS_AT = 34
"""Column at which comments begin, if the text before them is shorter."""


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
    if chosen.base == "required" and base is None:
        raise refuse(
            f"{method} needs a base model",
            expected="--base MODEL",
            found="no base model",
            fix="name the model that the others were trained from",
        )
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
    return _checked("\n".join(lines) + "\n")


class Kind(StrEnum):
    """The kinds of recipes that `resumerge init` writes."""

    MERGE = "merge"
    LORA = "lora"
    MIXTURE = "mixture"
    STAGES = "stages"


def new_recipe_of(
    kind: Kind, method: str | None, models: Sequence[str], base: str | None, dtype: str
) -> str:
    """Return a recipe of a kind, with comments, which `resumerge run` takes as it is.

    Args:
        kind: a merge of `models`; a model with LoRA adapters, which are the `models`; a mixture of
            experts, which are the `models`; or a merge in two stages.
        method: the merge method's name; None for the usual one of the kind.
        models: the models, without the base model.
        base: the base model; None for none.
        dtype: the output's dtype.

    Raises:
        InputError: there is no such method, or these are not the models that the kind takes.
    """
    if kind is Kind.MERGE:
        return new_recipe(method or "linear", models, base, dtype)
    if kind is Kind.STAGES:
        return _in_stages(method or "linear", models, base, dtype)
    if base is None:
        raise refuse(
            f"A recipe of the kind {kind.value} needs a base model",
            expected="--base MODEL",
            found="no base model",
            fix="name the model that the adapters are of"
            if kind is Kind.LORA
            else "name the model that gives attention, embeddings and tokenizer",
        )
    if kind is Kind.MIXTURE:
        return _checked(_mixture(models, base, dtype))
    adapted = [f"{base}+{adapter}" for adapter in models]
    if method is None:
        method = "passthrough" if len(adapted) == 1 else "task_arithmetic"
    takes_base = find_method(method).base == "required"
    return new_recipe(method, adapted, base if takes_base else None, dtype)


def _in_stages(method: str, models: Sequence[str], base: str | None, dtype: str) -> str:
    if len(models) < 3:
        raise refuse(
            "A merge in stages needs more models",
            expected="three or more: all but the last are merged first",
            found=f"{len(models)}",
            fix="name more models, or leave --kind out",
        )
    first = new_recipe(method, models[:-1], base, dtype)
    last = new_recipe(method, ["first", models[-1]], base, dtype)
    name = _commented("name: first", "the next document names the result by it")
    return _checked(f"{name}\n{first}---\n{last}")


def _mixture(models: Sequence[str], base: str, dtype: str) -> str:
    lines = [
        _commented(as_yaml({"base_model": base}).strip(), "gives all but the experts"),
        _commented("gate_mode: hidden", "of the prompts; or cheap_embed (quicker), random"),
        _commented("experts_per_token: 2", "that each token uses"),
        "experts:",
    ]
    for model in models:
        prompt = f"Write here what {model} is asked for"
        lines += [
            f"  - {as_yaml({'source_model': model}).strip()}",
            _commented("    positive_prompts:", "texts of the kind that this expert is for"),
            f"      - {json.dumps(prompt, ensure_ascii=False)}",
        ]
    lines.append(_commented(as_yaml({"dtype": dtype}).strip(), "of the output"))
    return "\n".join(lines) + "\n"


def _checked(text: str) -> str:
    """Return the text of a recipe, after checking it.

    Raises:
        InputError: with the problems of the recipe.
    """
    if problems := check_recipe(parse_recipe(text, "the new recipe")):
        raise InputError(problems)
    return text


def check_is_new(file: Path) -> None:
    """Check that a recipe can be written to a file, as far as can be told before writing.

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
    """Return the lines of a block of parameters.

    Parameters with a default are commented out, and so is the block if all of them have one.
    """
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
    value = parameter.default
    if parameter.required:
        value = WITHOUT_EXAMPLE if parameter.example is None else parameter.example
    return as_yaml({parameter.name: value}).strip()


def _commented(line: str, comment: str) -> str:
    return f"{line.ljust(COMMENTS_AT)}  # {comment}"
