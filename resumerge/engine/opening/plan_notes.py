"""The notes on a plan that depend on options, on the disk, or on several documents of a recipe."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from resumerge.engine.context import RunContext
from resumerge.engine.opening.streamed_sources import notes_on_streaming
from resumerge.output_path import OutputPath
from resumerge.planning import Estimate, Plan
from resumerge.sources.companions import outward_links


def notes_for_user(
    context: RunContext, plan: Plan, estimated: Estimate, out: OutputPath | None
) -> Iterator[str]:
    """Yield the notes on a plan, for the user.

    Args:
        context: its options decide which of the notes apply.
        plan: the whole plan, with its stages, before its `notes` are replaced by these.
        estimated: the estimate of `plan`, with the bytes to stream.
        out: the run's output; None if the command names no output.
    """
    options = context.options
    yield from _notes_of_stages(plan)
    yield from plan.notes
    yield from _notes_on_links(plan)
    if options.shard_size is not None:
        yield from _notes_on_shard_size(plan, is_gguf=out is not None and out.is_gguf)
    if options.link:
        yield from _notes_on_hard_links(context, plan, out)
    if options.stream:
        yield from notes_on_streaming(plan, estimated)


def _notes_of_stages(plan: Plan) -> Iterator[str]:
    """Yield the notes of stages that the last document does not repeat.

    A stage's reminders are omitted: they are about files that its result lacks, and that the output
    does not need.
    """
    for stage in plan.stages:
        for note in stage.notes:
            if note not in (*stage.reminders, *plan.notes):
                yield f"{stage.recipe.name}: {note}"


def _notes_on_shard_size(plan: Plan, *, is_gguf: bool) -> Iterator[str]:
    if is_gguf:
        yield "--shard-size is ignored: a model in GGUF is one file"
    elif plan.reference_model.single:
        yield f"--shard-size is ignored: the output is one file, as {plan.reference_model.ref} is"


def _notes_on_hard_links(context: RunContext, plan: Plan, out: OutputPath | None) -> Iterator[str]:
    copied_shards = [shard for shard in plan.shards if shard.copied is not None]
    files = context.shard_files(plan, Path.cwd() if out is None else out.folder)
    if not copied_shards:
        yield "--link has no effect: no file of the output is a copy of a model's file"
    elif not any(map(files.will_link, copied_shards)):
        yield "--link has no effect: the output is not on the disk of the model, or it is streamed"


def _notes_on_links(plan: Plan) -> Iterator[str]:
    for part in plan.reference_model.parts.values():
        is_folder = part.kind == "local" and not part.single
        link_names = outward_links(part.folder, part.components) if is_folder else []
        if link_names:
            yield (
                f"not copied: {', '.join(link_names)}, which are links to files outside of "
                f"{part.folder}; to have them in the output, replace the links with the files"
            )
