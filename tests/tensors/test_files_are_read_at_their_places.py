"""Promise: what lies in a file, or in a scratch file meanwhile, is read at its place there."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from every_kind import NotedFiles, told
from reading import evaluation, read

from resumerge.kernels import BlockRun
from resumerge.tensors import (
    Rounded,
    ScratchFile,
    Sliced,
    Spilled,
    Stacked,
    Stored,
    spilled_in,
)


def stored(name: str, dtype: str = "F32", shape: tuple[int, ...] = (4, 3), **more: Any) -> Stored:
    return Stored(name, dtype, shape, "f", 64, **more)


class OnDisk:
    """A file on this disk that records each request to fill a buffer."""

    def __init__(self, path: Path) -> None:
        self.fd, self.filled = os.open(path, os.O_RDONLY), list[tuple[int, int]]()

    def descriptor(self, tensor: Any) -> int:
        return self.fd

    def fill(self, tensor: Any, offset: int, buffer: memoryview) -> None:
        self.filled.append((offset, len(buffer)))


def test_a_file_on_this_disk_is_read_from_the_tensors_place(tmp_path: Path) -> None:
    """Bytes that the file lacks are requested from `fill`, whose error says what is wrong."""
    values = np.arange(20, dtype=np.uint16)
    (tmp_path / "f").write_bytes(bytes(64) + values.tobytes())
    files, tensor = OnDisk(tmp_path / "f"), Stored("w", "BF16", (4, 5), "f", 64)
    try:
        assert read(evaluation(files), tensor, 3, 20) == values[3:].tobytes()
        assert not files.filled
        longer = replace(tensor, shape=(5, 5))
        longer.read(evaluation(files), 19, 22, np.empty(6, np.uint8))
        assert files.filled == [(64 + 38, 6)]
    finally:
        os.close(files.fd)
    assert tensor.byte_range(3, 20) == (64 + 6, 34)
    assert Stored("w", "F4", (9,), "f", 10).byte_range(2, 9) == (11, 4)


def test_a_scratch_file_is_read_instead_of_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(np.arange(12, dtype=np.uint16).tobytes())
    tensor = Spilled.of(Rounded.of(stored("w"), "BF16"), 5)
    files = NotedFiles({"w": np.zeros(12, np.float32)})
    with_ = evaluation(files)
    with_ = replace(with_, preparation={tensor: ScratchFile(os.open(tmp_path / "f", os.O_RDONLY))})
    assert np.frombuffer(read(with_, tensor, 3, 9), np.uint16).tolist() == [*range(3, 9)]
    assert not files.read and not told(tensor.reads(0, 12))
    part = Stacked.of("s", (4, 3), (Sliced.of("p", (4, 3), tensor),))
    assert np.frombuffer(read(with_, part, 3, 9), np.uint16).tolist() == [*range(3, 9)]
    assert (tensor.blocks, tensor.block_run(range(1, 3))) == (3, BlockRun(1, 5, 7))
    assert Spilled.of(stored("none", shape=(0, 3)), 5).blocks == 1
    assert tensor.working_bytes(10) == 2 * 10 + 4 * 10
    assert told(tensor.no_longer_read(2, 7)) == {("w", k) for k in range(2, 7)}


def test_spilled_tensors_are_named_once_and_the_inner_ones_first() -> None:
    inner = Spilled.of(stored("a"), 5)
    outer = Spilled.of(Stacked.of("o", (8, 3), (inner, stored("b"))), 5)
    last = Stacked("s", "F32", (20, 3), (outer, inner, outer))
    assert [*spilled_in(last)] == [inner, outer]


def test_a_scratch_file_is_read_until_all_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may return few bytes for each call."""
    real = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: real(fd, [views[0][:3]], at))
    (tmp_path / "f").write_bytes(bytes(range(50)))
    file = ScratchFile(os.open(tmp_path / "f", os.O_RDONLY))
    out = np.zeros(20, np.uint8)
    file.read(7, out)
    assert out.tolist() == [*range(7, 27)]
    with pytest.raises(OSError, match="ends at 50 bytes"):
        file.read(40, out)
