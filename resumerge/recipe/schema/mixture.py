"""The sections of a recipe that makes a mixture of experts, with mergekit-moe's keys."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

from resumerge.recipe.invalid import InvalidValue, describe
from resumerge.recipe.references import read_reference
from resumerge.recipe.schema.keys import read_name
from resumerge.recipe.schema.output_dtypes import read_dtype
from resumerge.recipe.schema.sections import (
    key,
    list_of,
    optional,
    required_key,
    section_of,
    value_of,
)
from resumerge.recipe.spelling import closest
from resumerge.recipe.types import GATE_MODES, LAYOUTS, ModelRef

OF_MERGES = ("merge_method", "models", "slices", "modules")
"""The keys of recipes that merge; a recipe that makes a mixture must not have them."""


def _read_prompts(value: object) -> tuple[str, ...]:
    texts = value if isinstance(value, list) else [value]
    for text in texts:
        if not isinstance(text, str) or not text or not _is_unicode(text):
            raise InvalidValue(
                "This is not a list of prompts",
                expected="a list of texts",
                found=describe(text),
                fix="Write each prompt on a line of its own, as '- \"a prompt\"'",
            )
    return tuple(texts)


def _is_unicode(text: str) -> bool:
    """Return whether a text can be encoded; a YAML escape may be one half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_scale(value: object) -> float:
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):  # YAML 1.1 reads 1e-2 as text
            if math.isfinite(number := float(value)):
                return number
    raise InvalidValue(
        "The scale is not a number",
        expected="a number",
        found=describe(value),
        fix="Write a number like 0.1, or delete the line",
    )


def _read_count(value: object) -> int:
    if type(value) is int and value >= 1:
        return value
    raise InvalidValue(
        "experts_per_token is not a number of experts",
        expected="a whole number from 1 on",
        found=describe(value),
        fix="Write 'experts_per_token: 2', or delete the line",
    )


def _read_architecture(value: object) -> str:
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise InvalidValue(
        "'architecture' is not the name of an architecture",
        expected="text: the beginning of its name",
        found=describe(value),
        fix="Write 'architecture: mixtral', or delete the line: the first that fits is chosen",
    )


def _one_of(name: str, choices: tuple[str, ...]) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value in choices:
            return str(value)
        similar_choice = closest(value, choices) if isinstance(value, str) else None
        raise InvalidValue(
            f"The value of '{name}' is invalid",
            expected=", ".join(choices),
            found=describe(value),
            fix=f"Write '{name}: {similar_choice or choices[0]}'",
        )

    return read


def _check_experts(entries: list[Any]) -> None:
    if not entries:
        raise InvalidValue(
            "The list of experts is empty",
            expected="a model for each expert",
            found="an empty list",
            fix="Write '- source_model: org/name' for each expert",
        )


_reference = value_of(read_reference)
_prompts = optional(value_of(_read_prompts))
_scale = optional(value_of(_read_scale))


@dataclass(frozen=True, kw_only=True)
class ExpertEntry:
    """An entry of ``experts`` or ``shared_experts``."""

    where: ClassVar[str] = "in an expert"
    source_model: ModelRef = field(
        metadata=required_key(
            _reference,
            expected="the model whose MLPs this expert is made of",
            fix="Add 'source_model: org/name' to this expert",
        )
    )
    positive_prompts: tuple[str, ...] | None = field(default=None, metadata=key(_prompts))
    negative_prompts: tuple[str, ...] | None = field(default=None, metadata=key(_prompts))
    noise_scale: float | None = field(default=None, metadata=key(_scale))
    residual_scale: float | None = field(default=None, metadata=key(_scale))


def _no_out_dtype(value: object) -> None:
    """Accept null only.

    Raises:
        InvalidValue: the value is not null.
    """
    if value is not None:
        raise InvalidValue(
            "A mixture of dense models takes no out_dtype",
            expected="dtype, which its weights have",
            found=describe(value),
            fix="Write 'dtype: bfloat16'; to quantise the mixture, name its folder in a second "
            "recipe with 'merge_method: passthrough' and this line",
        )


@dataclass(frozen=True, kw_only=True)
class MixtureFile:
    """The top level of a recipe that makes a mixture of experts."""

    where: ClassVar[str] = "at the top level of a mixture"
    name: str | None = field(default=None, metadata=key(optional(value_of(read_name))))
    base_model: ModelRef = field(
        metadata=required_key(
            _reference,
            expected="the model that gives attention, norms, embeddings and tokenizer",
            fix="Add 'base_model: org/name'",
        )
    )
    experts: list[ExpertEntry] = field(
        metadata=required_key(
            list_of(section_of(ExpertEntry), _check_experts),
            expected="the models that the experts are made of",
            fix="Add 'experts:' and below it '- source_model: org/name' for each expert",
        )
    )
    shared_experts: list[ExpertEntry] | None = field(
        default=None, metadata=key(optional(list_of(section_of(ExpertEntry))))
    )
    gate_mode: str = field(
        default=GATE_MODES[0], metadata=key(value_of(_one_of("gate_mode", GATE_MODES)))
    )
    dtype: str | None = field(default=None, metadata=key(value_of(read_dtype)))
    out_dtype: str | None = field(default=None, metadata=key(value_of(_no_out_dtype)))
    experts_per_token: int | None = field(
        default=None, metadata=key(optional(value_of(_read_count)))
    )
    architecture: str | None = field(
        default=None, metadata=key(optional(value_of(_read_architecture)))
    )
    expert_layout: str = field(
        default=LAYOUTS[0], metadata=key(value_of(_one_of("expert_layout", LAYOUTS)))
    )
