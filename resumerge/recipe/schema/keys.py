"""mergekit's YAML, level by level: what may stand where.

Values that can be written in several ways are each read by one function, so that one mistake is one
error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from resumerge.recipe.invalid import InvalidValue, describe
from resumerge.recipe.references import read_reference
from resumerge.recipe.schema.dtypes import read_dtype
from resumerge.recipe.schema.layer_ranges import check_equal_lengths, read_layer_range
from resumerge.recipe.schema.sections import (
    Fault,
    Location,
    by,
    entry_of,
    list_of,
    mapping_of,
    optional,
    value_by,
)
from resumerge.recipe.schema.settings import read_setting
from resumerge.recipe.schema.tokenizer import (
    read_chat_template,
    read_tokenizer,
    read_tokenizer_source,
)
from resumerge.recipe.types import ModelRef


def _method(value: object) -> str:
    if isinstance(value, str) and value.strip():
        return value
    raise InvalidValue(
        "merge_method names no method",
        expected="the name of a merge method",
        found=describe(value),
        fix="Write 'merge_method: linear', or another of those that 'resumerge methods' lists",
    )


def _each_model_once(entries: list[ModelEntry]) -> None:
    seen = set()
    for index, entry in enumerate(entries):
        if entry.model in seen:
            raise InvalidValue(
                f"The model {entry.model} is named twice",
                expected="each model once: it has one set of parameters",
                found=str(entry.model),
                fix="Delete one of the two entries; to count a model double, double its weight",
                at=(index, "model"),
            )
        seen.add(entry.model)


def _sources(entries: list[SourceEntry]) -> None:
    if not entries:
        raise InvalidValue(
            "This slice has no sources",
            expected="at least one model with a layer_range",
            found="an empty list",
            fix="Add '- model: …' with its layer_range, or delete the slice",
        )
    _each_model_once([*entries])
    check_equal_lengths([(str(entry.model), entry.layer_range) for entry in entries])


_reference = value_by(read_reference)
_settings = mapping_of(value_by(read_setting))
_anything = value_by(lambda value: value)


def _parameters(value: Any, place: Location, faults: list[Fault]) -> Any:
    return _settings({} if value is None else value, place, faults)


@dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """An entry of ``models``."""

    model: ModelRef = field(metadata=by(_reference))
    parameters: dict[str, Any] = field(default_factory=dict, metadata=by(_parameters))


@dataclass(frozen=True, kw_only=True)
class SourceEntry(ModelEntry):
    """An entry of a slice's ``sources``. mergekit 0.1.5 demands its layer_range (observed)."""

    layer_range: Any = field(metadata=by(value_by(read_layer_range)))


@dataclass(frozen=True, kw_only=True)
class SliceEntry:
    """An entry of ``slices``."""

    sources: list[SourceEntry] = field(metadata=by(list_of(entry_of(SourceEntry), _sources)))
    base_model: ModelRef | None = field(default=None, metadata=by(optional(_reference)))
    parameters: dict[str, Any] = field(default_factory=dict, metadata=by(_parameters))
    residual_weight: Any = field(default=None, metadata=by(_anything))


_models = optional(list_of(entry_of(ModelEntry), _each_model_once))
_slices = optional(list_of(entry_of(SliceEntry)))


@dataclass(frozen=True, kw_only=True)
class ModuleEntry:
    """An entry of ``modules``: one part of a model. mergekit has no base_model here."""

    models: list[ModelEntry] | None = field(default=None, metadata=by(_models))
    slices: list[SliceEntry] | None = field(default=None, metadata=by(_slices))
    base_model: ModelRef | None = field(default=None, metadata=by(optional(_reference)))
    parameters: dict[str, Any] = field(default_factory=dict, metadata=by(_parameters))


_modules = optional(mapping_of(entry_of(ModuleEntry)))


@dataclass(frozen=True, kw_only=True)
class RecipeFile:
    """The top level."""

    merge_method: str = field(metadata=by(value_by(_method)))
    models: list[ModelEntry] | None = field(default=None, metadata=by(_models))
    slices: list[SliceEntry] | None = field(default=None, metadata=by(_slices))
    modules: dict[str, ModuleEntry] | None = field(default=None, metadata=by(_modules))
    base_model: ModelRef | None = field(default=None, metadata=by(optional(_reference)))
    parameters: dict[str, Any] = field(default_factory=dict, metadata=by(_parameters))
    dtype: str | None = field(default=None, metadata=by(value_by(read_dtype)))
    out_dtype: str | None = field(default=None, metadata=by(value_by(read_dtype)))
    tokenizer: Any = field(default=None, metadata=by(value_by(read_tokenizer)))
    tokenizer_source: Any = field(default=None, metadata=by(value_by(read_tokenizer_source)))
    chat_template: Any = field(default=None, metadata=by(value_by(read_chat_template)))
