"""Promise: from an empty page to a merged model, stopped and resumed, by a person in a browser."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import held_average
import pytest
from chromium import CHROMIUM, Browser
from merging import merge, shards_of
from waiting import wait_until
from web_pages import TOKEN, Page, button, field, opened, press, says, write

from resumerge.documents.new_recipe import new_recipe

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
    pytest.mark.needs("gradio"),
    pytest.mark.needs("torch"),  # the method of a user's is one of torch
]

LINEAR = "merge_method: linear\nmodels: [{model: base}, {model: math}]\nparameters: {weight: 0.5}\n"
OWN = build_opener(ProxyHandler({}))


def test_from_an_empty_page_to_a_merged_model(
    chromium: Browser, page: Page, tmp_path: Path
) -> None:
    tab = opened(chromium, page)
    write(tab, "Recipe (YAML)", LINEAR.replace("linear", "liner"))
    says(tab, "Problems to fix first")
    write(tab, "Recipe (YAML)", LINEAR.replace("math", "../math"))
    says(tab, "This path leads out of the page's folder")
    write(tab, "Recipe (YAML)", LINEAR)
    says(tab, "can run")
    write(tab, "Name of the output", "../merged")
    says(tab, "This cannot be the name of the output")
    press(tab, "Merge")
    says(tab, "The merge did not begin")
    write(tab, "Name of the output", "merged")
    says(tab, "can run")
    press(tab, "Merge")
    says(tab, "100% committed. Done")
    expected = merge(page.folder, LINEAR, tmp_path / "expected")
    assert shards_of(page.folder / "merged") == shards_of(expected)


def test_a_merge_is_stopped_and_resumed(chromium: Browser, page: Page) -> None:
    """Another person, who opens the page meanwhile, can stop the merge."""
    page.hold.touch()
    first = opened(chromium, page)
    write(first, "Recipe (YAML)", held_average.RECIPE)
    write(first, "Name of the output", "merged")
    says(first, "can run")
    press(first, "Merge")
    says(first, "Running, 1 attempt")
    second = opened(chromium, page, width=390)
    says(second, "Running, 1 attempt")
    wait_until(held_average.reached(page.hold).exists)
    press(second, "Stop")
    says(second, "The run was asked to stop")
    for tab in (first, second):
        says(tab, "Attempt 1 was stopped by a signal")
    page.hold.unlink()
    press(first, "Resume")
    for tab in (first, second):
        says(tab, "100% committed. Done in 2 attempts")
    write(first, "Name of the output", "uninterrupted")
    press(first, "Merge")
    says(first, "100% committed. Done in 1 attempt")
    assert shards_of(page.folder / "merged") == shards_of(page.folder / "uninterrupted")
    assert second.run("document.documentElement.scrollWidth") == 390


def test_the_page_is_killed_in_the_middle_of_a_merge(chromium: Browser, page: Page) -> None:
    page.hold.touch()
    tab = opened(chromium, page)
    write(tab, "Recipe (YAML)", held_average.RECIPE)
    write(tab, "Name of the output", "merged")
    says(tab, "can run")
    press(tab, "Merge")
    says(tab, "Running, 1 attempt")
    page.kill()
    page.start()
    again = opened(chromium, page)
    says(again, "Running, 1 attempt")
    page.hold.unlink()
    says(again, "100% committed. Done in 1 attempt")


def test_a_recipe_is_written_from_its_parts(chromium: Browser, page: Page) -> None:
    tab = opened(chromium, page)
    press(tab, "Write a recipe")
    tab.wait(field("Models, one in a line") + " !== undefined")
    write(tab, "Models, one in a line", "base\n\nmath\n")
    press(tab, "Write it")
    says(tab, "can run")
    expected = new_recipe("linear", ["base", "math"], None, "bfloat16")
    assert tab.run(f"{field('Recipe (YAML)')}.value") == expected
    press(tab, "Write it")
    says(tab, "The recipe would be replaced")
    assert tab.run(f"{field('Recipe (YAML)')}.value") == expected


def test_two_people_merge_at_once(chromium: Browser, page: Page) -> None:
    page.hold.touch()
    tabs = [opened(chromium, page) for _ in range(2)]
    for number, tab in enumerate(tabs):
        write(tab, "Recipe (YAML)", held_average.RECIPE)
        write(tab, "Name of the output", f"merged-{number}")
        says(tab, "can run")
    for tab in tabs:
        press(tab, "Merge")
    wait_until(lambda: page.states() == ["running", "running"])
    page.hold.unlink()
    for number, tab in enumerate(tabs):
        says(tab, "100% committed. Done")
        assert tab.run(f"document.body.innerText.includes('/merged-{number}\\n')")


def test_every_input_has_a_label_and_the_keyboard_reaches_it(chromium: Browser, page: Page) -> None:
    tab = opened(chromium, page)
    told = tab.accessible()
    roles = ("textbox", "combobox", "button", "listbox", "checkbox", "slider", "spinbutton")
    assert [role for role, name in told if role in roles and not name.strip()] == []
    names = [name for role, name in told if role in roles]
    wanted = ["Recipe (YAML)", "Name of the output", "Merge", "Run", "Stop", "Resume"]
    assert set(wanted) <= set(names)
    tab.run(f"{field('Recipe (YAML)')}.focus()")
    tab.press("Tab", 9)
    assert tab.run(f"document.activeElement === {field('Name of the output')}")
    tab.press("Tab", 9)
    assert tab.run(f"document.activeElement === {button('Merge')}")


def test_no_token_and_no_file_leaves(chromium: Browser, page: Page) -> None:
    tab = opened(chromium, page)
    evil = "<img src=x onerror=\"document.title='it ran'\">${document.title='it ran'}{{value}}"
    write(tab, "Recipe (YAML)", LINEAR.replace("math", json.dumps(evil)))
    says(tab, evil)
    assert tab.run("document.title") == "resumerge"
    write(tab, "Recipe (YAML)", LINEAR)
    write(tab, "Name of the output", "merged")
    says(tab, "can run")
    press(tab, "Merge")
    says(tab, "100% committed. Done")
    secret = page.folder / "base" / "config.json"
    for file in (secret, Path("/etc/passwd"), page.folder / "recipes" / "merged.yaml"):
        with pytest.raises(HTTPError, match=r"40[34]"):
            OWN.open(f"{page.address}gradio_api/file={file}")
    join = f"{page.address}gradio_api/queue/join"
    evil_page = {"Origin": "https://evil.example", "Content-Type": "application/json"}
    with pytest.raises(HTTPError, match="403"):
        OWN.open(Request(join, b"{}", evil_page))
    shown = tab.run("document.documentElement.outerHTML")
    files = [file for file in page.folder.rglob("*") if file.is_file()]
    told = [page.log.read_text(), shown, *(file.read_bytes().decode("latin-1") for file in files)]
    assert not any(TOKEN in text for text in told)
    assert len(page.log.read_text().splitlines()) == 1
