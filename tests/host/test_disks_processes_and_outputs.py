"""Promise: what is said of disks, other processes and the place of the output is true here."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import psutil
import pytest
from waiting import wait_until

from resumerge.host import speed, system
from resumerge.host.machine import existing_folder, free_bytes
from resumerge.host.persistent_storage import find_persistent
from resumerge.host.platform import goes_to
from resumerge.host.processes import birth, clock, pid_space
from resumerge.host.speed import READ_BYTES, measure_speed

# Disks


def test_a_path_that_does_not_exist_yet_is_on_the_disk_of_the_folder_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each disk is asked once: other processes may fill it between two questions.
    monkeypatch.setattr(shutil, "disk_usage", cache(shutil.disk_usage))
    assert existing_folder(tmp_path) == tmp_path
    assert existing_folder(tmp_path / "a" / "b") == tmp_path
    (tmp_path / "file").write_text("")
    assert existing_folder(tmp_path / "file") == tmp_path, (
        "the size of a file's disk is its folder's"
    )
    assert existing_folder(Path("none/at/all")) == Path()
    memory = Path("/dev/shm")
    for folder in (tmp_path, *[memory] * memory.is_dir()):
        assert free_bytes(folder / "x" / "y") == shutil.disk_usage(folder).free


def mounted(root: Path, patch: pytest.MonkeyPatch, *lines: str) -> None:
    """Write a table of mounts, and have the program read it as the system's."""
    (root / "proc" / "self").mkdir(parents=True)
    (root / "proc" / "self" / "mounts").write_text("\n".join(lines) + "\n")
    patch.setattr(psutil, "PROCFS_PATH", str(root / "proc"))


@pytest.mark.parametrize(
    ("filesystem", "kind"),
    [("nfs", "network"), ("smb3", "network"), ("fuse.sshfs", "network"), ("ext4", None),
     ("fuse.gcsfuse", "bucket"), ("fuse.rclone", "bucket"), ("fuse.drive", None)],
)  # fmt: skip
def test_which_mounts_outlive_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filesystem: str, kind: str | None
) -> None:
    mounted(tmp_path, monkeypatch, f"dev /mnt/data {filesystem} rw 0 0")
    found = [
        (str(folder.folder), folder.kind, folder.condition) for folder in find_persistent(tmp_path)
    ]
    assert found == [("/mnt/data", kind, "")] * (kind is not None)


def test_drive_comes_first_then_kaggles_folder_then_network_disks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = ("dev /mnt/b gcsfuse", "dev /mnt/n nfs4", "drive /content/drive fuse.drive")
    mounted(tmp_path, monkeypatch, *(f"{place} rw 0 0" for place in places))
    for name in ("content/drive", "kaggle/working"):
        (tmp_path / name).mkdir(parents=True)
    kinds = [folder.kind for folder in find_persistent(tmp_path)]
    assert kinds == ["kaggle", "bucket", "network"], "a Drive that is mounted but not yet there"
    (tmp_path / "content/drive/MyDrive").mkdir()
    assert find_persistent(tmp_path)[0].kind == "drive"


# How fast they are


def test_a_probe_tries_what_it_is_asked_and_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(3 << 20))
    found = measure_speed(source, tmp_path)
    assert found.read and found.compute and found.read > 0 and found.compute > 0
    assert found.write is None or found.write > 0, "not every disk has files without a name"
    assert list(tmp_path.iterdir()) == [source]
    assert measure_speed(None, computes=False) == speed.Speed(None, None, None)
    assert measure_speed(tmp_path / "none", tmp_path / "none", computes=False) == measure_speed(
        None, computes=False
    )
    source.write_bytes(b"")
    assert measure_speed(source, computes=False).read is None


def test_of_a_large_file_the_middle_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The beginning of a file was read with its header, and would come from memory."""
    source = tmp_path / "source"
    with source.open("wb") as file:
        file.truncate(READ_BYTES + (8 << 20))
    offsets: list[int] = []
    preadv = os.preadv

    def read(fd: int, buffers: list[bytearray], offset: int) -> int:
        offsets.append(offset)
        return preadv(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", read)
    measure_speed(source, computes=False)
    assert offsets[0] == 4 << 20
    assert offsets[-1] < (4 << 20) + READ_BYTES <= offsets[-1] + (1 << 19)


# Processes


def test_a_process_is_known_by_its_birth_until_it_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    born, own = birth(child.pid), birth(os.getpid())
    assert born is not None and own is not None and born >= own > 0
    ticks = os.sysconf("SC_CLK_TCK")
    assert 0 <= clock() - born / ticks < 60, "in ticks of the clock that counts suspensions too"
    assert birth(child.pid) == born
    child.kill()
    # It is a zombie then: nobody asked for its code yet.
    wait_until(lambda: birth(child.pid) is None)
    assert child.wait() == -signal.SIGKILL
    assert birth(child.pid) is None
    assert pid_space() == str(Path(f"/proc/{os.getpid()}/ns/pid").readlink())


def test_without_proc_it_is_only_known_whether_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "_KERNEL", tmp_path)
    assert birth(os.getpid()) == 0 and birth(1) == 0
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert birth(child.pid) is None
    assert pid_space() == ""


# Where output goes


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "env", "place"),
    [
        (Terminal(), {"TERM": "xterm"}, "terminal"),
        (Terminal(), {}, "terminal"),
        (Terminal(), {"TERM": "dumb"}, "log"),
        (io.StringIO(), {"TERM": "xterm"}, "log"),
        (Terminal(), {"JPY_PARENT_PID": "7"}, "cell"),
        (io.StringIO(), {"JPY_PARENT_PID": "7"}, "cell"),
    ],
)
def test_where_output_goes(stream: io.StringIO, env: dict[str, str], place: str) -> None:
    assert goes_to(stream, env) == place


def test_a_closed_stream_is_no_terminal() -> None:
    stream = io.StringIO()
    stream.close()
    assert goes_to(stream, {}) == "log"
