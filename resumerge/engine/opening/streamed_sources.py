"""Checks and notes of ``--stream``: files that cannot be read by ranges, and bytes to fetch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from resumerge.errors import Problem
from resumerge.host.machine import free_bytes
from resumerge.hub.xet import XET_ONLY
from resumerge.planning.estimates.estimate import Estimate
from resumerge.planning.plan import Plan, SourceFileKey
from resumerge.sizes import show_size
from resumerge.sources.remote.files import remote_file
from resumerge.sources.types import Source
from resumerge.tensors import Stored

NOTABLE_SHARE = 1.05
"""A note is shown from this ratio of the bytes to fetch to the bytes of the whole files."""

_WITHOUT_STREAM = (
    "leave out --stream, or use --evict, which downloads files and deletes each in time"
)


def problems_of_streaming(plan: Plan) -> list[Problem]:
    """Return a problem for each streamed file that cannot be read by ranges."""
    stored_tensors = (node for node in plan.nodes() if isinstance(node, Stored))
    reasons = whole_files(stored_tensors, plan.sources)
    return [
        Problem(
            "A file cannot be read by ranges",
            where=remote_file(plan.sources[number], name).where,
            expected="a file that --stream can read",
            found=reason,
            fix=_WITHOUT_STREAM,
        )
        for (number, name), reason in reasons.items()
    ]


def whole_files(
    stored: Iterable[Stored], sources: Mapping[int, Source] | Sequence[Source]
) -> dict[SourceFileKey, str]:
    """Find the streamed files that cannot be read by ranges.

    Args:
        stored: the tensors to read, of streamed files and of others.
        sources: the models, by number.

    Returns:
        the reason for each of these files.
    """
    reasons: dict[SourceFileKey, str] = {}
    for tensor in dict.fromkeys(stored):
        source, file_key = sources[tensor.source], (tensor.source, tensor.file)
        if not source.is_streamed(tensor.file):
            continue
        if tensor.strides is not None:
            reasons.setdefault(file_key, f"the elements of {tensor.name} do not follow each other")
        elif source.part_of(tensor.file)[0].kind == "hub" and (
            source.files[tensor.file].size > XET_ONLY
        ):
            reasons.setdefault(
                file_key, f"the Hub sends files above {show_size(XET_ONLY)} as a whole"
            )
    return reasons


def notes_on_streaming(plan: Plan, estimate: Estimate) -> Iterator[str]:
    """Yield a note if no file is streamed, or if streaming fetches more bytes than downloading."""
    streamed_bytes = estimate.streamed
    if not streamed_bytes:
        yield "--stream has no effect: every model is on this disk already"
        return
    file_bytes = sum(plan.sources[number].files[name].size for number, name in streamed_bytes)
    if sum(streamed_bytes.values()) < NOTABLE_SHARE * file_bytes:
        return
    number, name = next(iter(streamed_bytes))
    available_bytes = free_bytes(remote_file(plan.sources[number], name).cache.absolute())
    has_space = available_bytes >= file_bytes + estimate.disk
    yield (
        f"--stream fetches {show_size(sum(streamed_bytes.values()))}, because something is read "
        f"several times; downloads would be {show_size(file_bytes)}"
        + (", for which there is space on the disk: without --stream less is fetched" * has_space)
    )
