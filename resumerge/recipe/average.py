"""The key ``average`` of a recipe: weighted averages of windows of a training's checkpoints."""

from __future__ import annotations

import math
import os.path
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from glob import glob, has_magic
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from resumerge.errors import Problem
from resumerge.output_path import EXTRACTION, is_stage_folder, twin_of
from resumerge.recipe.invalid import InvalidValue, describe
from resumerge.recipe.spelling import closest
from resumerge.recipe.sweep import MOST, SWEEP
from resumerge.recipe.yaml_lines import Document, descend, load_yaml, nearest_line
from resumerge.sizes import counted, some

AVERAGE = "average"
CHECKPOINTS = "checkpoints"
METHOD = "linear"

LISTED = "listed"
"""The key of the checkpoints that patterns matched when a run began, in the run's own recipe."""

_KEYS = (CHECKPOINTS, "window", "stride", "weights", LISTED)
_EXCLUDED = ("models", "slices", "modules", "base_model", "parameters", SWEEP, EXTRACTION)
_EMA = "ema"

DECAYS: dict[str, Callable[[float], float]] = {
    "uniform": lambda x: 1 - x,
    "linear": lambda x: 1 - x,
    "cosine": lambda x: (1 + math.cos(math.pi * x)) / 2,
    "1-sqrt": lambda x: 1 - math.sqrt(x),
}
"""The decays of a learning rate over a window: its share after the part ``x`` of the window."""


@dataclass(frozen=True)
class Schedule:
    """A rule for the weights of the checkpoints in a window.

    Args:
        name: the name of the rule, which becomes a part of the outputs' names.
        decay: the decay of an exponential moving average; None for a rule of `DECAYS`.
    """

    name: str
    decay: float | None = None

    def weights(self, count: int) -> list[float]:
        """Return the weight of each checkpoint of a window, the oldest first. Their sum is 1.

        For a decay ``f`` of the learning rate, the weight of checkpoint j is
        ``f(j / count) - f((j + 1) / count)``. A change that training made between two checkpoints
        then has the weight ``f(x)``, where ``x`` is the part of the window before the later one
        (WSM, arXiv 2507.17634, theorem 3.1: ``c_j = w_j - w_(j+1)``). The weights of a moving
        average follow from ``mean = decay * mean + (1 - decay) * checkpoint``, which starts with
        the oldest checkpoint.
        """
        if self.decay is not None:
            powers = [self.decay**age for age in reversed(range(count))]
            return [powers[0], *((1 - self.decay) * power for power in powers[1:])]
        learning_rates = [DECAYS[self.name](number / count) for number in range(count)]
        return [
            rate - next_rate for rate, next_rate in zip(learning_rates, [*learning_rates[1:], 0.0])
        ]


class Averages(NamedTuple):
    """The documents that an average expands to.

    Args:
        named: the documents, by the names of their outputs; empty if there are problems.
        listed: the original document, with lists of the matched checkpoints in place of patterns.
        notes: sentences on checkpoints that are not used.
        problems: the mistake in the key ``average`` itself, if there is one. The documents are not
            checked.
    """

    named: Mapping[str, Document]
    listed: Document
    notes: Sequence[str] = ()
    problems: Sequence[Problem] = ()


def averages_of(document: Document, file: str) -> Averages:
    """Return the documents that an average expands to, by the names of their outputs.

    Each document is a recipe with the method `METHOD`. The documents are ordered by window, and
    within a window by schedule.

    Args:
        document: a document with the key ``average``.
        file: the name of the recipe file, for messages.
    """
    try:
        return _expanded(document)
    except InvalidValue as error:
        return Averages({}, document, problems=[document.problem(error, file)])


def checkpoints_since(text: str, begun: str) -> list[str] | None:
    """Return the checkpoints that patterns match now, but did not match when a run began.

    Args:
        text: the text of the recipe as it is read now.
        begun: the text of the recipe that the run recorded when it began.

    Returns:
        the new checkpoints; None if the recipes differ in anything else, or if the run's recipe
        lists no matched checkpoints.
    """
    (data, checkpoints), (run_data, run_checkpoints) = (
        _unlisted(load_yaml(recipe_text, "")) for recipe_text in (text, begun)
    )
    return (
        [checkpoint for checkpoint in checkpoints if checkpoint not in run_checkpoints]
        if data == run_data and run_checkpoints
        else None
    )


def _unlisted(documents: Sequence[Document]) -> tuple[list[dict[Any, Any]], list[str]]:
    """Return the data of documents without their matched checkpoints, and these checkpoints."""
    data, checkpoints = [], list[str]()
    for document in documents:
        section = document.data.get(AVERAGE)
        if isinstance(section, dict) and isinstance(section.get(LISTED), list):
            checkpoints = section[LISTED]
            other_keys = {key: value for key, value in section.items() if key != LISTED}
            data.append({**document.data, AVERAGE: other_keys})
        else:
            data.append(document.data)
    return data, checkpoints


def _expanded(document: Document) -> Averages:
    section = document.data[AVERAGE]
    _check_keys(section, document.data)
    checkpoints = _checkpoints(section, CHECKPOINTS, matched=LISTED not in section)
    if LISTED in section:
        checkpoints = _checkpoints(section, LISTED, matched=False)
    window_size = _number(section, "window", len(checkpoints))
    stride = _number(section, "stride", 1)
    schedules = _schedules(section.get("weights", "uniform"))
    if window_size > len(checkpoints):
        raise InvalidValue(
            f"A window of {window_size} checkpoints is larger than their number",
            expected=f"at most {len(checkpoints)}",
            found=str(window_size),
            fix="Write a smaller window, or more checkpoints",
            at=(AVERAGE, "window"),
        )
    first_start = (len(checkpoints) - window_size) % stride
    starts = range(first_start, len(checkpoints) - window_size + 1, stride)
    if (output_count := len(starts) * len(schedules)) > MOST:
        raise InvalidValue(
            f"The average has {output_count} outputs",
            expected=f"at most {MOST}, which are computed together",
            found=f"{counted(len(starts), 'window')} x {len(schedules)}",
            fix="Write a larger stride, or fewer schedules",
            at=(AVERAGE,),
        )
    labels = _labels(checkpoints)
    documents: dict[str, Document] = {}
    for start in starts:
        window = range(start, start + window_size)
        for schedule in schedules:
            name = labels[window[-1]] + (f"_{schedule.name}" if len(schedules) > 1 else "")
            _check_name(name, documents)
            weights = schedule.weights(window_size)
            models = [(checkpoints[number], weight) for number, weight in zip(window, weights)]
            documents[name] = _document(document, models, start)
    listed_document = document
    if checkpoints not in (section[CHECKPOINTS], [section[CHECKPOINTS]]):
        section = {**section, LISTED: checkpoints}
        listed_document = replace(document, data={**document.data, AVERAGE: section})
    covered_numbers = {number for start in starts for number in range(start, start + window_size)}
    unused_checkpoints = [
        checkpoint for number, checkpoint in enumerate(checkpoints) if number not in covered_numbers
    ]
    note = (
        f"in no window, so not read: {some(unused_checkpoints)}; the last window ends with the "
        "last checkpoint"
    )
    return Averages(documents, listed_document, [note] * bool(unused_checkpoints))


def _document(document: Document, models: Sequence[tuple[str, float]], start: int) -> Document:
    """Return the recipe of one output.

    Args:
        document: the document with the average. The other keys are taken from it.
        models: the checkpoints of a window, each with its weight.
        start: the index of the window's first checkpoint in the list of all checkpoints.
    """
    other_keys = {key: value for key, value in document.data.items() if key != AVERAGE}
    merge_keys = {
        "merge_method": METHOD,
        "models": [{"model": text, "parameters": {"weight": w}} for text, w in models],
        "parameters": {"normalize": False},
    }
    lines = dict(document.lines)
    checkpoints_path = descend("", (AVERAGE, CHECKPOINTS))
    for key in merge_keys:
        lines[key] = nearest_line(lines, checkpoints_path) or 1
    for number in range(len(models)):
        lines[descend("", ("models", number))] = (
            nearest_line(lines, f"{checkpoints_path}[{start + number}]") or 1
        )
    return Document({**merge_keys, **other_keys, **merge_keys}, lines, document.problems)


def _check_keys(section: Any, top: Mapping[Any, Any]) -> None:
    for key in _EXCLUDED:
        if key in top:
            raise InvalidValue(
                f"A recipe has either 'average', or '{key}'",
                expected="one of the two",
                found="both",
                fix=f"Delete '{key}:'; the average has its checkpoints and weights itself",
                at=(key,),
            )
    if isinstance(top.get("experts"), list) or top.get("merge_method", METHOD) != METHOD:
        key = "experts" if "experts" in top else "merge_method"
        raise InvalidValue(
            "An average is no other merge",
            expected=f"no '{key}', or 'merge_method: {METHOD}'",
            found=describe(top[key]),
            fix=f"Delete '{key}:', or 'average:'",
            at=(key,),
        )
    if not isinstance(section, dict) or CHECKPOINTS not in section:
        raise InvalidValue(
            "The average names no checkpoints",
            expected="checkpoints: a pattern or a list",
            found=describe(section),
            fix="Write below 'average:' a line like 'checkpoints: runs/pretrain/step-*'",
            at=(AVERAGE,),
        )
    for key in section:
        if key not in _KEYS:
            similar_key = closest(str(key), _KEYS)
            raise InvalidValue(
                f"The average has no key {key!r}",
                expected=", ".join(_KEYS),
                found=str(key),
                fix=f"Did you mean '{similar_key}'?" if similar_key else "Delete it",
                at=(AVERAGE, str(key)),
            )


def _checkpoints(section: Mapping[str, Any], key: str, *, matched: bool) -> list[str]:
    """Return the checkpoints, the oldest first.

    A list keeps its order. The matches of a pattern are in natural order.

    Args:
        section: the value of ``average``, which has `key`.
        key: `CHECKPOINTS`, or `LISTED` in a run's own recipe.
        matched: whether patterns are replaced by the checkpoints that they match.

    Raises:
        InvalidValue: the value is neither a pattern nor a list, or names no checkpoint, or names
            a checkpoint twice.
    """
    value = section[key]
    entries = [value] if isinstance(value, str) else value
    if not isinstance(entries, list) or not entries:
        raise InvalidValue(
            "The checkpoints are neither a pattern nor a list",
            expected="runs/pretrain/step-*, or [org/name@step-1000, org/name@step-2000]",
            found=describe(value),
            fix="Write a pattern of folders, or a list of models, the oldest first",
            at=(AVERAGE, key),
        )
    checkpoints: list[str] = []
    for number, entry in enumerate(entries):
        location = (AVERAGE, key, number) if entries is value else (AVERAGE, key)
        if not isinstance(entry, str) or not entry.strip():
            raise InvalidValue(
                "This is not the name of a checkpoint",
                expected="a folder, a pattern of folders, or org/name@revision, as text",
                found=describe(entry),
                fix="Write its name; put a number in quotes",
                at=location,
            )
        checkpoints += _matches(entry.strip(), location) if matched else [entry]
    repeated_checkpoints = sorted(
        {checkpoint for checkpoint in checkpoints if checkpoints.count(checkpoint) > 1}
    )
    if repeated_checkpoints:
        raise InvalidValue(
            "A checkpoint is listed twice",
            expected="each once",
            found=some(repeated_checkpoints),
            fix="Delete one of the two, or write a narrower pattern",
            at=(AVERAGE, key),
        )
    return checkpoints


def _matches(entry: str, at: tuple[str | int, ...]) -> list[str]:
    """Return the folders, or else the files, that a pattern matches; [entry] for a plain name."""
    if "://" in entry or not has_magic(entry) or Path(entry).exists():
        return [entry]
    matched_paths = glob(os.path.expanduser(entry))  # noqa: PTH111, PTH207
    folders = [path for path in matched_paths if Path(path).is_dir()]
    if not matched_paths:
        raise InvalidValue(
            "The pattern matches no checkpoint",
            expected="folders on this disk; the pattern is relative to the folder in which the "
            "command runs",
            found=entry,
            fix="Check the path; of checkpoints on the Hub or in a bucket write a list",
            at=at,
        )
    return sorted(folders or matched_paths, key=_natural)


def _natural(text: str) -> list[tuple[int, str]]:
    """Return a sort key by which numbers in texts are ordered by value."""
    parts = re.split(r"(\d+)", text)
    return [(int(part), part) if part.isdecimal() else (-1, part) for part in parts]


def _number(section: Mapping[str, Any], key: str, usual: int) -> int:
    value = section.get(key, usual)
    if type(value) is not int or value < 1:
        raise InvalidValue(
            f"The {key} of the average is no number of checkpoints",
            expected="a whole number from 1 on",
            found=describe(value),
            fix=f"Write '{key}: 4', or delete the line",
            at=(AVERAGE, key),
        )
    return value


def _schedules(written: Any) -> list[Schedule]:
    entries = written if isinstance(written, list) else [written]
    schedules: list[Schedule] = []
    for number, entry in enumerate(entries):
        location = (AVERAGE, "weights", number) if entries is written else (AVERAGE, "weights")
        schedule = _schedule(entry, location)
        twin_names = [
            earlier_schedule.name
            for earlier_schedule in schedules
            if earlier_schedule.weights(3) == schedule.weights(3)
        ]
        if twin_names:
            raise InvalidValue(
                "Two schedules give the same weights",
                expected="a schedule once; 'linear' is another name of 'uniform'",
                found=f"{twin_names[0]} and {schedule.name}",
                fix="Delete one of the two",
                at=location,
            )
        schedules.append(schedule)
    if not schedules:
        raise _no_schedule(written, (AVERAGE, "weights"))
    return schedules


def _schedule(entry: Any, at: tuple[str | int, ...]) -> Schedule:
    if isinstance(entry, str) and entry in DECAYS:
        return Schedule(entry)
    if isinstance(entry, dict) and [*entry] == [_EMA]:
        decay = entry[_EMA]
        if isinstance(decay, int | float) and not isinstance(decay, bool) and 0 < decay < 1:
            return Schedule(f"{_EMA}-{decay}", float(decay))
    raise _no_schedule(entry, at)


def _no_schedule(entry: Any, at: tuple[str | int, ...]) -> InvalidValue:
    similar_name = closest(entry, tuple(DECAYS)) if isinstance(entry, str) else None
    return InvalidValue(
        f"{describe(entry)} is no schedule of weights",
        expected=f"{', '.join(DECAYS)}, or {{ema: 0.9}} with a decay between 0 and 1",
        found=describe(entry),
        fix=f"Did you mean '{similar_name}'?"
        if similar_name
        else "Write one of these, or a list of some",
        at=at,
    )


def _labels(checkpoints: Sequence[str]) -> list[str]:
    """Return a name for each checkpoint: the part of its path or revision that distinguishes it."""
    split_checkpoints = [[part for part in re.split(r"[/@]", text) if part] for text in checkpoints]
    shared_start = _shared_parts(split_checkpoints)
    shared_end = _shared_parts([parts[::-1] for parts in split_checkpoints])
    names = [
        "-".join(parts[shared_start : len(parts) - shared_end]) or parts[-1]
        for parts in split_checkpoints
    ]
    return [re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII).lstrip(".-") for name in names]


def _shared_parts(paths: Sequence[Sequence[str]]) -> int:
    """Return the number of parts that are the same at the beginning of all paths."""
    return sum(1 for _ in takewhile(lambda parts: len({*parts}) == 1, zip(*paths)))


def _check_name(name: str, named: Mapping[str, Any]) -> None:
    twin_name = twin_of(name, named)
    if twin_name is None and is_stage_folder(name):
        return
    raise InvalidValue(
        "The names of the checkpoints make no names for outputs",
        expected="a folder for each window, named after its last checkpoint: letters, digits, '_', "
        "'-' and '.', at most 100",
        found=f"{name!r}" + (f" and {twin_name!r}" if twin_name else ""),
        fix="Rename the checkpoints, or link to them by other names",
        at=(AVERAGE, CHECKPOINTS),
    )
