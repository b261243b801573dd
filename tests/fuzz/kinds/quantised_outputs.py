"""Recipes for quantised outputs or GGUF files, with other settings and other text."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import yaml

from fuzz import tiny_files
from fuzz.changes.files import put_something
from fuzz.changes.raw import changed_bytes
from fuzz.changes.trees import changed, with_oddities
from fuzz.kinds.base import MERGE, Commands, Kind
from resumerge.quantisation import OUTPUTS

WIDTHS = (32, 128, 160)
"""The hidden sizes of the models: groups of 128 divide the second alone."""

_TYPES = (
    *OUTPUTS,
    *("same", "q8_0", "q4_0", "bfloat16", "float8_e4m3fn"),
)


class QuantisedOutputs(Kind):
    """Models of several widths, one of them with NaN, and a recipe for two of them."""

    def make(self, work: Path) -> None:
        for width in WIDTHS:
            for seed, name in enumerate(("a", "b")):
                files = tiny_files.model_files(seed)
                facts = {**tiny_files.CONFIG, "hidden_size": width, "intermediate_size": width}
                files["config.json"] = json.dumps({**facts, "head_dim": width}).encode()
                files["model.safetensors"] = tiny_files.weights(_shapes(width), seed)
                tiny_files.write(work / f"{name}{width}", files)
        bad = (work / "b128" / "model.safetensors").read_bytes()
        (work / "b128" / "model.safetensors").write_bytes(bad[:-4096] + b"\xff" * 4096)
        (work / "recipe.yaml").write_text("")

    def change(self, draw: Random, work: Path) -> Path:
        path = work / "recipe.yaml"
        put_something(draw, path, lambda: _recipe(draw))
        return path

    def commands(self, draw: Random) -> Commands:
        out = draw.choice(("out", "out.gguf"))
        plan = ["plan", "recipe.yaml", out, "--offline", *["--json"] * (draw.random() < 0.3)]
        run = ["run", "recipe.yaml", out, *MERGE, *["--strict"] * (draw.random() < 0.2)]
        return draw.choice(([plan], [run], [run, ["verify", out]], [run, ["status", out]]))


def _shapes(width: int) -> dict[str, tuple[int, ...]]:
    return {
        name: tuple(width if length == tiny_files.HIDDEN else length for length in shape)
        for name, shape in tiny_files.shapes().items()
    }


def _recipe(draw: Random) -> bytes:
    width = draw.choice(WIDTHS)
    models = [
        {"model": f"./{name}{width}", "parameters": {"weight": draw.choice((0, 0.5, 1, 1e38))}}
        for name in "ab"
    ]
    method = draw.choice(("linear", "task_arithmetic", "ties", "dare_ties", "slerp", "passthrough"))
    facts: dict[str, Any] = {
        "merge_method": method,
        "models": models[: 1 if method == "passthrough" else 2],
        "out_dtype": draw.choice(_TYPES),
    }
    if method in ("task_arithmetic", "ties", "dare_ties", "slerp"):
        facts["base_model"] = f"./a{width}"
        facts["parameters"] = {"t": 0.5} if method == "slerp" else {"density": 0.5}
    if draw.random() < 0.5:
        return yaml.safe_dump(facts).encode()
    raw = with_oddities(yaml.safe_dump(changed(draw, facts))).encode("utf-8", "surrogatepass")
    return changed_bytes(draw, raw) if draw.random() < 0.15 else raw
