"""Promise: a merge starts with as many threads as fit, where memory and disk are enough."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from made_up_plans import llama, plan
from merging import Told

from resumerge.engine.checks import disk, memory
from resumerge.engine.checks.disk import check_disk, check_downloads, disk_needed
from resumerge.engine.checks.memory import fit_threads, memory_budget, most_threads
from resumerge.engine.resources.governor import margin
from resumerge.errors import InputError, Resumable
from resumerge.host.machine import FREE_FOR_COMPANIONS
from resumerge.host.memory import MACHINE, Memory
from resumerge.hub.cache import cache_folder
from resumerge.planning import Plan, estimate
from resumerge.sizes import show_size
from resumerge.sources.remote.files import remote_file
from resumerge.sources.types import SourceFile

GB = 10**9
RECIPE = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"


@pytest.fixture
def small() -> Plan:
    return plan(RECIPE, llama("a"), llama("b"))


def machine(patch: pytest.MonkeyPatch, available: int, bound: str = MACHINE, rss: int = GB) -> None:
    found = Memory(total=100 * GB, available=available, bound=bound)
    patch.setattr(memory, "measure_memory", lambda: found)
    patch.setattr(memory, "rss", lambda: rss)


def test_the_budget_is_what_is_available_and_what_the_process_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine(monkeypatch, 10 * GB)
    room = 11 * GB - margin(100 * GB)
    assert memory_budget(None) == memory_budget(50 * GB) == room
    assert memory_budget(2 * GB) == 2 * GB
    machine(monkeypatch, 0, rss=0)
    assert memory_budget(None) == 0


def test_threads_are_as_many_as_fit(small: Plan) -> None:
    for threads in (1, 2, 5):
        enough = estimate(small).memory.need(threads).enough
        assert fit_threads(estimate(small).memory, 5, enough) == threads
        if threads > 1:
            assert fit_threads(estimate(small).memory, 5, enough - 1) == threads - 1
    assert fit_threads(estimate(small).memory, 3, 50 * GB) == 3
    assert fit_threads(estimate(small).memory, most_threads() + 1, 500 * GB) == most_threads()


def test_not_even_one_thread_says_what_to_do(small: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    enough = estimate(small).memory.need(1).enough
    needed = -(-enough // 10**6)
    machine(monkeypatch, GB)
    with pytest.raises(InputError, match=f"expected: at least {show_size(enough)}") as error:
        fit_threads(estimate(small).memory, 5, enough - 5 * 10**6)
    assert "close other programs on this machine: " in error.value.problems[0].fix
    machine(monkeypatch, GB, "the cgroup job")
    with pytest.raises(InputError, match="close other programs in the cgroup job, or raise"):
        fit_threads(estimate(small).memory, 5, enough - 1)
    with pytest.raises(InputError, match=rf"raise --memory to {needed}MB or more"):
        fit_threads(estimate(small).memory, 5, 10**6, allowed=10**6)
    with pytest.raises(InputError, match="close other programs"):
        fit_threads(estimate(small).memory, 5, 10**6, allowed=50 * GB)


class Waiting:
    """A clock that advances while a run waits, and memory that is free from the time `until` on."""

    def __init__(self, patch: pytest.MonkeyPatch, until: float) -> None:
        self.time, self.told = 0.0, Told()
        patch.setattr(
            memory, "time", SimpleNamespace(monotonic=lambda: self.time, sleep=self.sleep)
        )
        patch.setattr(
            memory,
            "measure_memory",
            lambda: Memory(total=100 * GB, available=50 * GB if self.time >= until else 0),
        )
        patch.setattr(memory, "rss", lambda: 0)

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def budget(self, small: Plan, asked: int | None, seconds: float) -> int:
        return memory.wait_for_budget(estimate(small).memory, asked, seconds, self.told)


def test_an_existing_run_waits_for_memory(small: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Waiting(monkeypatch, until=50)
    assert waiting.budget(small, None, 60) == 50 * GB - margin(100 * GB)
    assert 50 <= waiting.time < 51
    assert "Waiting for memory" in waiting.told.waits[0]


def test_and_stops_when_there_was_none_for_that_time(
    small: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = Waiting(monkeypatch, until=float("inf"))
    with pytest.raises(Resumable, match="Not enough memory to continue, after 60 s") as stopped:
        waiting.budget(small, None, 60)
    assert stopped.value.reason == "memory"
    assert 60 <= waiting.time < 61


def test_what_the_user_allows_is_not_waited_for(
    small: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run does not wait for the memory that --memory allows: waiting does not raise it."""
    waiting = Waiting(monkeypatch, until=0)
    assert waiting.budget(small, 10**6, 60) == 10**6
    assert waiting.time == 0


def test_where_a_mirror_frees_shards_one_of_them_has_to_fit() -> None:
    found = plan(RECIPE, llama("a"), llama("b"), shard_size=200)
    assert len(found.shards) > 2
    assert estimate(found).disk == found.output_bytes + FREE_FOR_COMPANIONS
    largest = max(shard.nbytes for shard in found.shards)
    assert largest > min(shard.nbytes for shard in found.shards)
    assert estimate(found, most_shards=1).disk == largest + FREE_FOR_COMPANIONS
    assert estimate(found, most_shards=0).disk == FREE_FOR_COMPANIONS


def test_the_last_byte_that_is_needed_has_to_be_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "free_bytes", lambda path: 5 * GB)
    assert check_disk(tmp_path, 5 * GB) == []
    [problem] = check_disk(tmp_path, 5 * GB + 1)
    assert "--mirror-then-delete" in problem.fix
    [problem] = check_disk(tmp_path, 5 * GB + 1, then_delete=True)
    assert "largest shard" in problem.what and "--shard-size" in problem.fix


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Make the plan of a merge of a local model and a model that has to be downloaded."""
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    found = plan(RECIPE, llama("a"), llama("b"))
    here, there = found.sources
    file = SourceFile("m.safetensors", 1000, {"etag": "e" * 64}, present=False)
    files = {"m.safetensors": file, "unread.safetensors": replace(file, name="unread.safetensors")}
    there = replace(there, kind="hub", revision="c" * 40, files=files)
    return replace(found, sources=(here, there))


def downloads(found: Plan, free: int, patch: pytest.MonkeyPatch, **more: Any) -> list[Any]:
    patch.setattr(disk, "free_bytes", lambda path: free)
    options = {"offline": False, "evict": False, **more}
    return check_downloads(found, estimate(found), cache_folder().parent / "out", 300, **options)


def test_downloads_and_output_share_a_disk(remote: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """The downloaded part of a file, and a file that nothing reads, need no space."""
    assert downloads(remote, 1300, monkeypatch) == []
    [problem] = downloads(remote, 1299, monkeypatch)
    assert "--evict" in problem.fix and "--stream" not in problem.fix
    [problem] = downloads(remote, 999, monkeypatch)
    assert "--stream" in problem.fix and "--evict" not in problem.fix, "one file does not fit"
    out = cache_folder().parent / "out"
    assert disk_needed(remote, estimate(remote), out, 300, evict=False) == 1300
    assert disk_needed(remote, estimate(remote), out, 300, evict=True) == 300
    assert downloads(remote, 0, monkeypatch, evict=True) == []
    partial = remote_file(remote.sources[1], "m.safetensors").partial
    partial.parent.mkdir(parents=True)
    partial.write_bytes(bytes(400))
    assert downloads(remote, 900, monkeypatch) == []
    assert len(downloads(remote, 899, monkeypatch)) == 1


def test_what_is_here_needs_no_space_for_downloads(
    remote: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = remote.sources[1]
    files = {name: replace(file, present=True) for name, file in there.files.items()}
    here = replace(remote, sources=(remote.sources[0], replace(there, files=files)))
    assert downloads(here, 0, monkeypatch) == []
    assert downloads(here, 0, monkeypatch, offline=True) == []


def test_offline_what_is_not_here_is_named(remote: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    [problem] = downloads(remote, 50 * GB, monkeypatch, offline=True)
    assert problem.found == "missing: m.safetensors"
