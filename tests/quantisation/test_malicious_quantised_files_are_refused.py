"""A quantised model that lies about itself is refused with the tensor's name, or merged as it says.

Files that lie in other ways: tests/sources/formats (safetensors, torch), tests/sources/gguf.
"""

from __future__ import annotations

import json
import math
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz.kinds.quantised import weights as weights_of_every_scheme
from reading import evaluation, read

from resumerge.errors import InputError
from resumerge.quantisation import QUANTISATIONS, Checkpoint, Weight
from resumerge.quantisation.scheme import Scheme
from resumerge.recipe import ModelRef
from resumerge.sources import Source, open_source
from resumerge.sources.reader import SourceReader

Facts = tuple[str, list[int], bytes]
"""Dtype, shape and content of a tensor; content is repeated until it fills the shape."""

Changes = Mapping[str, Facts | None]
"""What tensors are instead; None for a tensor that is missing."""

ROWS, COLUMNS = 16, 64
MOST_BYTES = 30 << 20
"""What may be allocated to open a file of a few kilobytes."""

WIDTHS = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2}
ONE = {"F32": b"\0\0\x80\x3f", "F16": b"\0\x3c", "BF16": b"\x80\x3f", "F8_E4M3": b"\x38"}
STATE = "w.weight.quant_state.bitsandbytes__nf4"
SAID: dict[str, Any] = {
    **{"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [ROWS, COLUMNS]},
    **{"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.0},
}


def of(dtype: str, *shape: int, content: bytes | None = None) -> Facts:
    return dtype, list(shape), ONE.get(dtype, b"\1") if content is None else content


def state(**changed: Any) -> Changes:
    return said(json.dumps(SAID | changed).encode())


def said(raw: bytes) -> Changes:
    return {STATE: of("U8", len(raw), content=raw)}


def shape_of(*numbers: int) -> Changes:
    raw = b"".join(number.to_bytes(8, "little", signed=True) for number in numbers)
    return {"w.weight_shape": of("I64", len(numbers), content=raw)}


def order_of(*groups: int, length: int = COLUMNS) -> Facts:
    raw = b"".join(group.to_bytes(4, "little", signed=True) for group in groups)
    return of("I32", length, content=raw)


SOUND: dict[str, Changes] = {
    "fp8": {
        "w.weight": of("F8_E4M3", 256, 256),
        "w.weight_scale_inv": of("F32", 2, 2),
    },
    "int8": {
        "w.weight": of("I8", ROWS, COLUMNS),
        "w.weight_scale": of("BF16", ROWS, 1),
        "w.weight_zero_point": of("I8", ROWS, 1),
    },
    "int4": {
        "w.weight_packed": of("I32", ROWS, COLUMNS // 8),
        "w.weight_scale": of("F16", ROWS, 2),
        **shape_of(ROWS, COLUMNS),
    },
    "gptq": {
        "w.qweight": of("I32", COLUMNS // 8, ROWS),
        "w.qzeros": of("I32", 2, ROWS // 8),
        "w.scales": of("F16", 2, ROWS),
        "w.g_idx": order_of(0, 1),
    },
    "awq": {
        "w.qweight": of("I32", COLUMNS, ROWS // 8),
        "w.qzeros": of("I32", 2, ROWS // 8),
        "w.scales": of("F16", 2, ROWS),
    },
    "nvfp4": {
        "w.weight_packed": of("U8", ROWS, COLUMNS // 2),
        "w.weight_scale": of("F8_E4M3", ROWS, COLUMNS // 16),
        "w.weight_global_scale": of("F32", 1),
    },
    "mxfp4": {
        "w.weight_packed": of("U8", ROWS, COLUMNS // 2),
        "w.weight_scale": of("U8", ROWS, COLUMNS // 32, content=b"\x7f"),
    },
    "gpt-oss": {
        "experts.down_proj_blocks": of("U8", 2, ROWS, 2, 16),
        "experts.down_proj_scales": of("U8", 2, ROWS, 2, content=b"\x7f"),
    },
    "nf4": {
        "w.weight": of("U8", ROWS * COLUMNS // 2, 1),
        "w.weight.absmax": of("U8", ROWS),
        "w.weight.quant_map": of("F32", 16),
        "w.weight.nested_absmax": of("F32", 1),
        "w.weight.nested_quant_map": of("F32", 256),
        **state(),
    },
    "LLM.int8": {"w.weight": of("I8", ROWS, COLUMNS), "w.SCB": of("F32", ROWS)},
}

CONFIGS: dict[str, dict[str, Any]] = {
    "fp8": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "gptq": {"quant_method": "gptq", "bits": 4},
    "awq": {"quant_method": "awq", "version": "gemm"},
}

LYING: dict[str, tuple[str, Changes, str]] = {
    "fp8: a column of scales too many": (
        "fp8",
        {"w.weight_scale_inv": of("F32", 2, 3)},
        "w.weight",
    ),
    "fp8: a row of scales too many": ("fp8", {"w.weight_scale_inv": of("F32", 3, 2)}, "w.weight"),
    "fp8: no scales at all": ("fp8", {"w.weight_scale_inv": of("F32", 0, 0)}, "w.weight"),
    "fp8: scales of three dimensions": (
        "fp8",
        {"w.weight_scale_inv": of("F32", 2, 2, 2)},
        "w.weight",
    ),
    "fp8: scales that are whole numbers": (
        "fp8",
        {"w.weight_scale_inv": of("I32", 2, 2)},
        "w.weight_scale_inv",
    ),
    "fp8: missing scales": ("fp8", {"w.weight_scale_inv": None}, "w.weight"),
    "fp8: blocks that do not divide": ("fp8", {"w.weight": of("F8_E4M3", 251, 301)}, "w.weight"),
    "fp8: the weight a second time": (
        "fp8",
        {"w.qweight": of("I32", 8, ROWS), **{k: v for k, v in SOUND["gptq"].items() if v}},
        "w.weight",
    ),
    "int8: zero points too few": ("int8", {"w.weight_zero_point": of("I8", 3)}, "zero_point"),
    "int8: zero points of 64 bits": (
        "int8",
        {"w.weight_zero_point": of("I64", ROWS, 1)},
        "w.weight_zero_point",
    ),
    "int8: missing scales": ("int8", {"w.weight_scale": None}, "w.weight"),
    "int4: a shape with a column more": ("int4", shape_of(ROWS, COLUMNS + 1), "w.weight_packed"),
    "int4: a shape of a trillion columns": ("int4", shape_of(ROWS, 1 << 40), "w.weight_packed"),
    "int4: a shape of other rows": ("int4", shape_of(1 << 62, COLUMNS), "w.weight_packed"),
    "int4: a negative shape": ("int4", shape_of(-ROWS, COLUMNS), "w.weight_shape"),
    "int4: a shape of 0": ("int4", shape_of(0, COLUMNS), "w.weight_shape"),
    "int4: a shape of three numbers": ("int4", shape_of(2, 8, COLUMNS), "w.weight_shape"),
    "int4: a shape in floats": ("int4", {"w.weight_shape": of("F32", 2)}, "w.weight_shape"),
    "int4: no shape": ("int4", {"w.weight_shape": None}, "w.weight_shape"),
    "int4: no scales": ("int4", {"w.weight_scale": None}, "w.weight_scale"),
    "int4: groups that do not divide": ("int4", {"w.weight_scale": of("F16", ROWS, 3)}, "w.weight"),
    "int4: scales that are whole numbers": (
        "int4",
        {"w.weight_scale": of("I32", ROWS, 2)},
        "w.weight_scale",
    ),
    "int4: numbers of 3 bits": ("int4", {"w.weight_packed": of("I32", ROWS, 6)}, "w.weight_packed"),
    "int4: zero points of another shape": (
        "int4",
        {"w.weight_zero_point": of("I32", 1, 1)},
        "w.weight_zero_point",
    ),
    "int4: zero points in floats": (
        "int4",
        {"w.weight_zero_point": of("F32", 2, 2)},
        "w.weight_zero_point",
    ),
    "int4: groups of too few columns": (
        "int4",
        {"w.weight_g_idx": order_of(0, 1, length=10)},
        "w.weight_g_idx",
    ),
    "int4: groups in halves": ("int4", {"w.weight_g_idx": of("F16", COLUMNS)}, "w.weight_g_idx"),
    "gptq: codes in floats": ("gptq", {"w.qweight": of("F32", 8, ROWS)}, ": w\n"),
    "gptq: no zero points": ("gptq", {"w.qzeros": None}, "w.qzeros"),
    "gptq: no scales": ("gptq", {"w.scales": None}, "w.scales"),
    "gptq: scales of three dimensions": ("gptq", {"w.scales": of("F16", 1, 2, ROWS)}, ": w\n"),
    "gptq: groups of too few inputs": ("gptq", {"w.g_idx": order_of(0, length=10)}, ": w\n"),
    "gptq: groups of 64 bits": ("gptq", {"w.g_idx": of("I64", COLUMNS)}, ": w\n"),
    "gptq: groups that do not divide": (
        "gptq",
        {"w.scales": of("F16", 3, ROWS), "w.qzeros": of("I32", 3, 2), "w.g_idx": None},
        ": w\n",
    ),
    "gptq: numbers of 2 bits": ("gptq", {"w.qzeros": of("I32", 2, 1)}, ": w\n"),
    "gptq: no outputs": ("gptq", {"w.scales": of("F16", 2, 0)}, ": w\n"),
    "awq: another format": ("awq", {}, "w.qweight"),
    "awq: no zero points": ("awq", {"w.qzeros": None}, "w.qzeros"),
    "awq: groups that do not divide": (
        "awq",
        {"w.scales": of("F16", 3, ROWS), "w.qzeros": of("I32", 3, 2)},
        ": w\n",
    ),
    "nvfp4: no scales": ("nvfp4", {"w.weight_scale": None}, "w.weight_scale"),
    "nvfp4: scales of other groups": (
        "nvfp4",
        {"w.weight_scale": of("F8_E4M3", ROWS, 5)},
        "w.weight_scale",
    ),
    "nvfp4: scales in halves": ("nvfp4", {"w.weight_scale": of("F16", ROWS, 4)}, "w.weight_scale"),
    "nvfp4: two factors": ("nvfp4", {"w.weight_global_scale": of("F32", 2)}, "w.weight_scale"),
    "nvfp4: no factor": ("nvfp4", {"w.weight_global_scale": None}, "w.weight_packed"),
    "nvfp4: codes in words": ("nvfp4", {"w.weight_packed": of("I32", ROWS, 8)}, "w.weight_packed"),
    "mxfp4: scales of other groups": ("mxfp4", {"w.weight_scale": of("U8", ROWS, 3)}, "w.weight"),
    "mxfp4: no scales": ("mxfp4", {"w.weight_scale": None}, "w.weight_packed"),
    "gpt-oss: groups of 15": (
        "gpt-oss",
        {"experts.down_proj_blocks": of("U8", 2, ROWS, 2, 15)},
        "experts.down_proj",
    ),
    "gpt-oss: scales of other experts": (
        "gpt-oss",
        {"experts.down_proj_scales": of("U8", 3, ROWS, 2)},
        "experts.down_proj",
    ),
    "gpt-oss: no scales": (
        "gpt-oss",
        {"experts.down_proj_scales": None},
        "experts.down_proj_blocks",
    ),
    "nf4: a description that is no JSON": ("nf4", said(b"{'a'"), STATE),
    "nf4: a description that is a list": ("nf4", said(b"[]"), STATE),
    "nf4: a description nested deep": ("nf4", said(b'{"a":' * 9000), STATE),
    "nf4: a description of 70 kilobytes": ("nf4", said(b"{}" + b" " * 70_000), STATE),
    "nf4: a negative shape": ("nf4", state(shape=[-ROWS, -COLUMNS]), STATE),
    "nf4: a shape of a billion rows": ("nf4", state(shape=[10**9, COLUMNS]), "w.weight"),
    "nf4: a shape whose product nobody can write": ("nf4", state(shape=[10**200] * 100), STATE),
    "nf4: a shape of 20,000 dimensions": ("nf4", state(shape=[1] * 20_000), STATE),
    "nf4: blocks of 0": ("nf4", state(blocksize=0), STATE),
    "nf4: blocks of 2^62": ("nf4", state(blocksize=1 << 62), STATE),
    "nf4: nested blocks of 2^62": ("nf4", state(nested_blocksize=1 << 62), STATE),
    "nf4: an offset that is no number": ("nf4", state(nested_offset=math.nan), STATE),
    "nf4: an offset of 400 digits": ("nf4", state(nested_offset=10**400), STATE),
    "nf4: magnitudes too few": ("nf4", {"w.weight.absmax": of("U8", 3)}, "w.weight.absmax"),
    "nf4: magnitudes in halves": ("nf4", {"w.weight.absmax": of("F16", ROWS)}, "w.weight.absmax"),
    "nf4: a codebook of 15": ("nf4", {"w.weight.quant_map": of("F32", 15)}, "quant_map"),
    "nf4: a codebook without numbers": (
        "nf4",
        {"w.weight.quant_map": of("F32", 16, content=b"\0\0\xc0\x7f")},
        "quant_map",
    ),
    "nf4: no nested magnitudes": ("nf4", {"w.weight.nested_absmax": None}, "nested_absmax"),
    "nf4: no codes": ("nf4", {"w.weight": None}, "w.weight"),
    "nf4: codes in words": ("nf4", {"w.weight": of("I32", 128, 1)}, "w.weight"),
    "LLM.int8: scales too few": ("LLM.int8", {"w.SCB": of("F32", 3)}, "w.weight"),
    "LLM.int8: scales in halves": ("LLM.int8", {"w.SCB": of("F16", ROWS)}, "w.weight"),
    "LLM.int8: no codes": ("LLM.int8", {"w.weight": None}, "w.weight"),
    "LLM.int8: codes of three dimensions": (
        "LLM.int8",
        {"w.weight": of("I8", 2, 8, COLUMNS)},
        "w.weight",
    ),
}


def opened(folder: Path, scheme: str, changes: Changes, config: dict[str, Any]) -> Source:
    """Write a model of a scheme's tensors with these changes, and open it."""
    header, data = dict[str, Any](), b""
    for name, facts in {**SOUND[scheme], **changes}.items():
        if facts is not None:
            dtype, shape, content = facts
            length = math.prod(shape) * WIDTHS.get(dtype, 1)
            place = [len(data), len(data) + length]
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": place}
            data += (content * (length // len(content) + 1))[:length]
    raw = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw + data)
    stated = {"quantization_config": config} if config else {}
    (folder / "config.json").write_text(json.dumps(stated))
    return open_source(ModelRef(str(folder), str(folder)))


def numbers(folder: Path, scheme: str, changes: Changes) -> np.ndarray:
    """Return the weights of a model as a merge reads them."""
    source = opened(folder, scheme, changes, CONFIGS.get(scheme, {}))
    [tensor] = source.tensors.values()
    found = read(evaluation(SourceReader([source]), 1 << 30), tensor.exact, 0, None)
    return np.frombuffer(found, np.float32).reshape(tensor.shape)


@pytest.mark.parametrize("scheme", SOUND)
def test_the_files_that_the_others_are_made_from_are_sound(scheme: str, tmp_path: Path) -> None:
    assert np.isfinite(numbers(tmp_path, scheme, {})).all()


def test_each_scheme_has_a_sound_weight_and_one_that_lies() -> None:
    assert {scheme for scheme, _, _ in LYING.values()} == SOUND.keys()


@pytest.mark.parametrize("files", ["these tests", "the fuzzer"])
def test_each_scheme_reads_a_weight(
    files: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    unused = {type(scheme).__name__ for scheme in QUANTISATIONS}
    for scheme in QUANTISATIONS:
        monkeypatch.setattr(scheme, "weights", _noting(scheme, unused))
    if files == "the fuzzer":
        (tmp_path / "model.safetensors").write_bytes(weights_of_every_scheme())
        (tmp_path / "config.json").write_text("{}")
        open_source(ModelRef(str(tmp_path), str(tmp_path)))
    else:
        for name in SOUND:
            opened(tmp_path, name, {}, CONFIGS.get(name, {}))
    assert not unused


def _noting(scheme: Scheme, unused: set[str]) -> Callable[[Checkpoint], Iterator[Weight]]:
    """Return a scheme's `weights` that removes the scheme's name from a set for a first weight."""
    weights_of_scheme = scheme.weights

    def weights(checkpoint: Checkpoint) -> Iterator[Weight]:
        for weight in weights_of_scheme(checkpoint):
            unused.discard(type(scheme).__name__)
            yield weight

    return weights


@pytest.mark.parametrize("what", LYING)
def test_what_lies_is_refused_with_its_name(what: str, tmp_path: Path) -> None:
    scheme, changes, named = LYING[what]
    config = CONFIGS.get(scheme, {}) | ({"version": "gemv"} if "another format" in what else {})
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as caught:
            opened(tmp_path, scheme, changes, config)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    [problem] = caught.value.problems
    assert str(tmp_path) in problem.where
    assert named in f"{problem.what}\n{problem.where}\n{problem.expected}\n{problem.found}"
    assert problem.expected and problem.found and problem.fix
    assert len(str(problem)) < 2000
    assert most < MOST_BYTES


@pytest.mark.parametrize(
    "block",
    [
        [0, 0],
        [-128, 128],
        [64, 64],
        [1 << 62, 1 << 62],
        ["128", None],
        [128, True],
        "x",
        {},
        "y" * 9999,
    ],
)
def test_a_block_that_config_json_lies_about(block: object, tmp_path: Path) -> None:
    """The stated block is malformed, or contradicts the shape of the scales."""
    with pytest.raises(InputError, match="weight_block_size") as caught:
        opened(tmp_path, "fp8", {}, {"quant_method": "fp8", "weight_block_size": block})
    assert "w.weight" in str(caught.value) and len(str(caught.value)) < 2000


@pytest.mark.parametrize("group", [-1, 2, 1 << 30, -(1 << 31)])
@pytest.mark.parametrize("scheme", ["int4", "gptq"])
def test_a_column_in_a_group_that_does_not_exist(scheme: str, group: int, tmp_path: Path) -> None:
    name = {"int4": "w.weight_g_idx", "gptq": "w.g_idx"}[scheme]
    with pytest.raises(InputError, match=name) as caught:
        numbers(tmp_path, scheme, {name: order_of(0, 1, group)})
    assert "numbers from 0 to 1" in str(caught.value)


SCALES = {"zero": 0.0, "NaN": math.nan, "infinite": math.inf, "negative": -2.0}


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_a_scale_of_any_value_is_multiplied_by(scale: float, tmp_path: Path) -> None:
    """A scale changes only its own block."""
    scales = np.array([[1, scale], [1, 1]], np.float32)
    changes = {"w.weight_scale_inv": of("F32", 2, 2, content=scales.tobytes())}
    expected = np.kron(scales, np.ones((128, 128), np.float32))
    np.testing.assert_array_equal(numbers(tmp_path, "fp8", changes), expected)
