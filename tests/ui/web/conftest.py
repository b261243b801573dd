"""A page in a folder of tiny models, and a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import held_average
import pytest
from chromium import Browser, browser
from tiny_models import LLAMA, write_family
from web_pages import Page


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    hold = tmp_path / "hold"
    served = Page(write_family(tmp_path / "place", LLAMA), hold, held_average.variables(hold))
    yield served
    served.end()


@pytest.fixture
def chromium(tmp_path: Path) -> Iterator[Browser]:
    with browser(tmp_path) as started:
        yield started
