"""The work of each machine of a cluster, from the events of a run's tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from resumerge.event_kinds import EventKind

_KINDS = {
    EventKind.TASK_STARTED: "started",
    EventKind.TASK_FINISHED: "finished",
    EventKind.TASK_FAILED: "failed",
}

UNKNOWN = "unknown"
"""The machine of a task that was lost before its first heartbeat."""


def describe_cluster(events: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the counts of tasks of all attempts: in total, and with their work by machine.

    Args:
        events: the run's events of all kinds, as documents; those of tasks are counted.

    Returns:
        The part ``cluster`` of a run's document; None for a run without tasks.
    """
    tasks = dict.fromkeys(_KINDS.values(), 0)
    nodes: dict[str, dict[str, Any]] = {}
    for event in events:
        if (outcome := _KINDS.get(event["kind"])) is None:
            continue
        data = event["data"]
        tasks[outcome] += 1
        name = str(data.get("node") or UNKNOWN)
        zero_counts = dict.fromkeys(_KINDS.values(), 0)
        blank_entry = {"node": name, **zero_counts, "bytes": 0, "seconds": 0.0, "peak_rss": 0}
        node = nodes.setdefault(name, blank_entry)
        node[outcome] += 1
        if outcome == "finished":
            node["bytes"] += data.get("bytes") or 0
            node["seconds"] += data.get("seconds") or 0.0
            node["peak_rss"] = max(node["peak_rss"], data.get("peak_rss") or 0)
    if not nodes:
        return None
    for node in nodes.values():
        seconds = node["seconds"] = round(node["seconds"], 3)
        node["bytes_per_s"] = round(node["bytes"] / seconds, 1) if seconds else None
    return {"tasks": tasks, "nodes": sorted(nodes.values(), key=lambda node: node["node"])}


def task_peaks(events: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """Return the largest RSS of a task in bytes, by the number of each attempt with tasks."""
    peak_by_attempt: dict[int, int] = {}
    for event in events:
        if event["kind"] == EventKind.TASK_FINISHED and (attempt := event["attempt"]) is not None:
            peak_by_attempt[attempt] = max(
                peak_by_attempt.get(attempt, 0), event["data"].get("peak_rss") or 0
            )
    return peak_by_attempt
