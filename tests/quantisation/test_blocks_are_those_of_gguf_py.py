"""Promise: blocks of GGUF are decoded to the numbers of gguf-py, whatever range is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf_models import FAMILIES, SCHEMES, converted, numbers_of, write_gguf
from reading import evaluation, read

from resumerge.recipe.references import read_reference
from resumerge.sources import open_source
from resumerge.sources.reader import SourceReader

LLAMA = FAMILIES["llama"]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_number_is_that_of_gguf_py(scheme: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    expected = write_gguf(path, LLAMA, LLAMA.tensors(1), scheme)
    source = open_source(read_reference(str(path)))
    dtype = scheme if scheme in ("F32", "F16", "BF16") else "BF16"
    assert {tensor.dtype for tensor in source.tensors.values()} == {dtype}
    found = converted(LLAMA, numbers_of(source))  # q and k in the file's order of rows
    assert found.keys() == expected.keys()
    for name, numbers in expected.items():
        assert np.array_equal(found[name], numbers), name
        assert np.any(numbers != 0)


@pytest.mark.parametrize("scheme", ["F16", "Q4_1", "Q6_K", "Q8_0"])
def test_any_range_is_that_part_of_the_whole(scheme: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, LLAMA, LLAMA.tensors(2), scheme)
    source = open_source(read_reference(str(path)))
    means, draw = evaluation(SourceReader([source])), np.random.default_rng(3)
    for name in ("mlp.down_proj", "self_attn.q_proj", "self_attn.k_proj", "input_layernorm"):
        tensor = source.tensors[f"model.layers.1.{name}.weight"].exact
        whole = read(means, tensor)
        width = len(whole) // tensor.numel
        for _ in range(40):
            start, stop = sorted(draw.integers(0, tensor.numel + 1, 2).tolist())
            part = read(means, tensor, start, stop)
            assert part == whole[start * width : stop * width], (name, start, stop)


def test_scales_that_overflow_are_not_hidden(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, LLAMA, LLAMA.tensors(1), "Q8_0")
    source = open_source(read_reference(str(path)))
    tensor = source.tensors["lm_head.weight"].exact
    [stored] = tensor.children()
    offset = stored.offset  # type: ignore[attr-defined]
    data = bytearray(path.read_bytes())
    data[offset : offset + 2] = np.float16(np.inf).tobytes()
    path.write_bytes(data)
    values = numbers_of(open_source(read_reference(str(path))))["lm_head.weight"]
    assert not np.isfinite(values[0, :32]).any() and np.isfinite(values[0, 32:]).all()
