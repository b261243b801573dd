"""The files of a model: headers, index, config.json, and the other companions."""

from __future__ import annotations

import json
import math
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from fuzz import tiny_files
from fuzz.changes.files import put_something
from fuzz.changes.raw import changed_bytes
from fuzz.changes.trees import changed_json
from fuzz.kinds.base import Commands, Kind, continues, merges
from fuzz.runs import HALF, make_unfinished

_TWO = "models: [{model: ./base}, {model: ./other, parameters: {weight: 0.5}}]\n"
_RECIPES = {
    "linear.yaml": f"merge_method: linear\nparameters: {{weight: 1}}\n{_TWO}",
    "ties.yaml": f"merge_method: ties\nbase_model: ./base\nparameters: {{density: 0.5}}\n{_TWO}",
    "union.yaml": f"merge_method: linear\nparameters: {{weight: 1}}\n{_TWO}"
    "tokenizer: {source: union, tokens: {new: {source: {kind: zero}}}}\nchat_template: auto\n",
    "other.yaml": f"merge_method: linear\nparameters: {{weight: 1}}\n{_TWO}"
    "tokenizer_source: ./other\nchat_template: chatml\n",
    "slices.yaml": "merge_method: passthrough\nslices:\n"
    "- sources: [{model: ./base, layer_range: [0, 2]}]\n"
    "- sources: [{model: ./other, layer_range: [1, 2]}]\n",
}


_BITS = {
    **{"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "C64": 64},
    **{"I64": 64, "I32": 32, "I16": 16, "I8": 8, "U8": 8, "U16": 16, "BOOL": 8, "F4": 4},
}
"""The bits of an element of each type."""


class ModelKind(Kind):
    """Two models, recipes, and an unfinished run; a file of the models is changed."""

    recipes: tuple[str, ...] = ("linear.yaml", "ties.yaml", "slices.yaml", "union.yaml")
    names: tuple[str, ...]
    """The files of which one is changed."""

    def make(self, work: Path) -> None:
        for name, files in self.models().items():
            tiny_files.write(work / name, files)
        for name, text in _RECIPES.items():
            (work / name).write_text(text)
        make_unfinished("linear.yaml")

    def models(self) -> dict[str, dict[str, bytes]]:
        """Return the files of each model."""
        return {"base": tiny_files.model_files(0), "other": tiny_files.model_files(1)}

    def change(self, draw: Random, work: Path) -> Path:
        path = work / draw.choice(("base", "other")) / draw.choice(self.names)
        put_something(draw, path, lambda: self.changed(draw, path.read_bytes()))
        return path

    def changed(self, draw: Random, data: bytes) -> bytes:
        """Return other bytes for a file."""
        try:
            return changed_json(draw, json.loads(data))
        except ValueError:
            return changed_bytes(draw, data)

    def commands(self, draw: Random) -> Commands:
        if draw.random() < 0.2:
            return continues(draw, HALF)
        return merges(draw, draw.choice(self.recipes))


class Headers(ModelKind):
    """Safetensors files, mostly with other headers."""

    names = ("model.safetensors",)

    def changed(self, draw: Random, data: bytes) -> bytes:
        return changed_safetensors(draw, data)


class Indexes(ModelKind):
    """model.safetensors.index.json."""

    names = ("model.safetensors.index.json",)

    def models(self) -> dict[str, dict[str, bytes]]:
        models = enumerate(super().models().items())
        return {name: tiny_files.sharded(files, seed) for seed, (name, files) in models}


class Configs(ModelKind):
    """config.json."""

    recipes = tuple(_RECIPES)
    names = ("config.json",)


class _WithTokenizers(ModelKind):
    """Tokenizers of three kinds, two of each kind: each has a word that the other lacks."""

    recipes = ("union.yaml", "union.yaml", "other.yaml", "linear.yaml")

    def make(self, work: Path) -> None:
        import_module("transformers").AutoTokenizer  # noqa: B018, which no case has to wait for
        super().make(work)

    def models(self) -> dict[str, dict[str, bytes]]:
        words = (*tiny_files.WORDS[:-1], "cc")
        models = {}
        for kind in ("BPE", "Unigram", "WordPiece"):
            models[f"{kind}-base"] = tiny_files.model_files(0, kind)
            models[f"{kind}-other"] = tiny_files.model_files(1, kind, words)
        models["base"], models["other"] = models["BPE-base"], models["BPE-other"]
        return models

    def change(self, draw: Random, work: Path) -> Path:
        kind = draw.choice(("BPE", "BPE", "Unigram", "WordPiece"))
        for name in ("base", "other") if kind != "BPE" else ():
            (work / name).rename(work / f"former-{name}")
            (work / f"{kind}-{name}").rename(work / name)
        return super().change(draw, work)


class Tokenizers(_WithTokenizers):
    """tokenizer.json."""

    names = ("tokenizer.json",)


class TokenizerConfigs(_WithTokenizers):
    """tokenizer_config.json, and the other files beside tokenizer.json."""

    names = (
        *("tokenizer_config.json",) * 4,
        *("special_tokens_map.json", "added_tokens.json"),
        *("chat_template.json", "chat_template.jinja"),
    )


class GenerationConfigs(_WithTokenizers):
    """generation_config.json, and other files that are copied."""

    names = (*("generation_config.json",) * 4, *("preprocessor_config.json", "LICENSE"))

    def models(self) -> dict[str, dict[str, bytes]]:
        copied = {"preprocessor_config.json": b'{"size": {"height": 1}}', "LICENSE": b"None.\n"}
        return {name: {**files, **copied} for name, files in super().models().items()}


def changed_safetensors(draw: Random, data: bytes) -> bytes:
    """Return a safetensors file with another header, or other bytes."""
    nbytes = int.from_bytes(data[:8], "little")
    header, rest = data[8 : 8 + nbytes], data[8 + nbytes :]
    match draw.randrange(10):
        case 0:
            return changed_bytes(draw, data[: 8 + nbytes]) + rest
        case 1:
            return tiny_files.joined(header, changed_bytes(draw, rest))
        case 2 | 3 | 4:
            return _other_tensors(draw, json.loads(header))
    changed = changed_json(draw, json.loads(header))
    return tiny_files.joined(changed, rest)


def _other_tensors(draw: Random, header: dict[str, Any]) -> bytes:
    """Return a valid file in which some tensors have other names, shapes and types."""
    tensors = {name: facts for name, facts in header.items() if name != "__metadata__"}
    for name in draw.sample(list(tensors), draw.choice((1, 1, 2, len(tensors)))):
        facts = tensors.pop(name)
        shape = facts["shape"]
        match draw.randrange(7):
            case 0:
                continue
            case 1:
                draw.shuffle(shape)
            case 2:
                shape.insert(draw.randrange(len(shape) + 1), draw.choice((0, 1, 1, 2)))
            case 3:
                shape[draw.randrange(len(shape))] = draw.choice((0, 1, 3, 4, 5, 6, 9, 16))
            case 4 | 5:
                facts["dtype"] = draw.choice(list(_BITS))
            case 6:
                name = draw.choice((name.removeprefix("model."), f"x.{name}", f"{name}_scale", "x"))
        tensors[name] = facts
    start = 0
    for facts in tensors.values():
        stop = start + -(-math.prod(facts["shape"]) * _BITS[facts["dtype"]] // 8)
        facts["data_offsets"] = [start, stop]
        start = stop
    return tiny_files.joined(json.dumps(tensors).encode(), draw.randbytes(start))
