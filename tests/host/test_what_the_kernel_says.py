"""Promise: what /proc and the cgroups say of memory, kills and blocked threads is read aright."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from resumerge.host import memory, system
from resumerge.host.memory import Cgroup, MemoryGauge, cgroups, peak_rss_of, rss
from resumerge.host.oom import OomKills
from resumerge.host.stalled import ThreadState, blocked_thread
from resumerge.host.system import kernel_file

GB = 10**9
MEMINFO = "MemTotal:  8000 kB\nMemFree:  1 kB\nMemAvailable:  {} kB\nHugePages_Total: 0\n"

Kernel = Callable[..., None]


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """Return a function that writes files of /proc and /sys, by their paths; None for no file."""

    monkeypatch.setattr(system, "_KERNEL", tmp_path)

    def says(files: dict[str, str | None]) -> None:
        for name, text in files.items():
            path = kernel_file(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                path.unlink()
            else:
                path.write_text(text)

    says({"/proc/meminfo": MEMINFO.format(6000)})
    return says


# Memory


def test_this_process_and_others(kernel: Kernel) -> None:
    kernel({"/proc/self/statm": "900 70 5 1 0 80 0\n"})
    assert rss() == 70 * resource.getpagesize()
    kernel({"/proc/7/status": "Name:\tx\nVmPeak:\t 999 kB\nVmHWM:\t 123 kB\nVmRSS:\t 50 kB\n"})
    assert peak_rss_of(7) == 123 * 1024
    assert peak_rss_of(8) == 0, "it is dead"
    kernel({"/proc/7/status": "Name:\tx\nState:\tZ (zombie)\n"})
    assert peak_rss_of(7) == 0


def test_the_machine_has_no_more_than_all_of_it(kernel: Kernel) -> None:
    assert memory._machine() == (8000 << 10, 6000 << 10)
    kernel({"/proc/meminfo": MEMINFO.format(9000)})
    assert memory._machine() == (8000 << 10, 8000 << 10)


def test_without_proc_each_node_says_it(kernel: Kernel) -> None:
    """Page cache is available, except for pages that are mapped or not yet written."""
    fields = {"MemTotal": 4000, "MemFree": 1000, "Active(file)": 500, "Inactive(file)": 300}
    for number, busy in enumerate((70, 5000)):
        sizes = fields | {"Mapped": busy, "Dirty": 20, "Writeback": 10}
        lines = (f"Node {number} {name}: {size:>9} kB\n" for name, size in sizes.items())
        kernel({f"/sys/devices/system/node/node{number}/meminfo": "".join(lines)})
    kernel({"/proc/meminfo": ""})
    assert memory._machine() == (8000 << 10, (1700 + 1000) << 10)


V1, V2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"
MOUNTS = f"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
36 32 0:31 {{}} {V1} rw shared:9 - cgroup cgroup rw,memory
37 32 0:32 / {V2} rw - cgroup2 cgroup2 rw
38 32 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
""".strip()


def found(pid: int | str = "self") -> list[tuple[str, bool]]:
    """Return the cgroups, by the ends of their paths, and whether the process is itself in them."""
    return [(f"/sys{str(g.folder).partition('/sys')[2]}", g.own) for g in cgroups(pid)]


def test_cgroups_are_found_from_the_own_one_up_to_the_mount(kernel: Kernel) -> None:
    kernel(
        {
            "/proc/self/cgroup": "9:cpu:/a/b\n5:cpuset,memory:/a/b\n1:name=systemd:/\n0::/u\n",
            "/proc/8/cgroup": "5:memory:/a\n",
            "/proc/self/mountinfo": MOUNTS.format("/"),
            f"{V1}/a/b/memory.usage_in_bytes": "1",
            f"{V1}/a/memory.usage_in_bytes": "1",
            f"{V1}/memory.usage_in_bytes": "1",
            "/sys/fs/cgroup/memory.usage_in_bytes": "1",
        }
    )
    assert found() == [(f"{V1}/a/b", True), (f"{V1}/a", False), (V1, False)]
    assert found(8) == [(f"{V1}/a", True), (V1, False)]
    kernel({f"{V2}/u/memory.current": "1"})
    assert found()[3:] == [(f"{V2}/u", True)], "the root has no figures of its own"


@pytest.mark.parametrize("path", ["/docker/abc", "/../elsewhere", "/docker/another"])
def test_in_a_container_the_mounted_cgroup_is_the_own_one(kernel: Kernel, path: str) -> None:
    kernel(
        {
            "/proc/self/cgroup": f"5:memory:{path}\n",
            "/proc/self/mountinfo": MOUNTS.format("/docker/abc"),
            f"{V1}/memory.usage_in_bytes": "1",
        }
    )
    assert found() == [(V1, True)]
    kernel(
        {"/proc/self/cgroup": "5:memory:/docker/abc/job\n", f"{V1}/job/memory.usage_in_bytes": "1"}
    )
    assert found() == [(f"{V1}/job", True), (V1, False)]


def test_without_cgroups_the_machine_alone_counts(kernel: Kernel) -> None:
    assert cgroups() == []
    measured = MemoryGauge().measure()
    assert (measured.total, measured.available) == (8000 << 10, 6000 << 10)
    assert (measured.bound, measured.stalled) == ("the machine", 0.0)


def group(folder: Path, limit: int, used: int, **more: object) -> Cgroup:
    folder.mkdir()
    (folder / "memory.limit_in_bytes").write_text(str(limit))
    (folder / "memory.usage_in_bytes").write_text(str(used))
    for name, text in more.items():
        (folder / f"memory.{name}").write_text(f"{text}")
    return Cgroup(folder, memory._V1, own=True)


def test_the_soft_limit_counts_where_a_tenth_of_the_machine_is_left(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soft = group(tmp_path / "job", 5 << 20, 1 << 20, soft_limit_in_bytes=1 << 20)
    monkeypatch.setattr(memory, "cgroups", lambda: [soft])
    for available, left in ((800, 800 << 10), (799, 0)):
        kernel({"/proc/meminfo": MEMINFO.format(available)})
        assert MemoryGauge().measure().available == left
    assert MemoryGauge().measure().bound == "the cgroup job"


def test_a_cgroup_is_named_where_it_has_the_least_and_alone_limits_the_total(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roomy = group(tmp_path / "roomy", 7000 << 10, 0)
    monkeypatch.setattr(memory, "cgroups", lambda: [roomy])
    measured = MemoryGauge().measure()
    assert measured.bound == "the machine", "of which less is left"
    assert (measured.total, measured.available) == (7000 << 10, 6000 << 10)


def test_dirty_and_mapped_pages_are_no_debt_and_no_memory_is_less_than_nothing(
    tmp_path: Path,
) -> None:
    stat = "total_inactive_file 5\ntotal_active_file 0\ntotal_mapped_file 100\ntotal_dirty 0\n"
    assert group(tmp_path / "a", 1000, 300, stat=stat).measure(soft=False) == (1000, 700)
    assert group(tmp_path / "b", 1000, 1300).measure(soft=False) == (1000, 0)


def test_what_is_only_above_a_process_and_has_no_limit_says_nothing(tmp_path: Path) -> None:
    """The limit in the `memory.stat` of a cgroup holds for the processes in it alone."""
    stat = "hierarchical_memory_limit 1000\n"
    own = group(tmp_path / "a", 1 << 62, 300, stat=stat)
    assert own.measure(soft=False) == (1000, 700)
    above = Cgroup(own.folder, own.files, own=False)
    assert above.measure(soft=False) is None


# Time lost in waiting for memory


def pressure(total: float) -> str:
    some = f"some avg10=9.00 avg60=0.00 avg300=0.00 total={int(total * 3e6)}\n"
    return f"{some}full avg10=0.00 avg60=0.00 avg300=0.00 total={int(total * 1e6)}\n"


def test_time_in_which_all_waited_is_a_share_of_the_time_since_the_last_look(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(memory, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(memory, "cgroups", lambda: groups)
    groups: list[Cgroup] = []
    kernel({"/proc/pressure/memory": pressure(50)})
    gauge = MemoryGauge()
    for now, total, share in ((110.0, 52.0, 0.2), (114.0, 52.0, 0.0), (115.0, 60.0, 1.0)):  # noqa: B007
        kernel({"/proc/pressure/memory": pressure(total)})
        assert gauge.measure().stalled == pytest.approx(share)
    groups = [group(tmp_path / "job", 1 << 40, 0, pressure=pressure(7))]
    groups.append(group(tmp_path / "above", 1 << 40, 0, pressure=pressure(1000)))
    own = MemoryGauge()
    now += 1.0
    (tmp_path / "job" / "memory.pressure").write_text(pressure(7.5))
    assert own.measure().stalled == pytest.approx(0.5), "in its own cgroup"
    (tmp_path / "job" / "memory.pressure").unlink()
    now += 1.0
    assert own.measure().stalled <= 0


# Processes that the kernel killed


def test_a_kill_is_told_once_and_what_was_before_is_none(kernel: Kernel) -> None:
    def kills(machine: int, own: int) -> None:
        kernel(
            {
                "/proc/vmstat": f"oom_kill_x 9\npgfault 7\noom_kill {machine}\n",
                f"{V1}/a/memory.oom_control": f"oom_kill_disable 0\nunder_oom 0\noom_kill {own}\n",
            }
        )

    kernel(
        {
            "/proc/self/cgroup": "5:memory:/a\n",
            "/proc/self/mountinfo": MOUNTS.format("/"),
            f"{V1}/a/memory.usage_in_bytes": "1",
        }
    )
    kills(3, 4)
    counts = OomKills()
    assert not counts.rose()
    kills(4, 4)
    assert counts.rose(), "elsewhere on the machine"
    assert not counts.rose()
    kills(4, 5)
    counts.watch("self")
    assert counts.rose(), "a look forgets nothing"
    assert not counts.rose()


def test_a_worker_that_was_moved_is_counted_in_its_new_cgroup(kernel: Kernel) -> None:
    kernel(
        {
            "/proc/vmstat": "pgfault 1\n",
            "/proc/self/cgroup": "0::/\n",
            "/proc/7/cgroup": "0::/job\n",
            "/proc/self/mountinfo": MOUNTS.format("/"),
            f"{V2}/job/memory.current": "1",
            f"{V2}/job/memory.events": "low 0\noom 9\noom_kill 2\noom_group_kill 0\n",
        }
    )
    counts = OomKills()
    counts.watch(7)
    assert not counts.rose(), "those of before"
    kernel({f"{V2}/job/memory.events": "low 0\noom 9\noom_kill 3\n", "/proc/7/cgroup": None})
    assert counts.rose()
    kernel({f"{V2}/job/memory.events": None})
    assert not counts.rose(), "the cgroup is gone"


# What a process is blocked on


def threads(kernel: Kernel, *states: tuple[str, str]) -> ThreadState:
    """Return what is found of a process whose threads have these states and kernel functions."""
    for number, (state, function) in enumerate(states):
        kernel(
            {
                f"/proc/7/task/{number}/stat": f"{number} (a (b) c) {state} 1 2 3\n",
                f"/proc/7/task/{number}/wchan": function,
            }
        )
    return blocked_thread(7)


@pytest.mark.parametrize(
    ("states", "state", "function"),
    [
        ([("S", "futex_wait"), ("D", "io_schedule"), ("R", "0")], "D", "io_schedule"),
        ([("S", "futex_wait"), ("R", "0")], "R", ""),
        ([("R", "0"), ("T", "do_signal_stop")], "T", "do_signal_stop"),
        ([("t", "ptrace_stop"), ("T", "")], "t", "ptrace_stop"),
        ([("R", "0"), ("S", "request_wait_answer_fuse")], "D", "request_wait_answer_fuse"),
        ([("S", "nfs_wait_bit_killable")], "D", "nfs_wait_bit_killable"),
        ([("I", "worker")], "", ""),
        ([], "", ""),
    ],
)
def test_the_thread_that_explains_a_stall_best(
    kernel: Kernel, states: list[tuple[str, str]], state: str, function: str
) -> None:
    assert threads(kernel, *states) == ThreadState(state, function)


def test_it_is_told_in_words() -> None:
    assert str(ThreadState("D", "io_schedule")) == (
        "is waiting for a disk or a network filesystem (in the kernel's io_schedule)"
    )
    assert str(ThreadState("R")) == "is computing"
    assert str(ThreadState()) == "is in an unknown state"
