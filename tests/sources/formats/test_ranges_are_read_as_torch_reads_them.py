"""A stored tensor has the bytes that torch has, in any range."""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from reading import evaluation, read
from safetensors.torch import save_file

from resumerge.errors import Resumable
from resumerge.recipe import ModelRef
from resumerge.sources import Source, open_source
from resumerge.sources.reader import SourceReader

TENSORS = {
    "bf16": torch.randn(37, 11).bfloat16(),
    "f16": torch.randn(101).half(),
    "f32": torch.randn(7, 5, 3),
    "f64": torch.randn(64).double(),
    "f8": torch.randn(99).to(torch.float8_e4m3fn),
    "i64": torch.arange(50),
    "bool": torch.randn(33) > 0,
    "scalar": torch.tensor(1.5),
    "empty": torch.zeros(0, 4),
}


@pytest.fixture
def source(tmp_path: Path) -> Source:
    save_file(TENSORS, tmp_path / "model.safetensors")
    return open_source(ModelRef(str(tmp_path), str(tmp_path)))


def expected(name: str, start: int, stop: int) -> bytes:
    flat = TENSORS[name].flatten()[start:stop]
    return bytes(flat.view(torch.uint8).tolist()) if len(flat) else b""


@pytest.mark.parametrize("name", TENSORS)
def test_ranges(name: str, source: Source) -> None:
    chosen = random.Random(0)
    numel = TENSORS[name].numel()
    ranges = [(0, numel), (0, 0), (numel, numel)]
    ranges += [tuple(sorted(chosen.choices(range(numel + 1), k=2))) for _ in range(50)]
    reader = SourceReader([source])
    for start, stop in ranges:
        found = read(evaluation(reader), source.tensors[name], start, stop)
        assert found == expected(name, start, stop)
    reader.close()


def test_many_threads_at_once(source: Source) -> None:
    reader = SourceReader([source])
    info = source.tensors["bf16"]

    shared = evaluation(reader)

    def is_right(start: int) -> bool:
        return read(shared, info, start, start + 10) == expected("bf16", start, start + 10)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(is_right, list(range(390)) * 3))
    reader.close()


def test_a_file_that_became_shorter_or_went_away_stops_the_run_and_can_be_resumed(
    source: Source,
) -> None:
    path = source.folder / "model.safetensors"
    reader = SourceReader([source])
    whole, last = path.read_bytes(), max(source.tensors.values(), key=lambda info: info.offset)
    path.write_bytes(whole[: last.offset])
    with pytest.raises(Resumable, match="became shorter"):
        read(evaluation(reader), last)
    reader.close()
    path.unlink()
    with pytest.raises(Resumable, match="No such file"):
        read(evaluation(reader), last)
