"""Recipes: YAML with other data, and other text."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import yaml

from fuzz import tiny_files
from fuzz.changes.files import put_something
from fuzz.changes.raw import changed_bytes
from fuzz.changes.trees import changed, with_oddities
from fuzz.kinds.base import Commands, Kind, continues, merges
from fuzz.runs import HALF, make_unfinished

_BASE: dict[str, Any] = {"model": "./base"}
_GRADIENT = [0.1, 0.9, 0.5]
_OTHER: dict[str, Any] = {
    "model": {"model": {"path": "./other", "revision": None}},
    "parameters": {"weight": [{"filter": "mlp", "value": _GRADIENT}, {"value": 0.5}]},
}
_HEAD: dict[str, Any] = {"dtype": "float32", "out_dtype": "bfloat16", "parameters": {"weight": 1}}
_DEFAULT = {"base_model": "./base", **_HEAD}
_RECIPES: tuple[dict[str, Any], ...] = (
    {"merge_method": "linear", "models": [_BASE, _OTHER], **_HEAD},
    {
        "merge_method": "slerp",
        "base_model": "./base",
        "slices": [
            {
                "sources": [
                    {"model": "./base", "layer_range": [0, 2]},
                    {"model": "./other", "layer_range": [0, 2]},
                ]
            }
        ],
        "parameters": {"t": [{"filter": "self_attn", "value": _GRADIENT}, {"value": 0.5}]},
    },
    {
        "merge_method": "passthrough",
        "slices": [
            {"sources": [{"model": "./base", "layer_range": [0, 2]}]},
            {
                "sources": [
                    {"model": "./other", "layer_range": [1, 2], "parameters": {"scale": 0.5}}
                ]
            },
        ],
    },
    {
        "merge_method": "dare_ties",
        "models": [_BASE, {**_OTHER, "parameters": {"weight": 0.5, "density": 0.5}}],
        "tokenizer": {
            "source": "union",
            "tokens": {
                "new": {"source": {"kind": "zero"}},
                "a": {"source": "./other", "force": True},
                "b": {"source": {"kind": "model_token", "model": "./base", "token_id": 1}},
            },
            "pad_to_multiple_of": 8,
        },
        "chat_template": "chatml",
        **_DEFAULT,
    },
    {
        "merge_method": "della",
        "modules": {"text_decoder": {"models": [_BASE, _OTHER], "parameters": {"density": 0.5}}},
        "tokenizer_source": "base",
        **_DEFAULT,
    },
    {"merge_method": "model_stock", "models": [_BASE, {"model": "./other"}], **_DEFAULT},
    {
        "merge_method": "breadcrumbs_ties",
        "models": [_BASE, _OTHER],
        **_DEFAULT,
        "parameters": {"density": 0.9, "gamma": 0.05, "lambda": 1.0, "int8_mask": True},
    },
    {"merge_method": "karcher", "models": [_BASE, _OTHER], "parameters": {"max_iter": 3}},
    {"merge_method": "nuslerp", "models": [_BASE, _OTHER], "parameters": {"nuslerp_flatten": True}},
)
_LINES = (
    "&a [*a, *a]", "<<: {a: 1}", "- - - -", "a: b: c", "? [1, 2]: 3", "---", "...", "%YAML 9.9",
    "\tx: 1", "!!python/object/apply:os.getcwd []", "!!binary '//8='", "!!set {a, b}", "x: *nobody",
    "merge_method: linear", "2001-99-99: 1:99:99", "'", "|", "x: >", "{", "# é\u2028", "0o9: 0x",
    "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]", "!<tag:yaml.org,2002:int> x",
    "!!float x", "!!int x", "!!timestamp x", "!!null x", "!!omap [1]", "!!pairs [1]", "!!bool x",
)  # fmt: skip
"""Lines that are inserted between the lines of a recipe."""


class Recipes(Kind):
    """Two models, and recipes with most of the keys of recipes."""

    def make(self, work: Path) -> None:
        for seed, name in enumerate(("base", "other")):
            tiny_files.write(work / name, tiny_files.model_files(seed))
        (work / "recipe.yaml").write_text(yaml.safe_dump(_RECIPES[0]))
        make_unfinished("recipe.yaml")

    def change(self, draw: Random, work: Path) -> Path:
        path = work / "recipe.yaml"
        put_something(draw, path, lambda: _changed(draw))
        return path

    def commands(self, draw: Random) -> Commands:
        match draw.randrange(10):
            case 0:
                return continues(draw, HALF)
            case 1:
                return [["run", "recipe.yaml", HALF, "--no-supervise", "--offline"]]
            case 2:
                return [["cache", "check", "recipe.yaml", "--offline"]]
        return merges(draw, "recipe.yaml")


def _changed(draw: Random) -> bytes:
    data = draw.choice(_RECIPES)
    if draw.random() < 0.8:
        data = changed(draw, data)
    style = draw.choice((None, None, True))
    text = yaml.safe_dump(data, default_flow_style=style, sort_keys=draw.random() < 0.5)
    text = with_oddities(text)
    if draw.random() < 0.2:
        lines = text.splitlines()
        lines.insert(draw.randrange(len(lines) + 1), draw.choice((*lines, *_LINES)))
        text = "\n".join(lines)
    raw = text.encode("utf-8", "surrogatepass")
    return changed_bytes(draw, raw) if draw.random() < 0.15 else raw
