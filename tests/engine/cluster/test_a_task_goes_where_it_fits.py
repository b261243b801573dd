"""Promise: a task is for machines that have all that it asks for, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from resumerge.engine.cluster.machines import Machine, TaskRequest, show_machines

LARGE = Machine(
    "large",
    {"CPU": 8.0, "memory": 16e9, "GPU": 2.0, "accelerator_type:A100": 1.0, "fast_disk": 1.0},
)
SMALL = Machine("small", {"CPU": 2.0, "memory": 4e9, "node:10.0.0.2": 1.0})


@pytest.mark.parametrize(
    ("request_", "fitting"),
    [
        (TaskRequest(2, None, {}), "large small"),
        (TaskRequest(4, None, {}), "large"),
        (TaskRequest(9, None, {}), ""),
        (TaskRequest(1, 4_000_000_000, {}), "large small"),
        (TaskRequest(1, 5_000_000_000, {}), "large"),
        (TaskRequest(1, None, {"num_gpus": 2}), "large"),
        (TaskRequest(1, None, {"num_gpus": 3}), ""),
        (TaskRequest(1, None, {"accelerator_type": "A100"}), "large"),
        (TaskRequest(1, None, {"accelerator_type": "T4"}), ""),
        (TaskRequest(1, None, {"fast_disk": 1}), "large"),
        (TaskRequest(1, None, {"nowhere": 1}), ""),
    ],
)
def test_all_that_is_asked_for_counts(request_: TaskRequest, fitting: str) -> None:
    assert " ".join(m.id for m in (LARGE, SMALL) if request_.fits(m)) == fitting


def test_ray_is_asked_for_the_same() -> None:
    further: dict[str, Any] = {"num_gpus": 0.5, "accelerator_type": "A100", "fast_disk": 1}
    assert TaskRequest(2, 5, further).options() == {
        "num_cpus": 2,
        "memory": 5,
        "num_gpus": 0.5,
        "accelerator_type": "A100",
        "resources": {"fast_disk": 1},
    }
    assert TaskRequest(2, None, {}).options() == {"num_cpus": 2}


def test_machines_are_shown_by_what_can_be_asked_for() -> None:
    assert show_machines([LARGE, SMALL, SMALL]) == (
        "2 processors, 4 GB; 8 processors, 16 GB, GPU=2, fast_disk=1"
    )
    assert show_machines([]) == "no machine is there"
