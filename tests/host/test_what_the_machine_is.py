"""Colab, Kaggle, notebooks and other machines are told apart by variables and folders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tiny_models import write_family
from waiting import HANGS_SECONDS

from resumerge.documents.choices import choices
from resumerge.host.gpu import Gpu, find_gpus
from resumerge.host.host import describe_host
from resumerge.host.persistent_storage import find_persistent
from resumerge.host.platform import find_platform, in_notebook
from resumerge.options import Options
from resumerge.output_path import OutputPath

pytestmark = pytest.mark.cold_start

KERNEL = {"TERM": "xterm-color", "CLICOLOR": "1", "PAGER": "cat", "GIT_PAGER": "cat"}


def make(root: Path, *names: str, **contents: str) -> Path:
    """Make folders (``a/``), empty files, and files by a path with ``__`` for slashes."""
    for name in names:
        path = root / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.touch()
    for name, text in contents.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("kind", "left", "env"),
    [
        ("colab", [".dockerenv"], {"COLAB_RELEASE_TAG": "release-1", "JPY_PARENT_PID": "7"}),
        ("colab", ["content/", "opt/google/drive/"], {}),
        ("kaggle", [], {"KAGGLE_KERNEL_RUN_TYPE": "Interactive", "JPY_PARENT_PID": "7"}),
        ("kaggle", ["kaggle/working/"], {}),
        ("notebook", [".dockerenv"], {"JPY_PARENT_PID": "7"}),
        ("notebook", [], KERNEL),
        ("machine", ["content/"], {"TERM": "xterm-color"}),
    ],
)
def test_its_kind(kind: str, left: list[str], env: dict[str, str], tmp_path: Path) -> None:
    found = find_platform(make(tmp_path, *left), env)
    assert found.kind == kind
    assert found.ephemeral == (kind in ("colab", "kaggle"))


def test_drive_counts_only_where_it_is_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path / "proc"))
    root = make(tmp_path, "content/drive/MyDrive/", proc__self__mounts="overlay / overlay rw 0 0\n")
    assert find_persistent(root) == [], "that folder is on the VM's own disk"
    make(root, proc__self__mounts="drive /content/drive fuse.drive rw 0 0\n")
    (drive,) = find_persistent(root)
    assert (str(drive.folder), drive.kind) == ("/content/drive/MyDrive", "drive")


def test_network_disks_and_kaggles_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path / "proc"))
    root = make(tmp_path, "kaggle/working/", proc__self__mounts="a:/b /mnt/my\\040disk nfs4 rw 0 0")
    kaggle, network = find_persistent(root)
    assert (kaggle.kind, "Save Version" in kaggle.condition) == ("kaggle", True)
    assert (str(network.folder), network.kind) == ("/mnt/my disk", "network")


def smi(folder: Path, script: str) -> str:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_gpus_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resumerge.host.gpu.PATIENCE_SECONDS", HANGS_SECONDS)
    command = smi(tmp_path, "echo 'Tesla T4, 15360, 15095'; echo 'Odd, Name, [N/A], 1'")
    tesla, odd = find_gpus(tmp_path, command)
    assert tesla == Gpu("Tesla T4", 15360 << 20, 15095 << 20)
    assert odd == Gpu("Odd, Name", None, 1 << 20)
    information = "Model: \t\t NVIDIA L4\nIRQ:   26\n"
    make(tmp_path, **{"proc__driver__nvidia__gpus__0000:00:04.0__information": information})
    broken = smi(tmp_path, "echo no driver; exit 9")
    assert find_gpus(tmp_path, broken) == [Gpu("NVIDIA L4", None, None)]
    assert find_gpus(tmp_path, str(tmp_path / "none")) == [Gpu("NVIDIA L4", None, None)]


def test_a_driver_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resumerge.host.gpu.PATIENCE_SECONDS", 0.3)
    assert find_gpus(tmp_path, smi(tmp_path, "exec sleep 600")) == []


def test_a_mounted_drive_is_suggested_as_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path / "proc"))
    mounts = "drive /content/drive fuse.drive rw 0 0\n"
    root = make(tmp_path, "content/drive/MyDrive/", "opt/google/drive/", proc__self__mounts=mounts)
    host = describe_host(root)
    assert host["platform"] == "colab"

    def mirror(options: Options) -> dict[str, str]:
        made = choices(host, options, out=OutputPath(Path("/data/merged")), budget=10**9, threads=2)
        return next(choice for choice in made if choice["what"] == "mirror")

    assert mirror(Options())["option"] == "--mirror /content/drive/MyDrive/merged"
    assert mirror(Options())["chosen"] is None, "nothing is copied there unasked"
    assert mirror(Options(mirror="hf://a/b"))["chosen"] == "hf://a/b"
    on_drive = Options(state_dir=Path("/content/drive/MyDrive/state"))
    made = choices(host, on_drive, out=None, budget=10**9, threads=2)
    state = next(choice for choice in made if choice["what"] == "state")
    assert "locks" in state["because"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = write_family(tmp_path_factory.mktemp("models"))
    (place / "merge.yaml").write_text(
        "merge_method: linear\nmodels: [{model: math}, {model: code}]\n"
    )
    text = (place / "merge.yaml").read_text()
    (place / "merge.yaml").write_text(text.replace("}", ", parameters: {weight: 1}}"))
    return place


def plan(models: Path, *words: str, **env: str) -> str:
    command = [sys.executable, "-m", "resumerge", "plan", "merge.yaml", "merged", *words]
    return subprocess.run(
        command,
        cwd=models,
        env={**os.environ, "COLUMNS": "140", **env},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_plan_tells_the_machine_and_what_was_chosen(models: Path) -> None:
    document = json.loads(plan(models, "--json", "--threads", "1", COLAB_RELEASE_TAG="release-1"))
    host = document["host"]
    assert host["platform"] == "colab"
    assert host["output"] == "log"
    assert 0 < host["memory"]["available"] <= host["memory"]["total"]
    assert host["disk"]["free"] > 0
    assert host["disk"]["write_bytes_per_s"] > 0
    chosen = {choice["what"]: choice for choice in document["choices"]}
    assert set(chosen) == {"memory", "threads", "device", "progress", "state", "mirror"}
    assert chosen["threads"]["chosen"] == 1
    assert chosen["memory"]["chosen"] == document["memory"]["budget"]
    assert chosen["progress"]["chosen"] == "lines"
    help_ = subprocess.run(
        [sys.executable, "-m", "resumerge", "run", "--help"],
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for choice in chosen.values():
        assert choice["option"].split()[0] in help_, "what overrides it is an option of run"


def test_plan_shows_it_as_text(models: Path) -> None:
    shown = plan(models, COLAB_RELEASE_TAG="release-1")
    assert "Google Colab: " in shown
    assert "--memory SIZE" in shown


def test_a_cell_is_told_from_a_terminal() -> None:
    assert in_notebook({"JPY_PARENT_PID": "7", "TERM": "xterm-256color"})
    assert in_notebook(KERNEL)
    assert not in_notebook({**KERNEL, "TERM": "xterm-256color"})
