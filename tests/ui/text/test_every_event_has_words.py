"""Each kind of event is told in words of its own, and happens somewhere."""

from __future__ import annotations

import ast
from pathlib import Path

from asking import run_of
from made_up_ledgers import make_ledger

import resumerge
from resumerge.documents.history import history_of
from resumerge.event_kinds import EventKind
from resumerge.ui.text.narrative import narrative_of

PACKAGE = Path(resumerge.__file__).parent
TOLD_IN = PACKAGE / "ui"


def noted_kinds() -> set[str]:
    """Return the names of the kinds that the package speaks of where it does not tell events."""
    return {
        node.attr
        for path in PACKAGE.rglob("*.py")
        if not path.is_relative_to(TOLD_IN)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "EventKind"
    }


def test_each_kind_of_event_has_words(tmp_path: Path) -> None:
    attempt = {"n": 1, "started": 1, "ended": 2, "outcome": "done"}
    make_ledger(tmp_path / "state", [attempt], (), [(1, kind, {}) for kind in EventKind])
    run = run_of(tmp_path)
    sentences = narrative_of(run, history_of(run))
    bare = {f"{kind.replace('_', ' ').capitalize()}." for kind in EventKind}
    assert not bare.intersection(sentences)


def test_each_kind_of_event_happens() -> None:
    assert noted_kinds() == {kind.name for kind in EventKind}
