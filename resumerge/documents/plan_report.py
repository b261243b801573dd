"""``resumerge plan``: the report on a merge that has not begun."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from resumerge.accounts import origins
from resumerge.documents.accounts import describe_accounts
from resumerge.documents.choices import choices
from resumerge.engine.checks.companions import are_cached, check_companions
from resumerge.engine.checks.disk import check_disk, check_downloads, disk_needed
from resumerge.engine.checks.memory import fit_threads, memory_budget, too_many_threads
from resumerge.engine.checks.new_run import new_run_problems, step_problems
from resumerge.engine.checks.paths import STATE, check_output_path, check_path
from resumerge.engine.context import RunContext
from resumerge.engine.lifecycle.adopt import recipe_problems
from resumerge.engine.mirror_session.checks import check_apart, check_reachable
from resumerge.engine.opening.pinned_plan import pinned_plan
from resumerge.engine.opening.plan_rows import account_rows
from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.device import device_for
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import InputError, Problem, Resumable
from resumerge.host.host import describe_host
from resumerge.host.machine import existing_folder, free_bytes
from resumerge.host.memory import Memory
from resumerge.host.speed import measure_speed
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.output_path import OutputPath
from resumerge.planning import Estimate, Plan, read_recipe
from resumerge.planning.estimates.estimate import largest_file
from resumerge.sources import Source
from resumerge.storage import Storage


def describe_plan(
    config: Path,
    out: Path | None,
    options: Options,
    progress: str = "auto",
    reporter: Reporter | None = None,
    *,
    every_tensor: bool = False,
) -> dict[str, Any]:
    """Return the document of ``plan --json``; problems are listed in it, not raised.

    Args:
        config: the path of the recipe.
        out: the output, which is checked as ``run`` checks it. If it has a run already, `config` is
            compared with the run's recipe. None to check only the disk of the working folder.
        options: the options. The address of a mirror is checked without a request to the mirror.
        progress: the style in which a run would show its progress.
        reporter: receives a note if a server is slow.
        every_tensor: whether the accounts list every tensor.
    """
    host = describe_host()
    output = None if out is None else OutputPath(out.absolute())
    budget = memory_budget(options.memory, Memory(**host["memory"]))
    document = _described(config, output, options, reporter or Reporter(), budget, every_tensor)
    host["disk"] = document.pop("speed") | {
        "folder": str(_folder(output)),
        "free": document["disk"]["free"],
    }
    chosen_settings = choices(
        host,
        options,
        out=output,
        budget=budget,
        threads=document["threads"],
        progress=progress,
    )
    return {**document, "host": host, "choices": chosen_settings}


def _described(
    config: Path,
    out: OutputPath | None,
    options: Options,
    reporter: Reporter,
    budget: int,
    every_tensor: bool,
) -> dict[str, Any]:
    context = RunContext(options, reporter, Storage(), StopRequest(), RunStore(options.state_dir))
    if path_problems := [*check_path(context.runs.folder, STATE), *_unusable(out)]:
        return _nothing(budget, None, path_problems)
    problems = _mirror_problems(context, out)
    try:
        earlier_runs = context.runs.of_output(out.path) if out is not None else []
        recipe = read_recipe(config)
        plan, estimate = pinned_plan(context, recipe, out)
    except InputError as error:
        return _nothing(budget, out, error.problems)
    except Resumable as error:
        message, *advice = str(error).split("\n")
        return _nothing(budget, out, [Problem(message, where=str(config), fix=" ".join(advice))])
    if are_cached(plan):
        try:
            model_name = out.model if out is not None else "model"
            plan = plan.with_reminders(check_companions(context, plan, model_name))
        except InputError as error:
            problems += error.problems
    bytes_needed = _still_needed(context, plan, estimate, out)
    if out is not None and not earlier_runs:
        problems += (
            problem
            for problem in new_run_problems(context, plan, estimate, out)
            if problem not in problems
        )
    else:
        with suppress(OSError, sqlite3.Error):  # `run` repairs or refuses a damaged ledger
            problems += (
                problem
                for run in earlier_runs[-1:]
                for problem in recipe_problems(context, run, recipe)
            )
        problems += _space_problems(context, plan, estimate, _folder(out), bytes_needed)
    threads, device_notes, thread_problems = _threads(estimate, options, budget)
    folder = existing_folder(_folder(out))
    speed = measure_speed(largest_file(plan, estimate), folder, computes=estimate.time.computes)
    prediction = estimate.on_machine(threads, speed)
    return {
        **_contents(plan, estimate),
        "linked": _linked(context, plan, out),
        "memory": {"predicted_peak_rss": prediction.need.peak_rss, "budget": budget},
        "disk": {
            "needed": disk_needed(
                plan, estimate, _folder(out), bytes_needed, evict=bool(options.evict)
            ),
            "free": free_bytes(_folder(out)),
        },
        "time": {"estimate_s": prediction.seconds, "basis": prediction.basis},
        "accounts": _accounts(plan, every_tensor=every_tensor),
        "threads": threads,
        "notes": [*plan.notes, *estimate.notes, *device_notes, *too_many_threads(options.threads)],
        "problems": [asdict(problem) for problem in (*problems, *thread_problems)],
        "speed": {"read_bytes_per_s": speed.read, "write_bytes_per_s": speed.write},
    }


def _linked(context: RunContext, plan: Plan, out: OutputPath | None) -> dict[str, int]:
    """Return the count and bytes of shards that will be hard links to a model's files."""
    files = context.shard_files(plan, _folder(out))
    linked = [shard.nbytes for shard in plan.shards if files.will_link(shard)]
    return {"shards": len(linked), "bytes": sum(linked)}


def _contents(plan: Plan, estimate: Estimate) -> dict[str, Any]:
    """Return the part of the report that is the same on any machine."""
    copied_shards = [shard for shard in plan.shards if shard.copied is not None]
    return {
        "units": len(plan.units),
        "tensors": estimate.tensors,
        "output_bytes": estimate.output,
        "shards": len(plan.shards),
        "copied": {
            "shards": len(copied_shards),
            "bytes": sum(shard.nbytes for shard in copied_shards),
        },
        "read_bytes": sum(estimate.read.values()),
        "outputs": [
            {"name": name, "bytes": variant.output_bytes, "shards": len(variant.shards)}
            for name, variant in plan.variants.items()
        ],
        "download": {
            "bytes": estimate.download,
            "files": len(estimate.missing),
            "cached_bytes": estimate.cached,
            "streamed_bytes": sum(estimate.streamed.values()),
        },
        "sources": [_source(plan, estimate, number) for number in range(len(plan.sources))],
        "stages": [_stage(plan, model) for model in plan.stage_models],
        "method": plan.method,
        "layers": [
            list(origin.inputs) for layer_map in plan.layer_maps[:1] for origin in layer_map.origins
        ],
        "stacks": dict(plan.layers.counts),
        "layer_maps": [
            {
                "stack": layer_map.stack,
                "layers": [list(origin.inputs) for origin in layer_map.origins],
            }
            for layer_map in plan.layer_maps
        ],
        "largest_unit": {"name": estimate.largest.name, "bytes": estimate.largest.nbytes},
    }


def _threads(
    estimate: Estimate, options: Options, budget: int
) -> tuple[int, list[str], list[Problem]]:
    """Return the threads that fit into the budget, notes on the device, and problems with both."""
    device_notes: list[str] = []
    problems: list[Problem] = []
    try:
        device_notes = device_for(estimate, options.device)[1]
    except InputError as error:
        problems += error.problems
    try:
        return (
            fit_threads(estimate.memory, options.threads, budget, options.memory),
            device_notes,
            problems,
        )
    except InputError as error:
        return 1, device_notes, [*problems, *error.problems]


def _space_problems(
    context: RunContext, plan: Plan, estimate: Estimate, target: Path, needed: int
) -> Iterator[Problem]:
    """Yield the problems of disks and steps, for an existing run or without an output."""
    options = context.options
    yield from check_disk(
        target, needed, then_delete=context.frees_shards, cluster=options.ray is not None
    )
    yield from check_downloads(
        plan, estimate, target, needed, offline=options.offline, evict=bool(options.evict)
    )
    yield from step_problems(estimate.steps, context.stop)


def _still_needed(
    context: RunContext, plan: Plan, estimate: Estimate, out: OutputPath | None
) -> int:
    """Return the free bytes that the output needs, without the allocated bytes of its shards."""
    if out is None or context.frees_shards:
        return estimate.disk
    files = context.shard_files(plan, out.folder)
    allocated_bytes = sum(shard.nbytes - files.unallocated(shard) for shard in plan.shards)
    return max(0, estimate.disk - allocated_bytes)


def _mirror_problems(context: RunContext, out: OutputPath | None) -> list[Problem]:
    """Return the problems with the mirror's address.

    An invalid address is removed from the context's options.
    """
    if context.options.mirror is None:
        return []
    try:
        mirror = context.open_mirror(context.options.mirror)
    except InputError as error:
        context.options = replace(context.options, mirror=None)
        return error.problems
    overlap_problems = check_apart(out, mirror) if out is not None else []
    return overlap_problems or check_reachable(mirror)


def _unusable(out: OutputPath | None) -> list[Problem]:
    return [] if out is None else check_output_path(out)


def _folder(out: OutputPath | None) -> Path:
    return Path.cwd() if out is None else out.folder


def _accounts(plan: Plan, *, every_tensor: bool) -> dict[str, Any]:
    document = describe_accounts(account_rows(plan.accounts), every=every_tensor)
    if every_tensor:
        document["outputs"] = [
            {
                "name": origin.name,
                "from": [{"model": model, "tensor": name} for model, name in origin.tensors],
                "generated": origin.generated,
            }
            for origin in origins(plan.sources, plan.tensors())
        ]
    return document


def _source(plan: Plan, estimate: Estimate, number: int) -> dict[str, Any]:
    source = plan.sources[number]
    return {
        "model": source.ref.text,
        "kind": source.kind,
        "revision": source.revision,
        "bytes_needed": sum(estimate.read_of(number).values()),
        "streamed_bytes": estimate.streamed_of(number),
    }


def _stage(plan: Plan, model: Source) -> dict[str, Any]:
    """Return the method and models of a stage, or of a stage that an adapter changes."""
    recipe = next(
        (stage.recipe for stage in plan.stages if stage.recipe.name == model.ref.text), None
    )
    models = recipe.models if recipe is not None else model.ref.parts
    return {
        "model": model.ref.text,
        "method": recipe.merge_method if recipe is not None else "adapter",
        "models": [ref.text for ref in models],
    }


def _nothing(budget: int, out: OutputPath | None, problems: Sequence[Problem]) -> dict[str, Any]:
    """Return the document of a recipe that cannot be planned."""
    return {
        "units": 0,
        "tensors": 0,
        "output_bytes": 0,
        "shards": 0,
        "copied": {"shards": 0, "bytes": 0},
        "linked": {"shards": 0, "bytes": 0},
        "read_bytes": 0,
        "outputs": [],
        "memory": {"predicted_peak_rss": 0, "budget": budget},
        "disk": {"needed": 0, "free": free_bytes(_folder(out))},
        "download": {"bytes": 0, "files": 0, "cached_bytes": 0, "streamed_bytes": 0},
        "time": {"estimate_s": 0.0, "basis": "nothing could be planned"},
        "sources": [],
        "stages": [],
        "method": None,
        "layers": [],
        "stacks": {},
        "layer_maps": [],
        "largest_unit": None,
        "accounts": {"sources": []},
        "threads": None,
        "notes": [],
        "problems": [asdict(problem) for problem in problems],
        "speed": {"read_bytes_per_s": None, "write_bytes_per_s": None},
    }
