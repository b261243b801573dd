"""The sections of a recipe that extracts a LoRA adapter, with mergekit-extract-lora's options."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

from resumerge.recipe.invalid import InvalidValue, describe
from resumerge.recipe.references import read_reference
from resumerge.recipe.schema.keys import read_name, read_rank
from resumerge.recipe.schema.output_dtypes import DTYPES, read_dtype
from resumerge.recipe.schema.sections import key, optional, required_key, section_of, value_of
from resumerge.recipe.types import QUANTISED, ModelRef

OF_ALL_MERGES = ("merge_method", "models", "slices", "modules", "experts", "parameters", "dtype")
"""The keys of recipes that make models; a recipe that extracts an adapter must not have them."""


def _read_epsilon(value: object) -> float:
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):  # YAML 1.1 reads 1e-2 as text
            number = float(value)
            if math.isfinite(number) and number >= 0.0:
                return number
    raise InvalidValue(
        "sv_epsilon is not a length",
        expected="a number from 0 on: singular values up to it are left out",
        found=describe(value),
        fix="Write a number like 0.001, or delete the line",
    )


def _read_energy(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0.0 < value <= 1.0:
        return float(value)
    raise InvalidValue(
        "energy is not a share",
        expected="a number above 0, and at most 1: the share of each change that is kept",
        found=describe(value),
        fix="Write a number like 0.95, or delete the line",
    )


def _plain_dtype(value: object) -> str | None:
    if value in QUANTISED:
        raise InvalidValue(
            "An adapter is not quantised",
            expected=", ".join(DTYPES),
            found=describe(value),
            fix="Write 'out_dtype: bfloat16', or delete the line",
        )
    return read_dtype(value)


def _read_flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise InvalidValue(
        "The value is neither true nor false",
        expected="true or false",
        found=describe(value),
        fix="Write 'true' or 'false', or delete the line",
    )


def _read_words(value: object) -> tuple[str, ...]:
    words = value if isinstance(value, list) else [value]
    if all(isinstance(word, str) and word for word in words):
        return tuple(words)
    raise InvalidValue(
        "The value is not a list of names",
        expected="the names of modules, or their last words",
        found=describe(value),
        fix="Write each name on a line of its own, as '- lm_head'",
    )


def _read_expressions(value: object) -> tuple[str, ...]:
    expressions = _read_words(value)
    for text in expressions:
        try:
            re.compile(text)
        except re.error as error:
            raise InvalidValue(
                "This is not a regular expression",
                expected="a regular expression of Python, which is searched in names of modules",
                found=f"{text!r}: {error}",
                fix="Correct it; a dot, a bracket… that is meant as such has a backslash before it",
            ) from None
    return expressions


_flag = optional(value_of(_read_flag))
_expressions = optional(value_of(_read_expressions))


@dataclass(frozen=True, kw_only=True)
class ExtractionSection:
    """The section ``extract_lora``."""

    where: ClassVar[str] = "in extract_lora"
    model: ModelRef = field(
        metadata=required_key(
            value_of(read_reference),
            expected="the model whose difference from the base model is extracted",
            fix="Add 'model: org/name' below 'extract_lora:'",
        )
    )
    max_rank: int | None = field(default=None, metadata=key(optional(value_of(read_rank))))
    sv_epsilon: float | None = field(default=None, metadata=key(optional(value_of(_read_epsilon))))
    energy: float | None = field(default=None, metadata=key(optional(value_of(_read_energy))))
    distribute_scale: bool | None = field(default=None, metadata=key(_flag))
    embed_lora: bool | None = field(default=None, metadata=key(_flag))
    save_modules: tuple[str, ...] | None = field(
        default=None, metadata=key(optional(value_of(_read_words)))
    )
    include: tuple[str, ...] | None = field(default=None, metadata=key(_expressions))
    exclude: tuple[str, ...] | None = field(default=None, metadata=key(_expressions))
    skip_undecomposable: bool | None = field(default=None, metadata=key(_flag))


@dataclass(frozen=True, kw_only=True)
class ExtractionFile:
    """The top level of a recipe that extracts an adapter."""

    where: ClassVar[str] = "at the top level of an extraction"
    name: str | None = field(default=None, metadata=key(optional(value_of(read_name))))
    extract_lora: Any = field(
        metadata=required_key(
            section_of(ExtractionSection),
            expected="the model, and the options of the adapter",
            fix="Add 'extract_lora:' and below it 'model: org/name'",
        )
    )
    base_model: ModelRef = field(
        metadata=required_key(
            value_of(read_reference),
            expected="the model that the adapter is for",
            fix="Add 'base_model: org/name'",
        )
    )
    out_dtype: str | None = field(default=None, metadata=key(value_of(_plain_dtype)))
