"""Promise: each choice for this machine is shown with its reason and the option that changes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from resumerge.documents.choices import choices
from resumerge.options import Options
from resumerge.output_path import OutputPath

GB = 10**9
MEMORY = {"total": 16 * GB, "available": 8 * GB, "bound": "the machine"}
LEFT = "the machine has 8 GB of 16 GB available"
KEPT = "800 MB stays free"
DRIVE = {"folder": "/content/drive/MyDrive", "kind": "drive", "condition": ""}
HOST: dict[str, Any] = {
    "platform": "machine",
    "vanishes": False,
    "output": "log",
    "cores": 8,
    "memory": MEMORY,
    "gpus": [],
    "durable": [],
}


def chosen(
    what: str,
    options: Options | None = None,
    *,
    out: str | None = "merged",
    budget: int = 7 * GB,
    threads: int | None = 8,
    progress: str = "auto",
    **host: Any,
) -> tuple[object, str, str] | None:
    """Return a choice, its reason, and the option that overrides it; None without such a choice."""
    made = choices(
        {**HOST, **host},
        options or Options(),
        out=None if out is None else OutputPath(Path(out)),
        budget=budget,
        threads=threads,
        progress=progress,
    )
    found = [choice for choice in made if choice["what"] == what]
    assert len(found) <= 1
    return (found[0]["chosen"], found[0]["because"], found[0]["option"]) if found else None


def test_memory_is_what_was_asked_for_as_far_as_it_is_there() -> None:
    assert chosen("memory") == (7 * GB, f"{LEFT}, {KEPT}", "--memory SIZE")
    asked = Options(memory=2 * GB)
    assert chosen("memory", asked, budget=2 * GB) == (2 * GB, "as requested", "--memory SIZE")
    more = Options(memory=50 * GB)
    expected = (7 * GB, f"{LEFT}, {KEPT}, less than requested", "--memory SIZE")
    assert chosen("memory", more) == expected


def test_the_sum_of_a_memory_budget_can_be_checked() -> None:
    """Memory that this process uses counts, so that a budget may exceed the memory that is left."""
    own = f"{LEFT}, this process uses 2 GB, {KEPT}"
    assert chosen("memory", budget=9_200_000_000) == (9_200_000_000, own, "--memory SIZE")


def test_threads_are_those_that_fit() -> None:
    cores = "the cores that this process may use"
    assert chosen("threads") == (8, cores, "--threads N")
    assert chosen("threads", threads=None) == (8, cores, "--threads N")
    assert chosen("threads", threads=3) == (
        3, "the memory budget is too small for all 8 threads", "--threads N"
    )  # fmt: skip
    four = Options(threads=4)
    assert chosen("threads", four, threads=4) == (4, "as requested", "--threads N")
    assert chosen("threads", four, threads=None) == (4, "as requested", "--threads N")
    assert chosen("threads", four, threads=1) == (
        1, "the memory budget is too small for all 4 threads", "--threads N"
    )  # fmt: skip


def test_the_device_is_the_cpu_unless_another_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpus = [{"name": "Tesla T4", "total": GB, "free": GB}]
    assert chosen("device") == ("cpu", "there is no GPU", "--device DEV")
    why = "kernels compute on the CPU; Tesla T4 is for methods that use torch"
    assert chosen("device", gpus=gpus) == ("cpu", why, "--device DEV")
    cuda = Options(device="cuda:1")
    assert chosen("device", cuda, gpus=gpus) == ("cuda:1", "as requested", "--device DEV")
    for count, device in ((0, "cpu"), (1, "cuda")):
        monkeypatch.setattr("torch.cuda.device_count", lambda count=count: count)
        found = chosen("device", Options(device="auto"), gpus=gpus)
        assert found is not None and found[0] == device
        assert "auto uses a GPU" in found[1]


def test_progress_is_shown_as_the_output_can() -> None:
    terminal, cell, log = (
        chosen("progress", output=place) for place in ("terminal", "cell", "log")
    )
    assert terminal == ("bar", "output goes to a terminal", "--progress STYLE")
    assert cell is not None and cell[0] == "lines" and "notebook's cell" in cell[1]
    assert log == ("lines", "output goes to a file or a pipe", "--progress STYLE")
    asked = chosen("progress", progress="none", output="terminal")
    assert asked == ("none", "as requested", "--progress STYLE")


def test_the_state_is_in_the_working_folder_unless_it_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RESUMERGE_STATE_DIR", raising=False)
    folder, why, option = chosen("state") or ("", "", "")
    assert Path(str(folder)).is_relative_to(tmp_path)
    assert (why, option) == ("in the working folder", "--state-dir DIR")
    monkeypatch.setenv("RESUMERGE_STATE_DIR", str(tmp_path / "named"))
    assert chosen("state") == (
        str(tmp_path / "named"), "from RESUMERGE_STATE_DIR", "--state-dir DIR"
    )  # fmt: skip
    given = Options(state_dir=tmp_path / "given")
    assert chosen("state", given) == (
        str(tmp_path / "given"), "as requested", "--state-dir DIR"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "warned"), [("drive", True), ("bucket", True), ("network", False), ("kaggle", False)]
)
def test_a_state_folder_where_no_locks_are_is_warned_of(kind: str, warned: bool) -> None:
    durable = [{"folder": "/mnt/far", "kind": kind, "condition": ""}]
    for folder, there in (("/mnt/far/state", True), ("/mnt/farther", False)):
        found = chosen("state", Options(state_dir=Path(folder)), durable=durable)
        assert found is not None
        assert ("a ledger needs locks" in found[1]) is (warned and there)


def test_a_mirror_is_suggested_where_the_machine_may_vanish() -> None:
    assert chosen("mirror") is None
    network = [{"folder": "/mnt/n", "kind": "network", "condition": ""}]
    assert chosen("mirror", durable=network) is None
    asked = Options(mirror="hf://a/b")
    assert chosen("mirror", asked, vanishes=True) == (
        "hf://a/b", "as requested", "--mirror DEST"
    )  # fmt: skip
    why = "Google Drive is mounted; its files remain when this VM is removed"
    assert chosen("mirror", durable=[*network, DRIVE], vanishes=True, out="a/b") == (
        None, why, "--mirror /content/drive/MyDrive/b"
    )  # fmt: skip
    assert chosen("mirror", durable=[DRIVE], out=None) == (
        None, why, "--mirror /content/drive/MyDrive/merged"
    )  # fmt: skip
    assert chosen("mirror", platform="kaggle", vanishes=True) == (
        None, "this Kaggle machine may be removed at any time, with its disk", "--mirror DEST"
    )  # fmt: skip
