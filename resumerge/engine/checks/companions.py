"""Check the companions: before a run begins, read every file that its end will read."""

from __future__ import annotations

from pathlib import Path

from resumerge.engine.context import RunContext
from resumerge.errors import refuse
from resumerge.output import companion_damage, companions
from resumerge.planning import Plan
from resumerge.sources import Source
from resumerge.tokenizers.origin import tokenizer_part


def check_companions(context: RunContext, plan: Plan, name: str) -> list[str]:
    """Generate every companion as the end of the run does, and read every file that is copied.

    Files of Hub models that are not in the cache are downloaded, since they are small.

    Args:
        context: its metadata cache serves to read remote files; with `offline`, none is downloaded.
        plan: the plan of a new or an existing run; if it is of a sweep, each variant's files are
            read.
        name: the name that the model's card will show.

    Returns:
        a reminder for each damaged file that is copied nevertheless.

    Raises:
        InputError: a file cannot be read; or it is damaged, and the run needs to edit it.
        Resumable: the network failed.
    """
    context.reporter.doing("reading the files beside the weights")
    reminders = []
    copied_files: dict[Path, str] = {}
    for model_plan in plan.variants.values() or (plan,):
        model_files = companions(
            model_plan, name, context.metadata, {}, offline=context.options.offline
        )
        copied_files |= {
            content: file_name for file_name, content in model_files if isinstance(content, Path)
        }
    for path, file_name in copied_files.items():
        if damage := _damage(path, file_name):
            reminders.append(
                f"{path} is damaged ({damage}): download or save it again, or it is copied as it is"
            )
    return reminders


def are_cached(plan: Plan) -> bool:
    """Return whether `check_companions` needs no downloads."""
    reference = plan.reference_model
    needed_sources = [reference.carrier, tokenizer_part(reference)]
    if plan.vocabulary is not None:
        needed_sources.append(plan.vocabulary.host.source)
    return all(map(_is_cached, needed_sources))


def _is_cached(source: Source) -> bool:
    return all(file.present for file in source.companions.values())


def _damage(path: Path, name: str) -> str | None:
    try:
        return companion_damage(path, name)
    except OSError as error:
        raise refuse(
            "A file beside the weights cannot be read",
            where=str(path),
            expected="a file that can be copied into the output",
            found=error.strerror or str(error),
            fix="change its permissions, or remove it",
        ) from None
