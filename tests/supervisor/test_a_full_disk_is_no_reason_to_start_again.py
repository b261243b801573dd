"""Promise: a full disk stops the run, resumably: no worker follows one that ends by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from small_disks import fill, mounted
from supervised import Supervised


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path, 64 << 20) as folder:
        yield folder


def test_a_disk_that_fills_up_and_is_freed(
    small_disk: Path, models: Path, reference: dict[str, bytes]
) -> None:
    merge = Supervised(small_disk, models)
    process = merge.start()
    merge.wait_until_committed(process)
    fill(small_disk / "ballast")
    merge.go_on()
    _, stderr = process.communicate()
    assert process.returncode == 75, stderr
    assert "disk is full" in stderr
    assert stderr.splitlines()[-1].startswith("resumerge resume merged-")
    (small_disk / "ballast").unlink()
    merge.resume()
    assert len(merge.outcomes()) == 2
    assert merge.outcomes()[-1] == "done"
    assert merge.files() == reference
