"""mergekit's YAML, level by level, as pydantic models: what may stand where.

Values that can be written in several ways are read by functions of ours, not by unions, so that
one mistake is one error. Such an error has the type ``unfit`` and the `Unfit` in its context.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainValidator
from pydantic_core import PydanticCustomError

from resumerge.recipe.dtypes import read_dtype
from resumerge.recipe.layer_ranges import check_equal_lengths, read_layer_range
from resumerge.recipe.references import read_reference
from resumerge.recipe.settings import read_setting
from resumerge.recipe.tokenizer import read_chat_template, read_tokenizer, read_tokenizer_source
from resumerge.recipe.unfit import Unfit, describe


def _by(reader: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A reader that raises `Unfit`, as a validator."""

    def validate(value: Any) -> Any:
        try:
            return reader(value)
        except Unfit as unfit:
            raise PydanticCustomError("unfit", "unfit", {"unfit": unfit}) from None

    return validate


def _method(value: object) -> str:
    if isinstance(value, str) and value.strip():
        return value
    raise Unfit(
        "merge_method names no method",
        expected="the name of a merge method",
        found=describe(value),
        fix="Write 'merge_method: linear', or another of those that 'resumerge methods' lists",
    )


def _each_model_once(entries: list[ModelEntry]) -> list[ModelEntry]:
    seen = set()
    for index, entry in enumerate(entries):
        if entry.model in seen:
            raise Unfit(
                f"The model {entry.model} is named twice",
                expected="each model once: it has one set of parameters",
                found=str(entry.model),
                fix="Delete one of the two entries; to count a model double, double its weight",
                at=(index, "model"),
            )
        seen.add(entry.model)
    return entries


def _sources(entries: list[SourceEntry]) -> list[SourceEntry]:
    if not entries:
        raise Unfit(
            "This slice has no sources",
            expected="at least one model with a layer_range",
            found="an empty list",
            fix="Add '- model: …' with its layer_range, or delete the slice",
        )
    _each_model_once(list(entries))
    check_equal_lengths([(str(entry.model), entry.layer_range) for entry in entries])
    return entries


Reference = Annotated[Any, PlainValidator(_by(read_reference))]
OptionalReference = Annotated[
    Any, PlainValidator(_by(lambda value: None if value is None else read_reference(value)))
]
Parameters = Annotated[
    dict[str, Annotated[Any, PlainValidator(_by(read_setting))]],
    BeforeValidator(lambda value: {} if value is None else value),
]
DtypeName = Annotated[Any, PlainValidator(_by(read_dtype))]


class _Level(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ModelEntry(_Level):
    """An entry of ``models``."""

    model: Reference
    parameters: Parameters = {}


class SourceEntry(ModelEntry):
    """An entry of a slice's ``sources``. mergekit 0.1.5 demands its layer_range (observed)."""

    layer_range: Annotated[Any, PlainValidator(_by(read_layer_range))]


class SliceEntry(_Level):
    """An entry of ``slices``."""

    sources: Annotated[list[SourceEntry], AfterValidator(_by(_sources))]
    base_model: OptionalReference = None
    parameters: Parameters = {}
    residual_weight: Any = None


class ModuleEntry(_Level):
    """An entry of ``modules``: one part of a model. mergekit has no base_model here."""

    models: Annotated[list[ModelEntry], AfterValidator(_by(_each_model_once))] | None = None
    slices: list[SliceEntry] | None = None
    base_model: OptionalReference = None
    parameters: Parameters = {}


class RecipeFile(_Level):
    """The top level."""

    merge_method: Annotated[Any, PlainValidator(_by(_method))]
    models: Annotated[list[ModelEntry], AfterValidator(_by(_each_model_once))] | None = None
    slices: list[SliceEntry] | None = None
    modules: dict[str, ModuleEntry] | None = None
    base_model: OptionalReference = None
    parameters: Parameters = {}
    dtype: DtypeName = None
    out_dtype: DtypeName = None
    tokenizer: Annotated[Any, PlainValidator(_by(read_tokenizer))] = None
    tokenizer_source: Annotated[Any, PlainValidator(_by(read_tokenizer_source))] = None
    chat_template: Annotated[Any, PlainValidator(_by(read_chat_template))] = None
