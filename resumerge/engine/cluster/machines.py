"""The machines of a cluster, and the resources that a task requests."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from resumerge.options.cluster import TASK_OPTIONS
from resumerge.sizes import show_size

_ACCELERATOR = "accelerator_type:"
_NOT_ASKED_FOR = ("CPU", "memory", "object_store_memory", "node:", _ACCELERATOR)


@dataclass(frozen=True)
class Machine:
    """A node of the cluster that is alive.

    Args:
        resources: the total of each resource, free or in use, by Ray's name: ``CPU``, ``GPU``,
            ``memory`` (bytes), and custom resources of the machine's `ray start`.
    """

    id: str
    resources: Mapping[str, float]

    @property
    def cpus(self) -> float:
        return self.resources.get("CPU", 0.0)

    def __str__(self) -> str:
        custom_resources = (
            f"{name}={n:g}"
            for name, n in sorted(self.resources.items())
            if not name.startswith(_NOT_ASKED_FOR)
        )
        memory = show_size(int(self.resources.get("memory", 0)))
        return ", ".join((f"{self.cpus:g} processors", memory, *custom_resources))


@dataclass(frozen=True)
class TaskRequest:
    """The resources that Ray reserves for a task.

    Args:
        memory: the bytes to reserve; None to reserve no memory.
        further: the resources of ``--ray-resources``, as `read_task_resources` returns them.
    """

    threads: int
    memory: int | None
    further: Mapping[str, Any]

    def fits(self, machine: Machine) -> bool:
        """Return whether a machine has the requested resources when it is idle."""
        return all(machine.resources.get(name, 0.0) >= n for name, n in self._needed().items())

    def options(self) -> dict[str, Any]:
        """Return the request as the options of a Ray task."""
        options: dict[str, Any] = {"num_cpus": self.threads}
        if self.memory is not None:
            options["memory"] = self.memory
        custom_resources = {name: n for name, n in self.further.items() if name not in TASK_OPTIONS}
        if custom_resources:
            options["resources"] = custom_resources
        return options | {n: v for n, v in self.further.items() if n in TASK_OPTIONS}

    def __str__(self) -> str:
        further_text = ",".join(f"{name}={value}" for name, value in self.further.items())
        return (
            f"{self.threads} processors (--threads)"
            + (f", {show_size(self.memory)} (--memory)" if self.memory is not None else "")
            + (f", {further_text} (--ray-resources)" if further_text else "")
        )

    def _needed(self) -> dict[str, float]:
        needed_amounts: dict[str, float] = {"CPU": self.threads, "memory": self.memory or 0}
        for name, value in self.further.items():
            if name == "num_gpus":
                needed_amounts["GPU"] = value
            elif name == "accelerator_type":
                needed_amounts[_ACCELERATOR + value] = (
                    0.001  # the amount by which Ray requests a type
                )
            else:
                needed_amounts[name] = value
        return needed_amounts


def show_machines(machines: Collection[Machine]) -> str:
    """Describe the resources of machines, with one entry for all machines that are alike."""
    return "; ".join(sorted({str(machine) for machine in machines})) or "no machine is there"
