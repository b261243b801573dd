"""Whether a run can be computed on a Ray cluster."""

from __future__ import annotations

import socket
from importlib.util import find_spec

from resumerge.errors import Problem
from resumerge.option_types import LOCAL_CLUSTER
from resumerge.options import Options
from resumerge.output_path import OutputPath
from resumerge.planning import Plan
from resumerge.planning.estimates.memory import steps_of_plan

CONNECT_SECONDS = 10.0


def check_cluster(options: Options, plan: Plan, out: OutputPath | None) -> list[Problem]:
    """What does not go together with ``--ray``, and whether the cluster can be reached.

    Args:
        out: None where no output is named.
    """
    if options.ray is None:
        return _without_cluster(options)
    problems = []
    if find_spec("ray") is None:
        problems.append(
            Problem(
                "Ray is not installed",
                expected="ray, for --ray",
                fix="pip install 'resumerge[ray]', here and on every machine of the cluster",
            )
        )
    for name, given, why in (
        (
            "--mirror-then-delete",
            options.mirror_then_delete,
            "shards stay in OUT, where tasks publish them",
        ),
        ("--evict", options.evict, "each machine downloads to its own cache"),
    ):
        if given:
            problems.append(
                Problem(
                    f"--ray and {name} cannot be combined",
                    expected=why,
                    found=f"--ray {options.ray} {name}",
                    fix=f"leave {name} out, or --ray",
                )
            )
    if out is not None and out.is_file:
        problems.append(
            Problem(
                "A single file is computed by one machine",
                where=str(out),
                expected="with --ray, an output that is a folder",
                found="the name of a file",
                fix="leave --ray out",
            )
        )
    if any(step.libraries for step in steps_of_plan(plan)):  # others a task does again, to the bit
        problems.append(
            Problem(
                "Gates from hidden states are computed by one machine",
                expected="with --ray, a recipe without gates of hidden states",
                found=plan.merged,
                fix="leave --ray out, or name another gate_mode",
            )
        )
    return problems or _unreachable(options.ray)


def _without_cluster(options: Options) -> list[Problem]:
    if options.ray_resources is None:
        return []
    return [
        Problem(
            "--ray-resources needs --ray",
            found=f"--ray-resources {options.ray_resources}",
            fix="add --ray, or leave it out",
        )
    ]


def _unreachable(address: str) -> list[Problem]:
    """Whether nothing listens at the address; what listens is looked at by Ray, later."""
    host, colon, port = address.rpartition(":")
    if not colon or address == LOCAL_CLUSTER:
        return []
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS):
            return []
    except (OSError, OverflowError, ValueError) as error:
        return [
            Problem(
                "The Ray cluster cannot be reached",
                where=address,
                expected="the address and the port of its head, like 10.0.0.1:6379",
                found=str(error),
                fix="start it with `ray start --head`, or name the address that this prints",
            )
        ]
