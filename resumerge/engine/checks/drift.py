"""What is no longer as it was when a run began, and what to do about it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from resumerge.planning import Plan, changes, fingerprint_parts
from resumerge.planning.fingerprint import CHAT_TEMPLATE, TOKENIZER
from resumerge.sources import Source
from resumerge.sources.formats.content_samples import sample

SOURCE = "source "

_KINDS = {
    "recipe": ("The recipe", "undo the change and resume, or go on with the recipe as it was"),
    "source": ("A source", "put the file back as it was, and resume"),
    "option": ("An option", "leave the option out, and resume"),
    "program": ("The program", "resume with the version that began it"),
}
"""What changed, and how to go on nevertheless."""


def samples(source: Source) -> dict[str, str]:
    """A sample of every file of a source that is known by its time of change."""
    return {
        name: sample(source.path(name))
        for name, file in source.files.items()
        if "mtime_ns" in file.identity
    }


def parts_now(
    before: Mapping[str, Any], plan: Plan, rows: Iterable[Mapping[str, Any]]
) -> tuple[dict[str, Any], list[str]]:
    """The fingerprint's parts of a plan, without times of change that mean nothing.

    A file that differs in nothing but its time of change (it was touched, copied, or downloaded
    again) is the same one where its sample is.

    Args:
        before: the parts that the run began with.
        rows: of the ledger's table `sources`.

    Returns:
        The parts, and the files whose time of change is another one.
    """
    kept = {row["model"]: json.loads(row["identity"]).get("samples", {}) for row in rows}
    parts = fingerprint_parts(plan)
    touched = []
    for source in plan.sources:
        key = f"{SOURCE}{source.ref}"
        known = before.get(key, {}).get("files", {})
        for name, facts in parts[key]["files"].items():
            was = known.get(name, {})
            same_but_for_time = {**facts, "mtime_ns": was.get("mtime_ns")} == was
            if facts == was or not same_but_for_time:
                continue
            path = source.path(name)
            if kept.get(source.ref.text, {}).get(name) == sample(path):
                facts["mtime_ns"] = was["mtime_ns"]
                touched.append(str(path))
    return parts, touched


def describe(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """What differs between the parts of two fingerprints.

    Returns:
        The kinds of what differs (``recipe``, ``source``, ``option``, ``program``), and a line for
        each difference.
    """
    kinds, lines = [], []
    for key in sorted(before.keys() | after.keys()):
        was, now = before.get(key), after.get(key)
        found = changes({key: was}, {key: now})
        if not found:
            continue
        kinds.append(_kind(key))
        lines += _files(key, was, now) if key.startswith(SOURCE) and was and now else found
    return list(dict.fromkeys(kinds)), lines


def headline(kinds: Iterable[str]) -> str:
    """One sentence: what changed."""
    names = [_KINDS[kind][0] for kind in kinds]
    subject = " and ".join([names[0], *(name[0].lower() + name[1:] for name in names[1:])])
    return f"{subject} {'is' if len(names) == 1 else 'are'} not what this run began with"


def advice(kinds: Iterable[str], kept: str, over: str) -> str:
    """What to do.

    Args:
        kept: the command that goes on with the recipe as it was.
        over: the command that starts over.
    """
    ways = [_KINDS[kind][1] + (f" (`{kept}`)" if kind == "recipe" else "") for kind in kinds]
    return f"{'; and '.join(ways)}; or start over: `{over}`"


def _kind(key: str) -> str:
    if key.startswith((SOURCE, TOKENIZER)) or key == CHAT_TEMPLATE:
        return "source"
    if key in ("seed", "shard size"):
        return "option"
    return "recipe" if key == "recipe" else "program"


def _files(key: str, was: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The files of a source that differ, and in what."""
    lines = []
    old, new = was.get("files", {}), now.get("files", {})
    for name in sorted(old.keys() | new.keys()):
        where = f"{Path(key.removeprefix(SOURCE)) / name}"
        if name not in new:
            lines.append(f"{where} is gone")
        elif name not in old:
            lines.append(f"{where} is new")
        elif old[name] != new[name]:
            lines.append(f"{where} has {_difference(old[name], new[name])}")
    return lines or changes({key: was}, {key: now})


def _difference(was: dict[str, Any], now: dict[str, Any]) -> str:
    if was.get("size") != now.get("size"):
        return f"{now.get('size')} bytes and had {was.get('size')}"
    if was.get("header") != now.get("header"):
        return "another header"
    if "mtime_ns" in now:
        when = [
            datetime.fromtimestamp(f["mtime_ns"] / 1e9).isoformat(" ", "seconds")
            for f in (now, was)
        ]
        return f"other contents, of {when[0]}, and had those of {when[1]}"
    return "other contents"
