"""Promise: `docs/collect_messages.py` finds every kind of text that a user may read."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "docs" / "collect_messages.py"


@pytest.fixture(scope="module")
def collected() -> dict[str, str]:
    """Return the messages by kind: one text for each kind."""
    found = runpy.run_path(str(SCRIPT))["collect"]()
    return {kind: "\n".join(text for _, text in messages) for kind, messages in found.items()}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("strings", "Another process is working on this run"),  # an error
        ("strings", "{method.name} needs a base model"),  # with an expression
        ("strings", "The {mirror} worked again"),  # an event
        ("pages", "Time by layer and tensor"),
        ("help", "Number of worker threads."),
        ("help", "Check and repair cached sources."),  # of a command
        ("new recipes", "# weighted average of the models"),
        ("notebooks", "# Merge language models"),
    ],
)
def test_each_kind_is_found(collected: dict[str, str], kind: str, text: str) -> None:
    assert text in collected[kind]


@pytest.mark.parametrize(
    "text",
    [
        "Bytes; they include this process's own dirty pages",  # a docstring
        "SELECT shard FROM units",
    ],
)
def test_what_nobody_is_shown_is_left_out(collected: dict[str, str], text: str) -> None:
    assert text not in collected["strings"]
