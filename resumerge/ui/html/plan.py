"""``resumerge.plan(…)`` as the output of a notebook cell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resumerge.errors import Problem
from resumerge.ui.html.environment import render
from resumerge.ui.text.host import choice_rows, host_rows
from resumerge.ui.text.layer_map import draw_layer_map

Document = Mapping[str, Any]

MOST_COLUMNS = 64
"""The most characters of a layer map. For a deeper model, a character stands for several layers."""


def fragment(document: Document) -> str:
    """Return a fragment of HTML, for another page, from a document of ``plan --json``."""
    return render(
        "plan.html.j2",
        plan=document,
        models=[*document["sources"], *document["stages"]],
        problems=[Problem(**problem) for problem in document["problems"]],
        layer_maps=[
            draw_layer_map(layer_map["stack"], layer_map["layers"], MOST_COLUMNS)
            for layer_map in document["layer_maps"]
        ],
        host_rows=host_rows(document["host"]),
        choice_rows=[
            (setting, chosen_value, reason, _python_argument(option))
            for setting, chosen_value, reason, option in choice_rows(document["choices"])
        ],
    )


def _python_argument(option: str) -> str:
    """Return an option as a Python argument: ``memory=…`` for ``--memory SIZE``.

    A value in lower case is quoted.
    """
    name, _, value = option.lstrip("-").partition(" ")
    return f"{name.replace('-', '_')}={'…' if value.isupper() else repr(value)}"
