"""Each kind of event has words of its own, happens somewhere, and names its facts."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from asking import run_of
from made_up_ledgers import make_ledger

import resumerge
from resumerge import event_kinds
from resumerge.documents.cluster import describe_cluster
from resumerge.documents.history import history_of
from resumerge.event_kinds import EventKind
from resumerge.ui.text.format import format_event
from resumerge.ui.text.narrative import UNTOLD, WITH_FACTS, narrative_of

PACKAGE = Path(resumerge.__file__).parent
TOLD_IN = PACKAGE / "ui"


def noted_kinds() -> set[str]:
    """Return the names of the kinds that the package uses outside of `ui`."""
    return {
        node.attr
        for path in PACKAGE.rglob("*.py")
        if not path.is_relative_to(TOLD_IN)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "EventKind"
    }


def is_kind(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and ast.unparse(node.value) == "EventKind"


def facts_given() -> dict[str, set[str]]:
    """Return the facts of each kind that are keywords of a call that notes an event."""
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                for kind in filter(is_kind, node.args):
                    names = {keyword.arg for keyword in node.keywords if keyword.arg}
                    found.setdefault(ast.unparse(kind).partition(".")[2], set()).update(names)
    return found


def docstrings() -> dict[str, str]:
    """Return the docstring of each kind, by its name."""
    tree = ast.parse(Path(event_kinds.__file__).read_text(encoding="utf-8"))
    [kinds] = (node for node in tree.body if isinstance(node, ast.ClassDef))
    return {
        name: text
        for member, below in zip(kinds.body, kinds.body[1:])
        if isinstance(member, ast.Assign) and isinstance(member.targets[0], ast.Name)
        for name in [member.targets[0].id]
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(text := below.value.value, str)
    }


def sentences(folder: Path, outcome: str, events: dict[EventKind, dict[str, object]]) -> list[str]:
    """Return the sentences about a run with one attempt and these events."""
    attempt = {"n": 1, "started": 1, "ended": 2, "outcome": outcome}
    make_ledger(folder / "state", [attempt], (), [(1, kind, d) for kind, d in events.items()])
    run = run_of(folder)
    return narrative_of(run, history_of(run))


def test_each_kind_of_event_has_words(tmp_path: Path) -> None:
    told = sentences(tmp_path, "done", {kind: {} for kind in EventKind})
    bare = {f"{kind.replace('_', ' ').capitalize()}." for kind in EventKind}
    assert not bare.intersection(told)


FACTS = {"cause": "killed", "signal": "SIGKILL", "reason": "why", "after": 5, "bytes": 1}


@pytest.mark.parametrize("kind", sorted(WITH_FACTS))
def test_what_a_function_tells_is_told(kind: EventKind, tmp_path: Path) -> None:
    """A kind that a function describes has no sentence in the table."""
    before = {EventKind.LIMIT_LOWERED: FACTS} if kind == EventKind.LIMIT_RAISED else {}
    without = sentences(tmp_path / "without", "error", before)
    assert sentences(tmp_path / "with", "error", {**before, kind: FACTS}) != without


def test_only_these_kinds_are_not_told() -> None:
    """The sentence on a wait implies its end; tasks are counted for each machine of the cluster."""
    of_tasks = {EventKind.TASK_STARTED, EventKind.TASK_FINISHED}
    assert {EventKind.MEMORY_WAIT_ENDED, *of_tasks} == UNTOLD


def test_each_event_of_a_task_is_counted_for_its_machine() -> None:
    for kind in (kind for kind in EventKind if kind.name.startswith("TASK_")):
        cluster = describe_cluster([{"kind": kind, "attempt": 1, "data": {"node": "a"}}])
        assert cluster is not None, kind
        assert sum(cluster["tasks"].values()) == 1


def test_each_kind_of_event_names_its_facts() -> None:
    texts, given = docstrings(), facts_given()
    assert texts.keys() == {kind.name for kind in EventKind}
    assert len([kind for kind, names in given.items() if names]) > 20
    unnamed = {
        kind: names - set(re.findall(r"`(\w+)`", texts[kind])) for kind, names in given.items()
    }
    assert {kind: names for kind, names in unnamed.items() if names} == {}


def test_facts_in_bytes_are_shown_as_sizes() -> None:
    in_bytes = {
        name
        for text in docstrings().values()
        for names in re.findall(r"((?:`\w+`(?: and |, )?)+)(?: memory)?\s+\(bytes\)", text)
        for name in re.findall(r"\w+", names.replace(" and ", " "))
    }
    assert {"before", "peak_rss"} <= in_bytes
    for name in in_bytes:
        assert format_event({"data": {name: 3_000_000}}).endswith(" 3 MB"), name


def test_each_kind_of_event_happens() -> None:
    assert noted_kinds() == {kind.name for kind in EventKind}
