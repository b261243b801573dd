"""Writes docs/recipe.schema.json: the JSON schema of a recipe, for editors.

It is made from the declarations in `resumerge.recipe.schema` and of the merge methods. A test holds
that the file is current. What a value means, and what fits together, `resumerge plan` checks.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from pathlib import Path
from typing import Any, Union

from resumerge.methods import METHODS
from resumerge.recipe import average
from resumerge.recipe.notes import IGNORED_KEYS
from resumerge.recipe.schema import extraction, keys, mixture, output_dtypes, tokenizer
from resumerge.recipe.types import GATE_MODES, LAYOUTS, QUANTISED, ModelRef

FILE = Path(__file__).with_name("recipe.schema.json")

NULL = {"type": "null"}
MODEL = {
    "description": "org/name, org/name@revision, a folder, a weight file or s3://bucket/prefix; "
    "and +adapter after it",
    "anyOf": [{"type": "string"}, {"type": "object"}],
}
SCALAR = {"type": ["number", "boolean", "string"]}
SETTING = {
    "description": "a value, a list of values over the layers, or a list of {filter, value}",
    "anyOf": [
        SCALAR,
        {"type": "array", "items": {"anyOf": [SCALAR, {"$ref": "#/$defs/Filtered"}]}},
        {"$ref": "#/$defs/Filtered"},
    ],
}
FILTERED = {
    "type": "object",
    "properties": {
        "filter": {"type": ["string", "null"], "description": "a part of the names of tensors"},
        "value": {"anyOf": [SCALAR, {"type": "array", "items": SCALAR}]},
    },
    "required": ["value"],
}
PARAMETERS = {
    "type": ["object", "null"],
    "properties": {
        parameter.name: {"description": parameter.meaning, "$ref": "#/$defs/Setting"}
        for method in METHODS.values()
        for parameter in method.parameters
    },
    "additionalProperties": {"$ref": "#/$defs/Setting"},
}
DTYPE = {"enum": [None, "", *output_dtypes.DTYPES, *(f"torch.{d}" for d in output_dtypes.DTYPES)]}

TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT, "minItems": 1}
SCHEDULE = {
    "anyOf": [
        {"enum": list(average.DECAYS)},
        {
            "type": "object",
            "properties": {"ema": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}},
            "required": ["ema"],
            "additionalProperties": False,
        },
    ]
}

SPECIAL: dict[str, Any] = {
    "merge_method": {"anyOf": [{"enum": list(METHODS)}, {"type": "string"}]},
    "dtype": DTYPE,
    "out_dtype": {"enum": [*DTYPE["enum"], *QUANTISED, *output_dtypes.OF_GGUF]},
    "parameters": {"$ref": "#/$defs/Parameters"},
    "tokenizer_source": {"anyOf": [{"enum": ["union", "base"]}, {"$ref": "#/$defs/Model"}, NULL]},
    "source": {"anyOf": [{"enum": ["union", "base"]}, {"$ref": "#/$defs/Model"}]},
    "tokens": {"type": ["object", "null"]},
    "force": {"type": ["boolean", "integer", "string", "null"]},
    "extract_expert": {"type": ["integer", "null"], "minimum": 0},
    "experts_per_token": {"type": ["integer", "null"], "minimum": 1},
    "gate_mode": {"enum": [*GATE_MODES, None]},
    "expert_layout": {"enum": [*LAYOUTS, None]},
    "positive_prompts": {"$ref": "#/$defs/Prompts"},
    "negative_prompts": {"$ref": "#/$defs/Prompts"},
    "noise_scale": {"type": ["number", "string", "null"]},
    "residual_scale": {"type": ["number", "string", "null"]},
    "rank": {"type": ["integer", "null"], "minimum": 1},
    "max_rank": {"type": ["integer", "null"], "minimum": 1},
    "sv_epsilon": {"type": ["number", "string", "null"]},
    "energy": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1},
    "save_modules": {"$ref": "#/$defs/Prompts"},
    "include": {"$ref": "#/$defs/Prompts"},
    "exclude": {"$ref": "#/$defs/Prompts"},
    "layer_range": {"type": "array", "minItems": 2, "maxItems": 2},
    "residual_weight": {},
    "average": {
        "description": "averages of windows of a training's checkpoints, in one run",
        "type": "object",
        "properties": {
            average.CHECKPOINTS: {
                "description": "a pattern of folders, or a list of models, the oldest first",
                "anyOf": [TEXT, TEXTS],
            },
            "window": {"type": "integer", "minimum": 1},
            "stride": {"type": "integer", "minimum": 1},
            "weights": {"anyOf": [SCHEDULE, {"type": "array", "items": SCHEDULE, "minItems": 1}]},
            average.LISTED: TEXTS,
        },
        "required": [average.CHECKPOINTS],
        "additionalProperties": False,
    },
    "sweep": {
        "description": "models in one run: lists of values by place, or variants by name",
        "type": "object",
        "properties": {"variants": {"type": "object", "additionalProperties": {"type": "object"}}},
        "additionalProperties": {"type": "array", "minItems": 1},
    },
}
"""Keys whose values may be written in more ways than their type says."""

SECTIONS = {"tokenizer": tokenizer._TokenizerSection}
REQUIRED_SECTIONS = {"extract_lora": extraction.ExtractionSection}
"""Keys whose sections have another type after they are read."""


def schema() -> dict[str, Any]:
    """Return the schema: a recipe that merges, makes a mixture of experts, or an adapter."""
    definitions: dict[str, Any] = {
        "Model": MODEL,
        "Setting": SETTING,
        "Filtered": FILTERED,
        "Parameters": PARAMETERS,
        "Prompts": {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}, NULL]
        },
    }
    for top in (keys.MergeFile, mixture.MixtureFile, extraction.ExtractionFile):
        _section(top, definitions)
        definitions[top.__name__]["properties"] |= {
            name: {"description": "of mergekit; it has no effect here"}
            for name in sorted(IGNORED_KEYS - definitions[top.__name__]["properties"].keys())
        }
    merge = definitions[keys.MergeFile.__name__]
    merge["anyOf"] = [{"required": merge.pop("required")}, {"required": [average.AVERAGE]}]
    # A document with extract_lora makes an adapter, one with a list of experts a mixture.
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A recipe of resumerge, or a config of mergekit",
        "if": {"properties": {"experts": {"type": "array"}}, "required": ["experts"]},
        "then": {"$ref": "#/$defs/MixtureFile"},
        "else": {
            "if": {"required": ["extract_lora"]},
            "then": {"$ref": "#/$defs/ExtractionFile"},
            "else": {"$ref": "#/$defs/MergeFile"},
        },
        "$defs": definitions,
    }


def _section(section: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return a reference to a section's definition, which is added to `definitions`."""
    name = section.__name__.removeprefix("_")
    if name not in definitions:
        found = definitions[name] = {"type": "object", "properties": {}, "required": []}
        hints = typing.get_type_hints(section)
        for field in dataclasses.fields(section):
            if section is mixture.MixtureFile and field.name == "out_dtype":
                found["properties"][field.name] = NULL
                continue
            if section is extraction.ExtractionFile and field.name == "out_dtype":
                found["properties"][field.name] = DTYPE
                continue
            sections = SECTIONS | REQUIRED_SECTIONS
            hint = sections.get(field.name, hints[field.name])
            value = SPECIAL[field.name] if field.name in SPECIAL else _value(hint, definitions)
            if field.name in SECTIONS:
                value = {"anyOf": [value, NULL]}
            if "expected" in field.metadata:
                found["required"].append(field.name)
                value = {"description": field.metadata["expected"], **value}
            found["properties"][field.name] = value
        found["additionalProperties"] = False
    return {"$ref": f"#/$defs/{name}"}


def _value(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a value of this type."""
    if hint is ModelRef:
        return {"$ref": "#/$defs/Model"}
    if dataclasses.is_dataclass(hint):
        return _section(hint, definitions)
    kind, inner = typing.get_origin(hint), typing.get_args(hint)
    if kind in (types.UnionType, Union):
        values = [_value(one, definitions) for one in inner if one is not type(None)]
        if len(values) == 1 and "type" in values[0]:  # so that an editor points into it
            return {**values[0], "type": [values[0]["type"], "null"]}
        return {"anyOf": [*values, NULL]}
    if kind is list:
        return {"type": "array", "items": _value(inner[0], definitions)}
    if kind is dict:
        return {"type": "object", "additionalProperties": _value(inner[1], definitions)}
    plain = {str: "string", int: "integer", float: "number", bool: "boolean"}
    return {"type": plain[hint]}


def text() -> str:
    """Return the text of the file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
