"""Promise: a tensor that is merely copied arrives also where the kernel cannot copy it, or stops in
the middle."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch
from merging import merge, tensors_of
from tiny_models import TWO_LAYERS, write_family

RECIPE = "merge_method: passthrough\nmodels: [{model: math}]\n"


@pytest.mark.parametrize("before", [0, 5], ids=["at once", "after some bytes"])
@pytest.mark.parametrize("ends", [False, True], ids=["it refuses", "it copies nothing more"])
def test_the_bytes_are_written_instead(
    tmp_path: Path, before: int, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = write_family(tmp_path / "models", TWO_LAYERS)
    real, asked = os.copy_file_range, list[int]()

    def copy(source: int, target: int, count: int, start: int, offset: int) -> int:
        asked.append(count)
        if len(asked) % 2 and before:
            return real(source, target, before, start, offset)
        if ends:
            return 0
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "copy_file_range", copy)
    found = tensors_of(merge(models, RECIPE, tmp_path / "merged"))
    expected = tensors_of(models / "math")
    assert len(asked) >= len(found) == len(expected)
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
