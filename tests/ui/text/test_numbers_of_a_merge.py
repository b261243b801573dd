"""Promise: the line on a whole change has numbers only of models that were compared."""

from __future__ import annotations

from typing import Any

import pytest

from resumerge.ui.text.numbers import whole_line


@pytest.mark.parametrize(
    ("moved", "models", "line"),
    [
        (0.5, [{}], "about 50% of the elements were to change"),
        (0.0, [{}], "about 0% of the elements were to change"),  # as with weights of 0
        (0.0, [], ""),  # adapters alone: what they change is not measured
        (None, [], ""),
    ],
)
def test_only_what_was_compared_is_told(moved: Any, models: list[Any], line: str) -> None:
    estimate = {"moved": moved, "lost": None, "conflicts": None}
    assert whole_line({"numbers": {"estimate": estimate, "models": models}}) == line
