"""The sections of a recipe that merges, and their keys, with mergekit's names.

One function reads a value that may be written in several ways, so that one mistake becomes one
error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, ClassVar

from resumerge.recipe.invalid import Findings, InvalidValue, Location, describe
from resumerge.recipe.references import read_reference
from resumerge.recipe.schema.layer_ranges import check_equal_lengths, read_layer_range
from resumerge.recipe.schema.output_dtypes import read_dtype, read_out_dtype
from resumerge.recipe.schema.sections import (
    key,
    list_of,
    mapping_of,
    optional,
    required_key,
    section_of,
    value_of,
)
from resumerge.recipe.schema.settings import read_setting
from resumerge.recipe.schema.tokenizer import (
    read_template_setting,
    read_tokenizer,
    read_tokenizer_source,
)
from resumerge.recipe.types import ModelRef, Setting, TokenizerSetting

TOGETHER = "together"

_NAME = re.compile(r"[\w.-]+(/[\w.-]+)*", re.ASCII)


def _read_method(value: object) -> str:
    if isinstance(value, str) and value.strip():
        return value
    raise InvalidValue(
        "merge_method does not name a method",
        expected="the name of a merge method",
        found=describe(value),
        fix="Write 'merge_method: linear', or another method that 'resumerge methods' lists",
    )


def read_name(value: object) -> str:
    """Return the name of a stage, from its YAML value.

    Raises:
        InvalidValue: the value is not text, or has other characters than a name.
    """
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    raise InvalidValue(
        f"{describe(value)} is not a valid stage name",
        expected="letters, digits, '-', '_', '.' and '/'",
        found=describe(value),
        fix="Write a name like 'first', and the same where the other documents name the model",
    )


def _read_experts(value: object) -> str:
    if value == TOGETHER:
        return TOGETHER
    raise InvalidValue(
        "The value of 'experts' is invalid",
        expected=f"{TOGETHER}: the experts of a layer as one tensor, as mergekit merges them",
        found=describe(value),
        fix=f"Write 'experts: {TOGETHER}', or delete the line to merge each expert by itself",
    )


def _read_number(value: object) -> int:
    if type(value) is int and value >= 0:
        return value
    raise InvalidValue(
        "extract_expert is not the number of an expert",
        expected="a whole number from 0 on: the output is the dense model that this expert is",
        found=describe(value),
        fix="Write a number such as 0; a recipe without 'extract_expert' keeps all experts",
    )


def read_rank(value: object) -> int:
    """Return the largest rank of an adapter's modules, from its YAML value.

    Raises:
        InvalidValue: the value is not a whole number, or below 1.
    """
    if type(value) is int and value >= 1:
        return value
    raise InvalidValue(
        f"{describe(value)} is not a rank",
        expected="a whole number from 1 on",
        found=describe(value),
        fix="Write a number such as 64, or delete the line",
    )


def _check_models(entries: list[ModelEntry]) -> None:
    models = set()
    for index, entry in enumerate(entries):
        if entry.model in models:
            raise InvalidValue(
                f"The model {entry.model} is listed twice",
                expected="each model once: it has one set of parameters",
                found=str(entry.model),
                fix="Delete one of the two entries; to count a model twice, double its weight",
                at=(index, "model"),
            )
        models.add(entry.model)


def _check_sources(entries: list[SourceEntry]) -> None:
    if not entries:
        raise InvalidValue(
            "This slice has no sources",
            expected="at least one model with a layer_range",
            found="an empty list",
            fix="Add '- model: …' with its layer_range, or delete the slice",
        )
    _check_models([*entries])
    check_equal_lengths([(str(entry.model), entry.layer_range) for entry in entries])


def _read_parameters(value: Any, at: Location, errors: Findings) -> Any:
    return mapping_of(value_of(read_setting))({} if value is None else value, at, errors)


_reference = value_of(read_reference)
_dtype = value_of(read_dtype)


@dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """An entry of ``models``."""

    where: ClassVar[str] = "in an entry of models"
    model: ModelRef = field(
        metadata=required_key(
            _reference,
            expected="the model that this entry is about",
            fix="Add 'model: org/name' to this entry",
        )
    )
    parameters: dict[str, Setting] = field(default_factory=dict, metadata=key(_read_parameters))


@dataclass(frozen=True, kw_only=True)
class SourceEntry(ModelEntry):
    """An entry of a slice's ``sources``. mergekit 0.1.5 requires its layer_range (observed)."""

    where: ClassVar[str] = "in a source of a slice"
    layer_range: tuple[int, int] = field(
        metadata=required_key(
            value_of(read_layer_range),
            expected="the layers that the slice takes: [start, stop]; stop is not included",
            fix="Add 'layer_range: [0, 8]' with the layers that you want; "
            "to merge all layers of whole models, write 'models:' instead of 'slices:'",
        )
    )


@dataclass(frozen=True, kw_only=True)
class SliceEntry:
    """An entry of ``slices``."""

    where: ClassVar[str] = "in a slice"
    sources: list[SourceEntry] = field(
        metadata=required_key(
            list_of(section_of(SourceEntry), _check_sources),
            expected="the models that this slice is made from",
            fix="Add 'sources:' to this slice",
        )
    )
    base_model: ModelRef | None = field(default=None, metadata=key(optional(_reference)))
    parameters: dict[str, Setting] = field(default_factory=dict, metadata=key(_read_parameters))
    residual_weight: Any = field(default=None, metadata=key(value_of(lambda value: value)))


_models = optional(list_of(section_of(ModelEntry), _check_models))
_slices = optional(list_of(section_of(SliceEntry)))


@dataclass(frozen=True, kw_only=True)
class ModuleEntry:
    """An entry of ``modules``: one module of a model. mergekit has no base_model here."""

    where: ClassVar[str] = "in a module"
    models: list[ModelEntry] | None = field(default=None, metadata=key(_models))
    slices: list[SliceEntry] | None = field(default=None, metadata=key(_slices))
    base_model: ModelRef | None = field(default=None, metadata=key(optional(_reference)))
    parameters: dict[str, Setting] = field(default_factory=dict, metadata=key(_read_parameters))


@dataclass(frozen=True, kw_only=True)
class MergeFile:
    """The top level of a recipe that merges."""

    where: ClassVar[str] = "at the top level"
    name: str | None = field(default=None, metadata=key(optional(value_of(read_name))))
    merge_method: str = field(
        metadata=required_key(
            value_of(_read_method),
            expected="the name of a merge method, at the top level",
            fix="Add 'merge_method: linear', or another method that 'resumerge methods' lists",
        )
    )
    models: list[ModelEntry] | None = field(default=None, metadata=key(_models))
    slices: list[SliceEntry] | None = field(default=None, metadata=key(_slices))
    modules: dict[str, ModuleEntry] | None = field(
        default=None, metadata=key(optional(mapping_of(section_of(ModuleEntry))))
    )
    base_model: ModelRef | None = field(default=None, metadata=key(optional(_reference)))
    parameters: dict[str, Setting] = field(default_factory=dict, metadata=key(_read_parameters))
    dtype: str | None = field(default=None, metadata=key(_dtype))
    out_dtype: str | None = field(default=None, metadata=key(value_of(read_out_dtype)))
    tokenizer: TokenizerSetting | None = field(default=None, metadata=key(optional(read_tokenizer)))
    tokenizer_source: TokenizerSetting | None = field(
        default=None, metadata=key(value_of(read_tokenizer_source))
    )
    chat_template: str | None = field(default=None, metadata=key(value_of(read_template_setting)))
    experts: str | None = field(default=None, metadata=key(optional(value_of(_read_experts))))
    extract_expert: int | None = field(default=None, metadata=key(optional(value_of(_read_number))))
    average: Any = field(default=None, metadata=key(value_of(lambda value: value)))  # `average.py`
    sweep: Any = field(default=None, metadata=key(value_of(lambda value: value)))  # see `sweep.py`
    rank: int | None = field(default=None, metadata=key(optional(value_of(read_rank))))
