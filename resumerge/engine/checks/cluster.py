"""Check that a run can be computed on a Ray cluster."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from resumerge.buckets.address import is_bucket
from resumerge.engine.context import RunContext
from resumerge.engine.shards.shard_files import TASKS
from resumerge.errors import Problem
from resumerge.mirror.stores.registry import has_scheme
from resumerge.options import Options
from resumerge.options.cluster import LOCAL_CLUSTER
from resumerge.output_path import OutputPath
from resumerge.planning import Plan
from resumerge.planning.estimates.estimate import Estimate

CONNECT_SECONDS = 10.0

_FOLDER = "a folder: one that all machines share can be OUT itself, and needs no mirror"
_OTHER_STORE = "another store: the Hub, for example, allows too few commits an hour for tasks"


def check_cluster(
    options: Options, plan: Plan, estimate: Estimate, out: OutputPath | None
) -> list[Problem]:
    """Return the problems of ``--ray``: conflicting options or plans, or no cluster at the address.

    Args:
        options: the options, with those that the command inherits from an existing run.
        plan: the plan of the run; plans that only one machine can compute are problems.
        estimate: the estimate of `plan`, with its steps.
        out: the output; None if the command names none.
    """
    if options.ray is None:
        return _without_cluster(options)
    problems = [
        *_conflicting_options(options),
        *_work_of_one_machine(plan, estimate),
        *_place_of_output(options, out),
    ]
    return problems or _connected_elsewhere(options.ray) or _unreachable(options.ray)


def _conflicting_options(options: Options) -> Iterator[Problem]:
    if find_spec("ray") is None:
        yield Problem(
            "Ray is not installed",
            expected="ray, for --ray",
            fix="pip install 'resumerge[ray]', here and on every machine of the cluster",
        )
    if options.evict:
        yield Problem(
            "--ray and --evict cannot be combined",
            expected="each machine downloads to its own cache",
            found=f"--ray {options.ray} --evict",
            fix="write --no-evict, or leave --ray out",
        )
    if options.link:
        yield Problem(
            "--ray and --link cannot be combined",
            expected="each machine has models of its own",
            found=f"--ray {options.ray} --link",
            fix="leave one of them out",
        )
    if options.mirror and options.mirror_then_delete and not puts_into_bucket(options):
        yield Problem(
            "--ray and --mirror-then-delete need a mirror in a bucket",
            where=options.mirror,
            expected="s3://, gs:// or az://bucket/prefix, where each machine puts its shards",
            found=_OTHER_STORE if has_scheme(options.mirror) else _FOLDER,
            fix="name a bucket; or leave --mirror-then-delete out, and have all machines share OUT",
        )


def _work_of_one_machine(plan: Plan, estimate: Estimate) -> Iterator[Problem]:
    if plan.variants:
        yield Problem(
            "Several models are computed by one machine, which reads for all of them at once",
            expected="with --ray, a recipe without 'sweep' and 'average'",
            found=plan.merged,
            fix="leave --ray out; or run the recipe of each variant by itself",
        )
    if plan.adapter is not None and plan.adapter.highest:
        yield Problem(
            "An adapter whose ranks its changes choose is computed by one machine",
            expected="with --ray, an extraction without energy and sv_epsilon",
            found=plan.merged,
            fix="leave --ray out; or leave energy and sv_epsilon out, and name max_rank alone",
        )
    # A task can compute any other step again, and gets the same bits.
    if any(step.libraries for step in estimate.steps):
        yield Problem(
            "Gates from hidden states are computed by one machine",
            expected="with --ray, a recipe without gates of hidden states",
            found=plan.merged,
            fix="leave --ray out, or name another gate_mode",
        )


def _place_of_output(options: Options, out: OutputPath | None) -> Iterator[Problem]:
    if out is not None and out.is_file:
        yield Problem(
            "A single file is computed by one machine",
            where=str(out),
            expected="with --ray, an output that is a folder",
            found="the name of a file",
            fix="leave --ray out",
        )
    elif out is not None and not puts_into_bucket(options):
        yield from _folder_of_tasks(out.folder / TASKS)


def most_shards_here(context: RunContext) -> int | None:
    """Return the most shards that are on this machine's disk at once; None for all shards."""
    if not context.frees_shards:
        return None
    return 0 if puts_into_bucket(context.options) else 1


def puts_into_bucket(options: Options) -> bool:
    """Return whether a cluster's tasks upload shards to a bucket, and no disk keeps them."""
    is_mirror_in_bucket = options.mirror is not None and is_bucket(options.mirror)
    return options.ray is not None and is_mirror_in_bucket and bool(options.mirror_then_delete)


def _folder_of_tasks(folder: Path) -> list[Problem]:
    """Return a problem if the folder of cluster tasks cannot be created in the output."""
    if not os.path.lexists(folder) or (folder.is_dir() and not folder.is_symlink()):
        return []
    return [
        Problem(
            "Cannot create the tasks' folder in the output",
            where=str(folder),
            expected="a folder, or nothing of this name",
            found="a link" if folder.is_symlink() else "a file",
            fix="move it away, or name another output",
        )
    ]


def _connected_elsewhere(address: str) -> list[Problem]:
    """Return a problem if this process is already connected to another cluster.

    A caller in Python may have connected it. Ray supports one cluster at a time.
    """
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized() or address == "auto":
        return []
    connected_address = str(ray.get_runtime_context().gcs_address)
    if address != LOCAL_CLUSTER and _resolved(address) == _resolved(connected_address):
        return []
    return [
        Problem(
            "This process is connected to a Ray cluster already",
            where=connected_address,
            expected=f"no connection, or one to {address}",
            found=f"ray={address!r}",
            fix='give ray="auto", which uses that connection, or call ray.shutdown() before',
        )
    ]


def _resolved(address: str) -> tuple[str, str]:
    """Return the host in the form that Ray uses, and the port."""
    host, _, port = address.rpartition(":")
    with suppress(OSError):
        host = socket.gethostbyname(host.strip("[]"))
    return host, port


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
    """Return a problem if nothing listens at the address. Ray itself is checked on connection."""
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
