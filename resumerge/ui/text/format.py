"""The times, events, mirror and cluster of a run's document, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resumerge.buckets.address import is_bucket
from resumerge.printable import printable
from resumerge.sizes import counted, show_size

_BYTES = {"before", "after", "rss", "available", "budget", "peak_rss"}
"""The facts of events that are in bytes, beside those with "bytes" in their names."""


def format_time(at: str | None) -> str:
    """Return a time of the ledger (ISO 8601) as ``2026-11-21 15:29:04``, in UTC; empty for None."""
    return printable((at or "")[:19].replace("T", " "))


def format_event(event: Mapping[str, Any]) -> str:
    """Return the data of an event of any kind, as one line of text."""
    data = dict(event["data"])
    parts = [str(data.pop("reason").split("\n")[0])] if isinstance(data.get("reason"), str) else []
    data.pop("reason", None)
    if {"before", "after"} <= data.keys():
        parts.append(
            f"{_format('before', data.pop('before'))} to {_format('after', data.pop('after'))}"
        )
    if isinstance(data.get("units"), int):
        parts.append(counted(data.pop("units"), "tensor"))
    parts += [f"{key.replace('_', ' ')} {_format(key, value)}" for key, value in data.items()]
    return printable(", ".join(parts))


def _format(key: str, value: object) -> str:
    if isinstance(value, int) and (key in _BYTES or "bytes" in key):
        return show_size(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def is_output_in_bucket(run: Mapping[str, Any]) -> bool:
    """Return whether a run's output is in a bucket. Texts then call its mirror the bucket."""
    mirror = run.get("mirror")
    return mirror is not None and run["output"] == mirror["url"] and is_bucket(mirror["url"])


def format_mirror(run: Mapping[str, Any]) -> str:
    """Return one line about the mirror of a run; empty for a run without a mirror."""
    mirror = run.get("mirror")
    if not mirror:
        return ""
    text = (
        f"{mirror['url']}: {mirror['shards']} of {run['shards']['total']} shards, "
        f"{show_size(mirror['bytes'])}"
    )
    if mirror["held_by"]:
        text += f"; in use by {mirror['held_by']}"
    return text + (f"; failing: {mirror['failing']}" if mirror["failing"] else "")


def format_cluster(run: Mapping[str, Any]) -> list[str]:
    """Return a line about all tasks of a run, then a line for each machine; empty without tasks."""
    cluster = run.get("cluster")
    if not cluster:
        return []
    tasks = cluster["tasks"]
    total = f"{counted(len(cluster['nodes']), 'machine')}, {_tasks(tasks)}"
    return [total, *map(_node, cluster["nodes"])]


def _node(node: Mapping[str, Any]) -> str:
    peak = f", peak memory of a task {show_size(node['peak_rss'])}" if node["peak_rss"] else ""
    return f"{node['node']}: {_tasks(node)}{_speed(node)}{peak}"


def _tasks(counts: Mapping[str, int]) -> str:
    failed_text = f", {counts['failed']} failed" if counts["failed"] else ""
    running_count = counts["started"] - counts["finished"] - counts["failed"]
    running_now = f", {running_count} running or lost" if running_count > 0 else ""
    return f"{counted(counts['finished'], 'task')} finished{failed_text}{running_now}"


def _speed(node: Mapping[str, Any]) -> str:
    speed = node["bytes_per_s"]
    return f", {show_size(node['bytes'])}, {show_size(speed)}/s" if speed else ""


def state_word(run: Mapping[str, Any]) -> str:
    """Return the state of a run as one word; ``deleted`` for a finished run without its output."""
    return "deleted" if run["output_deleted"] else str(run["state"])


def both_ends(text: str, width: int) -> str:
    """Return a text of at most `width` letters; the middle of a longer text is left out."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def committed_share(run: Mapping[str, Any]) -> float:
    """Return the share of a run's output that is committed, from 0 to 1; 0 if it was deleted."""
    total = 0 if run["output_deleted"] else run["bytes"]["total"]
    return run["bytes"]["committed"] / total if total else 0.0
