"""Promise: a worker that ends by itself is believed: a full disk stops the run, resumably."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from supervised import Supervised


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 64 MB."""
    words = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(tmp_path)]
    mounted = subprocess.run(words, capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a filesystem cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def fill(path: Path) -> None:
    """Take the last byte of a disk."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    for size in (1 << 20, 4096, 1):
        try:
            while True:
                os.write(fd, bytes(size))
        except OSError as error:
            assert error.errno == errno.ENOSPC
    os.close(fd)


def test_a_disk_that_fills_up_and_is_freed(
    small_disk: Path, models: Path, reference: dict[str, bytes]
) -> None:
    merge = Supervised(small_disk, models)
    process = merge.start()
    merge.wait_until_committed(process)
    fill(small_disk / "ballast")
    _, stderr = process.communicate()
    assert process.returncode == 75, stderr
    assert "disk is full" in stderr
    assert stderr.splitlines()[-1].startswith("resumerge resume merged-")
    (small_disk / "ballast").unlink()
    merge.resume()
    assert len(merge.outcomes()) == 2
    assert merge.outcomes()[-1] == "done"
    assert merge.files() == reference
