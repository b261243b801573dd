"""In a cgroup much smaller than the models, a merge finishes, unkilled, with the same bytes."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cgroups import MB, TestCgroup, drop_cache, memory_cgroup

import resumerge

HOG = Path(__file__).with_name("hog.py")
TIES = """
merge_method: ties
base_model: base
models:
  - {model: math, parameters: {weight: 0.5, density: 0.5}}
  - {model: code, parameters: {weight: 0.5, density: 0.5}}
dtype: bfloat16
"""


class Merging:
    """One merge in a working folder with `base`, `math` and `code`."""

    def __init__(self, models: Path, folder: Path, recipe: str = TIES) -> None:
        self.models, self.out, self.state = models, folder / "out", folder / "state"
        folder.mkdir()
        self.recipe = folder / "recipe.yaml"
        self.recipe.write_text(recipe)

    def command(self, *options: str) -> list[str]:
        program = [sys.executable, "-m", "resumerge", "run", str(self.recipe), str(self.out)]
        return [*program, "--state-dir", str(self.state), *options]

    def run(self, group: TestCgroup | None, *options: str) -> float:
        """Merge, with the inputs on disk alone at first; the seconds of merging are returned."""
        drop_cache(self.models)
        command = self.command(*options)
        place: dict[str, Any] = {"cwd": self.models, "stderr": subprocess.PIPE}
        process = group.start(command, **place) if group else subprocess.Popen(command, **place)
        _, errors = process.communicate()
        assert process.returncode == 0, errors
        return float(self.status()["merging_s"])

    def status(self) -> dict[str, Any]:
        return resumerge.status(state_dir=self.state)["runs"][0]

    def shards(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.out.glob("*.safetensors")}


@pytest.fixture(scope="module")
def unlimited(large_llamas: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Merging]:
    merging = Merging(large_llamas, tmp_path_factory.mktemp("unlimited") / "merge")
    merging.run(None)
    yield merging
    shutil.rmtree(merging.out)


def test_a_merge_of_a_gigabyte_finishes_in_a_small_cgroup(
    unlimited: Merging, large_llamas: Path, tmp_path: Path
) -> None:
    """1.1 GB are read and written, most of it twice, beside 260 MB that torch takes."""
    merging = Merging(large_llamas, tmp_path / "merge")
    with memory_cgroup(400 * MB) as group:
        merging.run(group)
        assert group.kills == 0
    assert merging.shards() == unlimited.shards()
    status = merging.status()
    assert len(status["attempts"]) == 1
    assert status["memory"]["peak_rss"] < 400 * MB


def test_memory_taken_by_another_process_lowers_the_batch_until_it_leaves(
    unlimited: Merging, large_llamas: Path, tmp_path: Path
) -> None:
    merging = Merging(large_llamas, tmp_path / "merge")
    with memory_cgroup(700 * MB) as group:
        drop_cache(large_llamas)
        merge = group.start(
            merging.command("--threads", "1"), cwd=large_llamas, stderr=subprocess.PIPE
        )
        _wait_until(lambda: _committed(merging) > 0, merge)
        room = 700 * MB - group.used + _cache(group)
        hog = group.start(
            [sys.executable, str(HOG), str(room - 50 * MB), str(400 * MB), "2"],
            stdout=subprocess.PIPE,
        )
        assert hog.wait() == 0
        _, errors = merge.communicate()
        assert merge.returncode == 0, errors
        assert group.kills == 0
    assert merging.shards() == unlimited.shards()
    status = merging.status()
    assert len(status["attempts"]) == 1
    events = [event for event in status["events"] if event["kind"].startswith("batch_")]
    lowered = [event for event in events if event["kind"] == "batch_lowered"]
    raised = [event for event in events if event["kind"] == "batch_raised"]
    assert any("another process took" in event["data"]["reason"] for event in lowered), events
    assert raised and raised[-1]["at"] > lowered[-1]["at"], events
    assert all(event["data"]["available"] > 0 for event in lowered)


def _committed(merging: Merging) -> int:
    runs = resumerge.status(state_dir=merging.state)["runs"] if merging.state.exists() else []
    return int(runs[0]["bytes"]["committed"]) if runs else 0


def _cache(group: TestCgroup) -> int:
    """Bytes of page cache in a cgroup."""
    for line in (group.folder / "memory.stat").read_text().splitlines():
        name, number = line.split()
        if name in ("total_cache", "file"):
            return int(number)
    return 0


def _wait_until(condition: Any, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)
