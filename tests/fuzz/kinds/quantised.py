"""Quantised models with a weight of each scheme, whose tensors are changed."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from fuzz import tiny_files
from fuzz.changes.files import put_something
from fuzz.changes.trees import changed_json
from fuzz.kinds.base import Commands, Kind, continues, merges
from fuzz.kinds.models import changed_safetensors
from fuzz.runs import HALF, make_unfinished

ROWS, COLUMNS = 16, 64
_SHAPE = [ROWS, COLUMNS]
_STATE = {"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": _SHAPE}
_NESTED = {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.1}
_SAID = json.dumps({**_STATE, **_NESTED}).encode()
_NF4 = "quant_state.bitsandbytes__nf4"

_FACTS: dict[str, tuple[str, list[int]]] = {
    "block.weight": ("F8_E4M3", _SHAPE),
    "block.weight_scale_inv": ("F32", [1, 1]),
    "rows.weight": ("I8", _SHAPE),
    "rows.weight_scale": ("BF16", [ROWS, 1]),
    "rows.weight_zero_point": ("I8", [ROWS, 1]),
    "rows.input_scale": ("F32", [1]),
    "int4.weight_packed": ("I32", [ROWS, COLUMNS // 8]),
    "int4.weight_scale": ("F16", [ROWS, 2]),
    "int4.weight_zero_point": ("I32", [2, 2]),
    "int4.weight_g_idx": ("I32", [COLUMNS]),
    "int4.weight_shape": ("I64", [2]),
    "nvfp4.weight_packed": ("U8", [ROWS, COLUMNS // 2]),
    "nvfp4.weight_scale": ("F8_E4M3", [ROWS, COLUMNS // 16]),
    "nvfp4.weight_global_scale": ("F32", [1]),
    "mxfp4.weight_packed": ("U8", [ROWS, COLUMNS // 2]),
    "mxfp4.weight_scale": ("U8", [ROWS, COLUMNS // 32]),
    "experts_blocks": ("U8", [2, ROWS, COLUMNS // 32, 16]),
    "experts_scales": ("U8", [2, ROWS, COLUMNS // 32]),
    "gptq.qweight": ("I32", [COLUMNS // 8, ROWS]),
    "gptq.qzeros": ("I32", [2, ROWS // 8]),
    "gptq.scales": ("F16", [2, ROWS]),
    "gptq.g_idx": ("I32", [COLUMNS]),
    "awq.qweight": ("I32", [COLUMNS, ROWS // 8]),
    "awq.qzeros": ("I32", [2, ROWS // 8]),
    "awq.scales": ("F16", [2, ROWS]),
    "nf4.weight": ("U8", [ROWS * COLUMNS // 2, 1]),
    "nf4.weight.absmax": ("U8", [ROWS * COLUMNS // 64]),
    "nf4.weight.quant_map": ("F32", [16]),
    "nf4.weight.nested_absmax": ("F32", [1]),
    "nf4.weight.nested_quant_map": ("F32", [256]),
    f"nf4.weight.{_NF4}": ("U8", [len(_SAID)]),
    "int8.weight": ("I8", _SHAPE),
    "int8.SCB": ("F32", [ROWS]),
}
_WIDTHS = {"F32": 4, "I32": 4, "I64": 8, "F16": 2, "BF16": 2}
_RECIPE = (
    "merge_method: linear\nparameters: {weight: 0.5}\nmodels: [{model: ./other}, {model: ./q}]\n"
)


class Quantised(Kind):
    """Two quantised models, one of which is changed, and an unfinished run."""

    def make(self, work: Path) -> None:
        for name in ("q", "other"):
            config = {"quantization_config": {"quant_method": "gptq", "checkpoint_format": "gptq"}}
            files = {"model.safetensors": weights(), "config.json": json.dumps(config).encode()}
            tiny_files.write(work / name, files)
        (work / "recipe.yaml").write_text(_RECIPE)
        make_unfinished("recipe.yaml")

    def change(self, draw: Random, work: Path) -> Path:
        path = work / "q" / draw.choice(("model.safetensors", "model.safetensors", "config.json"))

        def changed() -> bytes:
            data = path.read_bytes()
            if path.name == "config.json":
                return changed_json(draw, json.loads(data))
            at = data.index(_SAID)
            if draw.random() < 0.25:
                state = changed_json(draw, json.loads(_SAID))[: len(_SAID)].ljust(len(_SAID))
                return data[:at] + state + data[at + len(_SAID) :]
            return changed_safetensors(draw, data)

        put_something(draw, path, changed)
        return path

    def commands(self, draw: Random) -> Commands:
        if draw.random() < 0.2:
            return continues(draw, HALF)
        return merges(draw, "recipe.yaml")


def weights() -> bytes:
    """Return a safetensors file with the tensors of every scheme."""
    header, data = {}, b""
    for name, (dtype, shape) in _FACTS.items():
        count = _WIDTHS.get(dtype, 1)
        for length in shape:
            count *= length
        content = bytes(count)
        if name.endswith(_NF4):
            content = _SAID
        elif name.endswith("weight_shape"):
            content = b"".join(length.to_bytes(8, "little") for length in _SHAPE)
        header[name] = {
            "dtype": dtype,
            "shape": shape,
            "data_offsets": [len(data), len(data) + count],
        }
        data += content
    return tiny_files.joined(json.dumps(header).encode(), data)
