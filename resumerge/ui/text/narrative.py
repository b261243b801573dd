"""The history of a run, in sentences."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from resumerge.documents.history import History, Lifetime
from resumerge.event_kinds import EventKind
from resumerge.sizes import counted, show_range, show_seconds, show_size
from resumerge.ui.text.format import is_output_in_bucket

LAST_ATTEMPTS = 4
"""The most attempts with a sentence of their own. Earlier attempts are counted by outcome."""

NOTABLE_SHARE = 0.05
"""The least share of the available memory, taken by other processes, that is mentioned."""

_ENDS = {
    "oom": "The kernel killed attempt {n} because memory ran out",
    "killed": "Attempt {n} was killed",
    "interrupted": "Attempt {n} was stopped by a signal",
    "error": "Attempt {n} stopped",
}
_SUMMED_ENDS = {
    "oom": "out of memory",
    "killed": "killed",
    "interrupted": "stopped by a signal",
    "error": "stopped",
}
_DEATHS = {EventKind.WORKER_KILLED, EventKind.WORKER_CRASHED, EventKind.WORKER_STALLED}
"""The kinds of events about the death of an attempt's process."""

WITH_FACTS = {
    EventKind.LIMIT_LOWERED,
    EventKind.LIMIT_RAISED,
    EventKind.STOPPED,
    EventKind.STREAMED,
    *_DEATHS,
}
"""The kinds of events whose sentence contains facts. A function like `_streamed` makes it."""

UNTOLD = {EventKind.MEMORY_WAIT_ENDED, EventKind.TASK_STARTED, EventKind.TASK_FINISHED}
"""The kinds of events without a sentence. `MEMORY_AWAITED` covers the first; tasks are counted."""

_FIGURE = re.compile(r"[0-9.]+ ?(%|[kMG]?B\b)?")
"""A number with its unit. Reasons that differ only in numbers are counted together."""

_SENTENCES: Mapping[str, str] = {
    EventKind.MEMORY_AWAITED: "The run waited for memory, because there was not enough to continue",
    EventKind.MEMORY_GIVEN_UP: "The run stopped, because memory was still short after waiting",
    EventKind.FILE_SET_ASIDE: (
        "A file that was not from this run had the name of an output file, and was renamed"
    ),
    EventKind.FILE_KEPT: "A model card that was not from this run was left unchanged",
    EventKind.SOURCE_TOUCHED: (
        "A source file had a new modification time; what was read of it before was the same"
    ),
    EventKind.SOURCES_TRUSTED: (
        "Source files had a new modification time, and were not compared (--trust-sources)"
    ),
    EventKind.SOURCE_CHANGED: "A source file changed while it was being merged",
    EventKind.SOURCE_DIFFERS: "Tensors were computed again from a source file that had changed",
    EventKind.RECHECKED: "Data that was committed before an interruption was checked again",
    EventKind.SOURCE_DAMAGED: (
        "A cached source file was damaged; what was computed from it is computed again"
    ),
    EventKind.DOWNLOAD_DAMAGED: "A download did not match its hash, and was repeated",
    EventKind.DOWNLOAD_EVICTED: "Downloads that were no longer needed were deleted",
    EventKind.SHARD_LOST: "A shard was missing or truncated, and its tensors were computed again",
    EventKind.SHARD_FOUND_WHOLE: "A shard was complete, but not yet recorded as sealed",
    EventKind.RANKS_CHOSEN: "All changes were known, and the ranks were chosen by them",
    EventKind.CHECKSUM_MISMATCH: (
        "Tensors on disk did not match their checksums, and were computed again"
    ),
    EventKind.STEP_LOST: (
        "What a step had computed was missing or damaged on disk, and the step began again"
    ),
    EventKind.VERIFY_FOUND_DAMAGE: "`verify` found damaged tensors",
    EventKind.LEDGER_RESTORED: "The ledger was damaged, and was restored from its snapshot",
    EventKind.LEDGER_RECONCILED: "Everything on disk was compared with the restored ledger",
    EventKind.MOVED_HERE: "The run was imported to this machine from its {mirror}",
    EventKind.SHARD_FROM_MIRROR: "A shard that another machine had copied to the {mirror} was used",
    EventKind.BROUGHT_BACK: "Shards were copied back from the {mirror}",
    EventKind.MIRROR_DAMAGED: "A file was missing or damaged in the {mirror}",
    EventKind.MIRROR_LOST_FILE: "A file was missing from the {mirror}, and was copied there again",
    EventKind.MIRROR_LACKS: (
        "The {mirror} of the finished run lacked files, and they were copied there again"
    ),
    EventKind.MIRROR_FAILING: "The {mirror} failed",
    EventKind.MIRROR_RECOVERED: "The {mirror} worked again",
    EventKind.TASK_FAILED: "A task on the cluster failed",
    EventKind.SHARD_ADOPTED: "A shard that a task had published before its driver ended was used",
    EventKind.SHARD_OF_SWEEP: "A shard was computed together with those of other models",
    EventKind.HASH_CONFLICT: "Two machines computed different bytes, and the run stopped",
    EventKind.LEDGER_DAMAGED: "The ledger and its snapshot are damaged",
}


def narrative_of(run: Mapping[str, Any], history: History) -> list[str]:
    """Return sentences about a run, the most important ones first.

    Args:
        run: one of the runs of ``resumerge status --json``.
        history: the samples of the same run, for the sentences on memory.
    """
    return [
        *_ends(run),
        *_batches(run["events"]),
        *_memory_of_others(history),
        *_over_budget(history),
        *_streamed(run["events"]),
        *_other_events(run),
    ]


def _ends(run: Mapping[str, Any]) -> list[str]:
    attempts = run["attempts"]
    ended_pairs = [
        (attempt, next_attempt)
        for attempt, next_attempt in zip(attempts, [*attempts[1:], None])
        if attempt["outcome"]
    ]
    unfinished_pairs = [
        (attempt, next_attempt)
        for attempt, next_attempt in ended_pairs
        if attempt["outcome"] != "done"
    ]
    sentences = [
        _end(attempt, next_attempt, run["events"])
        for attempt, next_attempt in unfinished_pairs[-LAST_ATTEMPTS:]
    ]
    earlier_outcomes = Counter(
        attempt["outcome"] for attempt, _ in unfinished_pairs[:-LAST_ATTEMPTS]
    )
    if earlier_outcomes:
        outcomes = ", ".join(
            f"{_SUMMED_ENDS.get(outcome, outcome)} {_times(count)}"
            for outcome, count in earlier_outcomes.items()
        )
        sentences.insert(0, f"Earlier attempts: {outcomes}.")
    return sentences


def _end(
    attempt: Mapping[str, Any], after: Mapping[str, Any] | None, events: Sequence[Mapping[str, Any]]
) -> str:
    text = _ENDS.get(attempt["outcome"], f"Attempt {{n}} ended: {attempt['outcome']}")
    text = text.format(n=attempt["n"])
    if cause := _why(attempt, events):
        text += f" ({cause})"
    if after is None:
        return f"{text}."
    budget, budget_before = after.get("budget"), attempt.get("budget")
    new_budget = (
        f" with a budget of {show_size(budget)}" if budget and budget != budget_before else ""
    )
    return f"{text}; attempt {after['n']} resumed{new_budget}."


def _why(attempt: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> str:
    """Return the cause of the death of an attempt's process, or the first line of its last error.

    The text is empty if neither is recorded.
    """
    attempt_events = [event for event in events if event.get("attempt") == attempt["n"]]
    for data in (event["data"] for event in reversed(attempt_events) if event["kind"] in _DEATHS):
        if data.get("cause") == "stall":
            waiting_text = f": it {data['waited_for']}" if data.get("waited_for") else ""
            return f"no progress for {show_seconds(data.get('seconds') or 0.0)}{waiting_text}"
        if data.get("cause") != "oom" and data.get("signal"):
            return str(data["signal"])
    reasons = [
        str(event["data"].get("reason", ""))
        for event in attempt_events
        if event["kind"] == EventKind.STOPPED
    ]
    return reasons[-1].split("\n")[0].rstrip(".") if reasons else ""


def _batches(events: Sequence[Mapping[str, Any]]) -> list[str]:
    lowered_data = [event["data"] for event in events if event["kind"] == EventKind.LIMIT_LOWERED]
    raised_data = [event["data"] for event in events if event["kind"] == EventKind.LIMIT_RAISED]
    if not lowered_data:
        return []
    least_size = min((data["after"] for data in lowered_data if data.get("after")), default=0)
    groups: dict[str, list[str]] = {}
    for reason in (str(data.get("reason", "")) for data in lowered_data):
        groups.setdefault(_FIGURE.sub("", reason), []).append(reason)
    top_two = sorted((group for key, group in groups.items() if key), key=len, reverse=True)[:2]
    reasons = "; ".join(
        group[-1] + (f" ({_times(len(group))})" if len(groups) > 1 else "") for group in top_two
    )
    return [
        f"The batch size was lowered {_times(len(lowered_data))}"
        + (f", down to {show_size(least_size)}" if least_size else "")
        + (f": {reasons}" if reasons else "")
        + (f"; it was raised {_times(len(raised_data))}" if raised_data else "")
        + "."
    ]


def _memory_of_others(history: History) -> list[str]:
    """Return a sentence about the memory that other processes took, if it was a notable amount."""
    notable_falls = []
    for lifetime in history.lifetimes:
        taken_bytes, freed_bytes = memory_fall(lifetime)
        highest = max((point.left_high for point in lifetime.points), default=0)
        if highest and taken_bytes >= NOTABLE_SHARE * highest:
            freed_text = (
                f", and freed {show_size(freed_bytes)}" if freed_bytes >= taken_bytes / 10 else ""
            )
            notable_falls.append((taken_bytes, f"while attempt {lifetime.n} ran{freed_text}"))
    if not notable_falls:
        return []
    taken_bytes, occasion = max(notable_falls)
    frequency_text = (
        f" This happened in {len(notable_falls)} attempts." if len(notable_falls) > 1 else ""
    )
    return [f"Other processes took {show_size(taken_bytes)} of memory {occasion}.{frequency_text}"]


def memory_fall(lifetime: Lifetime) -> tuple[int, int]:
    """Return the largest fall of available memory, and the later recovery of it, in bytes."""
    highest = fall = lowest = recovered = 0
    for point in lifetime.points:
        highest = max(highest, point.left_high)
        if highest - point.left_low > fall:
            fall, lowest, recovered = highest - point.left_low, point.left_low, 0
        recovered = max(recovered, point.left_high - lowest) if fall else 0
    return fall, min(recovered, fall)


def _over_budget(history: History) -> list[str]:
    over = [p.rss_high - p.budget for p in history.points if p.budget and p.rss_high > p.budget]
    return [f"Memory exceeded the budget by up to {show_size(max(over))}."] if over else []


def _streamed(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence about the streamed bytes of all attempts, if there are any."""
    totals_of_attempts = [event["data"] for event in events if event["kind"] == EventKind.STREAMED]
    if not totals_of_attempts:
        return []
    fetched_bytes, requests = (
        sum(data.get(name) or 0 for data in totals_of_attempts) for name in ("bytes", "requests")
    )
    attempts_text = (
        f" in {counted(len(totals_of_attempts), 'attempt')}" if len(totals_of_attempts) > 1 else ""
    )
    return [
        f"Models were read from their servers by ranges, and not stored (--stream): "
        f"{show_size(fetched_bytes)} by {counted(requests, 'request')}{attempts_text}."
    ]


def _other_events(run: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each other kind of event. A kind without a text is named."""
    handled_kinds = WITH_FACTS | UNTOLD
    count_by_kind = Counter(
        event["kind"] for event in run["events"] if event["kind"] not in handled_kinds
    )
    mirror = "output" if is_output_in_bucket(run) else "mirror"
    return [
        (_SENTENCES.get(kind, "").format(mirror=mirror) or kind.replace("_", " ").capitalize())
        + (f" ({_times(count)})" if count > 1 else "")
        + "."
        for kind, count in count_by_kind.items()
    ]


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def state_sentence(run: Mapping[str, Any]) -> str:
    """Return one sentence about the state of a run."""
    attempts, units = run["attempts"], run["units"]
    attempts_text = counted(len(attempts), "attempt")
    if run["state"] == "done":
        deletion_text = ", but its output was deleted" if run["output_deleted"] else ""
        return f"Done in {attempts_text}{deletion_text}."
    if run["state"] == "running":
        seconds_left = run["eta_s"]
        return f"Running, {attempts_text}" + (
            f", about {show_range(seconds_left, seconds_left)} left."
            if seconds_left is not None
            else "."
        )
    if run["state"] == "planned":
        return "Planned, not started."
    tensors_left = units["total"] - units["committed"]
    return (
        f"Not finished: {counted(tensors_left, 'tensor')} "
        f"{'is' if tensors_left == 1 else 'are'} left."
    )
