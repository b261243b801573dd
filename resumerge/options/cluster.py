"""The types of the options for a Ray cluster: its address, and the resources of a task."""

from __future__ import annotations

import json
import re
from typing import Any

from resumerge.options.types import OptionType

LOCAL_CLUSTER = "local"
"""The address of a Ray cluster that is started on this machine for one run, and ends with it."""

TASK_OPTIONS = ("num_gpus", "accelerator_type")
"""Ray's own names that `TaskResources` accepts; all others are custom resources of the cluster."""

_ACCELERATOR = "accelerator_type"

_OTHERWISE = {
    "num_cpus": "the processors of a task are --threads",
    "CPU": "the processors of a task are --threads",
    "memory": "the memory of a task is --memory",
    "object_store_memory": "tasks need none",
    "GPU": "it is named num_gpus here",
}
"""Names of Ray's that are not accepted, each with the option or name to use, for the message."""

_CLUSTER = re.compile(r"local|auto|(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):[0-9]{1,5}")


class ClusterAddress(OptionType):
    """A Ray cluster: ``HOST:PORT``, ``auto`` for the one that this machine is in, or ``local``."""

    expected, metavar, accepts = "HOST:PORT, auto or local", "[ADDRESS]", str
    note = "``local`` is a new cluster on this machine."
    bare = LOCAL_CLUSTER
    reads_text = True

    def read(self, value: object) -> object:
        if isinstance(value, str) and not self.is_valid(value):
            raise ValueError(
                f"{value!r} is not the address of a Ray cluster: {self.expected}. The word after "
                "--ray is its address: without one, --ray stands last or before another option; "
                f"or write --ray {self.bare}"
            )
        return value

    def is_valid(self, value: object) -> bool:
        return isinstance(value, str) and _CLUSTER.fullmatch(value) is not None


class TaskResources(OptionType):
    """The resources that Ray reserves for a task, as text: JSON, or ``NAME=N,NAME=N``."""

    expected = 'NAME=N, separated by commas, or a JSON object like {"num_gpus": 1}'
    metavar = "RESOURCES"
    accepts = str
    reads_text = True

    def read(self, value: object) -> object:
        if isinstance(value, str):
            read_task_resources(value)  # its error has a more exact message
        return value

    def is_valid(self, value: object) -> bool:
        try:
            return isinstance(value, str) and bool(read_task_resources(value))
        except ValueError:
            return False


def read_task_resources(text: str) -> dict[str, Any]:
    """Return the resources of a task, by name, from the text of the option.

    Raises:
        ValueError: the text names no resource, a refused one, or one without a valid number.
    """
    if text.lstrip().startswith("{"):
        try:
            resources: dict[str, Any] = json.loads(text)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        except ValueError as error:
            raise ValueError(f'it is no JSON object like {{"num_gpus": 1}}: {error}') from None
    else:
        pairs = (part.partition("=") for part in text.split(","))
        resources = {name.strip(): value.strip() for name, _, value in pairs}
        resources = {
            name: value if name == _ACCELERATOR else _number(value)
            for name, value in resources.items()
        }
    for name, value in resources.items():
        if name in _OTHERWISE:
            raise ValueError(f"{name} is no resource of --ray-resources: {_OTHERWISE[name]}")
        if name == _ACCELERATOR:
            if not value or not isinstance(value, str):
                raise ValueError(f"{name} has no name of one: write {name}=A100")
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
        if not name or not is_number:
            raise ValueError(f"{name or text!r} has no number: write {name or 'NAME'}=1")
        if not (value < 1e18 and round(value, 4) == value):
            raise ValueError(f"{name} must be finite, with four decimals at most")
        if name == "num_gpus" and value > 1 and value != int(value):
            raise ValueError("num_gpus above 1 must be a whole number")
    return resources


def _number(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
