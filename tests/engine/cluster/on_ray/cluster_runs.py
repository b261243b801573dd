"""A Ray cluster on this machine, and merges on it."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loopback_hub.hub import Hub
from merging import shards_of
from safetensors.torch import load_file, save

CODE = Path(__file__).with_name("accidents.py")
RECIPE = (
    "merge_method: mean_with_accidents\nmodels: [{model: base}, {model: math}, {model: code}]\n"
)
SHARD_SIZE = 16_000
"""The shard size in bytes; the model has four shards."""

HELD = {"SLOWNESS": "0.1", "HOLD": "20"}
"""Variables of a merge that waits, after two seconds and its first batch, for a signal to stop."""


@dataclass
class RayCluster:
    """A head without processors, and machines with homes of their own.

    Args:
        folder: the folder of the machines' homes.
        accidents: the folder of accidents: see `accidents.py`.
        env: the environment variables of every machine.
        hub: the Hub of every machine.
    """

    folder: Path
    accidents: Path
    env: dict[str, str]
    hub: Hub
    _cluster: Any = None
    _nodes: list[Any] = field(default_factory=list)
    _count: int = 0

    def start(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 0,
                "include_dashboard": False,
                "_system_config": {  # so that a machine that is gone is missed soon
                    "health_check_initial_delay_ms": 1000,
                    "health_check_period_ms": 500,
                    "health_check_timeout_ms": 30_000,  # a busy machine is none that is gone
                    "health_check_failure_threshold": 3,
                },
            },
        )

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add_machine(self, resources: dict[str, float] | None = None, **env: str) -> Any:
        """Add a machine of one processor, with its own home, cache and working folder."""
        self._count += 1
        home = self.folder / f"machine{self._count}"
        (home / "tmp").mkdir(parents=True)
        before = Path.cwd()
        os.chdir(home)
        try:
            own = {"HOME": home, "HF_HOME": home / "hf", "TMPDIR": home / "tmp"}
            machine = {**{name: str(path) for name, path in own.items()}, **self.env, **env}
            node = self._cluster.add_node(num_cpus=1, env_vars=machine, resources=resources)
        finally:
            os.chdir(before)
        self._nodes.append(node)
        return node

    def kill(self, node: Any) -> None:
        """Kill a machine: its raylet and, with that, its workers."""
        self._nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def kill_one_with(self, pid: int) -> None:
        """Kill the machine that a worker's process belongs to."""
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        self.kill(next(node for node in self._nodes if parent in _pids(node)))

    @contextmanager
    def signalled_head(self, number: signal.Signals) -> Iterator[None]:
        """Send a signal to the cluster's coordinator, and SIGCONT at the end.

        After SIGKILL the cluster cannot be used any more.
        """
        [[server]] = [
            infos for name, infos in self._cluster.head_node.all_processes.items() if "gcs" in name
        ]
        server.process.send_signal(number)
        try:
            yield
        finally:
            server.process.send_signal(signal.SIGCONT)

    def lay(self, *accidents: str) -> None:
        """Lay accidents, each for one worker: see `accidents.py`."""
        for name in accidents:
            (self.accidents / name).touch()

    def victims(self) -> list[int]:
        """Return the process ids of the workers that had an accident."""
        return [int(path.name.rpartition("-")[2]) for path in self.accidents.glob("taken-*")]

    def caches(self) -> list[Path]:
        """Return the cache of each machine that has downloaded weights."""
        caches = (home / "hf" for home in self.folder.glob("machine*"))
        return [cache for cache in caches if any(cache.rglob("*.safetensors"))]

    def shutdown(self) -> None:
        self._cluster.shutdown()


def _pids(node: Any) -> set[int]:
    return {info.process.pid for infos in node.all_processes.values() for info in infos}


@dataclass
class ClusterRuns:
    """Merges of one recipe, on one machine or on the cluster.

    Args:
        plain: the output of one machine.
    """

    models: Path
    cluster: RayCluster
    plain: Path

    def command(self, *words: str, **env: str) -> subprocess.Popen[str]:
        """Start the command line in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "resumerge", *words],
            cwd=self.models,
            env={**os.environ, **self.cluster.env, "ACCIDENTS": "", "SLOWNESS": "0", **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def begin(self, out: Path, *further: str, **env: str) -> subprocess.Popen[str]:
        """Start a merge on the cluster, in a process of its own."""
        words = ("run", str(recipe_in(self.models)), str(out), "--state-dir", str(state_of(out)))
        size = ("--shard-size", str(SHARD_SIZE), "--threads", "1")
        return self.command(*words, *size, "--ray", self.cluster.address, *further, **env)

    def is_same(self, out: Path) -> bool:
        """Return whether an output is complete, has the bytes of one machine, and nothing else."""
        names = {str(path.relative_to(out)) for path in out.rglob("*")}
        return shards_of(out) == shards_of(self.plain) and names == {
            str(path.relative_to(self.plain)) for path in self.plain.rglob("*")
        }


def recipe_in(models: Path) -> Path:
    path = models / "recipe.yaml"
    merged = "".join(f"  - model: {models / name}\n" for name in ("base", "math", "code"))
    path.write_text(f"merge_method: mean_with_accidents\nmodels:\n{merged}")
    return path


def in_files(model: Path, count: int) -> dict[str, bytes]:
    """Return a model as the files of a repo, with several weight files."""
    tensors = sorted(load_file(model / "model.safetensors").items())
    weight_map, files = {}, {"config.json": (model / "config.json").read_bytes()}
    for number in range(count):
        name = f"model-{number + 1:05}-of-{count:05}.safetensors"
        some = dict(tensors[number::count])
        files[name] = save(some, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(some, name)
    index = {"metadata": {}, "weight_map": weight_map}
    return files | {"model.safetensors.index.json": json.dumps(index).encode()}


def state_of(out: Path) -> Path:
    return out.with_name(out.name + ".state")


def events(out: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the kind and data of each event of a run, by its output."""
    [path] = state_of(out).glob("*/ledger.db")
    with closing(sqlite3.connect(path)) as ledger:
        rows = ledger.execute("SELECT kind, data FROM events ORDER BY id").fetchall()
    return [(kind, json.loads(data)) for kind, data in rows]


def counted(out: Path) -> Counter[str]:
    """Return how often each kind of event happened."""
    return Counter(kind for kind, _ in events(out))


def is_stopped(pid: int) -> bool:
    return ") T " in Path(f"/proc/{pid}/stat").read_text()


def is_at_work(worker: int) -> bool:
    """Return whether a worker exists and has a task, by the name that Ray gives its process."""
    try:
        return "IDLE" not in Path(f"/proc/{worker}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it may end between opening and reading
        return False
