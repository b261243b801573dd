"""Each kind of event that the package notes in the ledger is told in words of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from asking import run_of
from made_up_ledgers import make_ledger

import resumerge
from resumerge.documents.history import history_of
from resumerge.ui.text.narrative import narrative_of

PACKAGE = Path(resumerge.__file__).parent

KIND_IS = {"add": 0, "event": 0, "_tell": 0, "_set": 1, "forget": 1}
"""The methods that note an event, and which of their arguments is its kind."""

NOTED_BY = {"add": "events", "event": "callbacks", "forget": "units"}
"""What a method belongs to, where others have methods of that name."""


def kinds() -> Iterator[tuple[str, str]]:
    """Yield each kind that is written as a text or a constant, and the file that notes it."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
                continue
            name = call.func.attr
            owner = ast.unparse(call.func.value).rpartition(".")[2].lstrip("_")
            place = KIND_IS.get(name, len(call.args))
            if owner != NOTED_BY.get(name, owner) or place >= len(call.args):
                continue
            kind = call.args[place]
            if isinstance(kind, ast.IfExp):
                branches = [kind.body, kind.orelse]
            else:
                branches = [kind]
            for branch in branches:
                if isinstance(branch, ast.Constant) and isinstance(branch.value, str):
                    yield branch.value, str(path)
                elif isinstance(branch, ast.Name) and branch.id.isupper():
                    module = path.relative_to(PACKAGE.parent).with_suffix("")
                    yield getattr(import_module(".".join(module.parts)), branch.id), str(path)


def test_each_kind_of_event_has_words(tmp_path: Path) -> None:
    found = dict(kinds())
    # Kinds of every way of noting one: the search has not gone blind.
    assert {"file_kept", "download_damaged", "waiting", "batch_lowered", "shard_lost"} <= set(found)
    assert {"hash_conflict", "rechecked"} <= set(found)
    attempt = {"n": 1, "started": 1, "ended": 2, "outcome": "done"}
    make_ledger(tmp_path / "state", [attempt], (), [(1, kind, {}) for kind in found])
    run = run_of(tmp_path)
    sentences = narrative_of(run, history_of(run))
    assert not {
        kind: where
        for kind, where in found.items()
        if f"{kind.replace('_', ' ').capitalize()}." in sentences
    }
