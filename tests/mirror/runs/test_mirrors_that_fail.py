"""Promise: whatever happens to its mirror, a run goes on or stops with 75, and loses nothing.

The mirror is audited after every single operation of every process here.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from mirrored import Bench, Ended, Merge
from small_disks import mounted
from waiting import HANGS_SECONDS

SMALL = 2 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path, SMALL) as folder:
        yield folder


def run_and(merge: Merge, accident: str, place: Path, watched: bool = True) -> Ended:
    """Run, and have an accident when two shards of four are in the mirror."""
    merge.lease = "3600"  # which is not renewed: a file that is open would keep the disk busy
    return merge.run(accident=[accident, str(place)], watched=watched)


def resume(merge: Merge) -> None:
    """Resume a run whose mirror works again, however long that takes."""
    merge.options["mirror_wait"] = HANGS_SECONDS
    ended = merge.resume()
    assert ended.code == 0, ended.stderr


def check_stopped(merge: Merge, ended: Ended, reference: dict[str, bytes], why: str) -> None:
    """Check that everything is merged, and that the run says why its mirror lacks something."""
    assert ended.code == 75, ended.stderr
    assert "Traceback" not in ended.stderr
    assert why in ended.stderr
    assert merge.model() == reference
    assert "mirror_failing" in merge.events()


@pytest.mark.parametrize("seed", [0, 2, 3, 4])
def test_errors_at_random(bench: Bench, reference: dict[str, bytes], seed: int) -> None:
    merge = bench.merge(mirror_wait=20.0)
    ended = merge.run(seed=seed, share=0.08)
    assert ended.code in (0, 75), ended.stderr
    assert ended.failed > 3
    assert "mirror_failing" in merge.events()
    assert merge.events().count("mirror_failing") - merge.events().count("mirror_recovered") < 2
    if ended.code == 75:
        resume(merge)
    merge.assert_done(reference)
    assert merge.model() == reference


def test_a_mirror_that_is_full(bench: Bench, small_disk: Path, reference: dict[str, bytes]) -> None:
    merge = bench.merge(mirror=small_disk / "mirror", mirror_wait=3.0)
    ended = run_and(merge, "full", small_disk)
    check_stopped(merge, ended, reference, "No space left on device")
    assert merge.checked().consistent and merge.checked().files
    (small_disk / "ballast").unlink()
    resume(merge)
    merge.assert_done(reference)


def test_a_mirror_that_is_read_only_now(
    bench: Bench, small_disk: Path, reference: dict[str, bytes]
) -> None:
    merge = bench.merge(mirror=small_disk / "mirror", mirror_wait=3.0)
    ended = run_and(merge, "read-only", small_disk)
    check_stopped(merge, ended, reference, "Read-only file system")
    assert merge.checked().consistent and merge.checked().files
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    resume(merge)
    merge.assert_done(reference)


def test_a_mirror_that_is_deleted(bench: Bench, reference: dict[str, bytes]) -> None:
    merge = bench.merge(mirror_wait=3.0)
    ended = run_and(merge, "taken away", merge.mirror, watched=False)
    check_stopped(merge, ended, reference, "merged")
    assert not merge.mirror.exists(), "a drive that was taken away is not made anew"
    shutil.rmtree(merge.folder / "aside")
    merge.mirror.mkdir()
    resume(merge)
    merge.assert_done(reference)
    assert "mirror_lost_file" in merge.events()


def test_a_file_that_somebody_deletes_there(bench: Bench, reference: dict[str, bytes]) -> None:
    merge = bench.merge()
    first = merge.mirror / "model-00001-of-00004.safetensors"
    ended = run_and(merge, "deleted", first, watched=False)
    assert ended.code == 0, ended.stderr
    merge.assert_done(reference)
    assert "mirror_lost_file" in merge.events()
