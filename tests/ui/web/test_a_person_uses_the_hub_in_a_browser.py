"""Promise: models of the Hub are found, merged with options, compared and pushed from the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from chromium import CHROMIUM, Browser
from loopback_hub import Hub
from web_pages import TOKEN, Page, button, field, opened, press, says, write

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
    pytest.mark.needs("gradio"),
]


@pytest.fixture
def stocked(hub: Hub, page: Page) -> Hub:
    """Commit one of the folder's models to the Hub, and return the Hub."""
    files = {path.name: path.read_bytes() for path in (page.folder / "math").iterdir()}
    hub.commit("org/mathematics", files)
    hub.tokens = {TOKEN: "write"}
    return hub


def test_models_are_found_merged_compared_and_pushed(
    stocked: Hub, page: Page, chromium: Browser, tmp_path: Path
) -> None:
    tab = opened(chromium, page)
    press(tab, "Write a recipe")
    write(tab, "Find models", "mathem")
    press(tab, "Find")
    says(tab, "org/mathematics")
    tab.run(f"{field('org/mathematics')}.click()")
    tab.wait(f"{field('Models, one in a line')}.value === 'org/mathematics'")
    write(tab, "Models, one in a line", "base\norg/mathematics")
    press(tab, "Write it")
    says(tab, "can run")
    press(tab, "Options of the merge")
    write(tab, "Shard size", "much")
    says(tab, "is not a size")
    write(tab, "Shard size", "10KB")
    says(tab, "can run")
    write(tab, "Name of the output", "merged")
    says(tab, "can run")
    press(tab, "Merge")
    says(tab, "100% committed. Done")
    made = {file.name: file.read_bytes() for file in (page.folder / "merged").iterdir()}
    assert sum(name.startswith("model-") for name in made) > 1

    press(tab, "Upload to the Hub")
    write(tab, "Repo", "../somewhere")
    press(tab, "Push")
    says(tab, "This cannot be the name of a repo")
    write(tab, "Repo", "me/merged")
    press(tab, "Push")
    says(tab, "Done: ")
    assert stocked.repos["me/merged"].private
    assert {k: v for k, v in stocked.contents("me/merged").items() if k in made} == made

    press(tab, "Compare models")
    write(tab, "Models to compare, one in a line", "base\n../math")
    press(tab, "Compare them")
    says(tab, "The comparison did not end")
    write(tab, "Models to compare, one in a line", "base\norg/mathematics\nmerged")
    press(tab, "Compare them")
    says(tab, "Comparison of 3 models")
    assert TOKEN not in tab.run("document.documentElement.outerHTML") + page.log.read_text()
    assert tab.run(f"{button('Push')}.disabled") is False
