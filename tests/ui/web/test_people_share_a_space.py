"""Promise: people of a Space see only what is theirs, and the runs of a lost Space continue.

A stand-in for Hugging Face's login identifies people; everything else is as in a Space.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from chromium import CHROMIUM, Browser, Tab
from login_provider import SECRET, LoginProvider
from loopback_hub import Hub
from no_more_uploads import NoMoreUploads
from spaces import TOKENS, Space, logged_in
from tiny_models import LLAMA, write_family
from waiting import wait_until
from web_pages import TOKEN, opened, press, says, write

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
    pytest.mark.needs("gradio"),
    pytest.mark.needs("authlib"),
]

CONFIG = {**LLAMA, "hidden_size": 128, "intermediate_size": 320, "num_hidden_layers": 8}
RECIPE = """\
merge_method: linear
models: [{model: org/base}, {model: org/math}]
parameters: {weight: 0.5}
"""
SECRETS = (TOKEN, SECRET, *TOKENS.values())


@pytest.fixture
def models(hub: Hub, tmp_path: Path) -> Hub:
    """Commit two models of 4 MB for all to the Hub, and one that only Ann may read."""
    family = write_family(tmp_path / "family", CONFIG)
    for repo, name in (("org/base", "base"), ("org/math", "math"), ("ann/secret", "code")):
        hub.commit(repo, {file.name: file.read_bytes() for file in (family / name).iterdir()})
    hub.repos["ann/secret"].private = True
    hub.tokens = {token: f"@{person}" for person, token in TOKENS.items()} | {TOKEN: "write"}
    return hub


@pytest.fixture
def space(models: Hub, tmp_path: Path) -> Iterator[Space]:
    provider = LoginProvider(TOKENS)
    served = Space(tmp_path / "people", provider)
    yield served
    served.end()
    provider.close()


def planned(tab: Tab, recipe: str, name: str) -> None:
    """Plan a merge that makes many shards, one after the other."""
    write(tab, "Recipe (YAML)", recipe)
    write(tab, "Name of the output", name)
    press(tab, "Options of the merge")
    write(tab, "Shard size", "400KB")
    write(tab, "Threads", "1")
    says(tab, "can run")


def weights(hub: Hub, repo: str) -> dict[str, bytes]:
    return {name: data for name, data in hub.contents(repo).items() if name.startswith("model")}


def _contents(folder: Path) -> list[str]:
    """Return the contents of all files; start over if a running merge renames one meanwhile."""
    while True:
        try:
            files = [file for file in folder.rglob("*") if file.is_file()]
            return [file.read_bytes().decode("latin-1") for file in files]
        except FileNotFoundError:
            continue


def assert_no_secret(space: Space, *tabs: Tab) -> None:
    """Check that no page, log, file, ledger or command line contains a secret."""
    told = _contents(space.folder)
    told += [tab.run("document.documentElement.outerHTML") for tab in tabs]
    told += [space.log.read_text()]
    for process in space.processes():
        with suppress(psutil.Error):  # it has just ended
            told.append(" ".join(process.cmdline()))
    assert [secret for secret in SECRETS if any(secret in text for text in told)] == []


def test_a_space_that_is_lost_goes_on_from_the_mirror(
    space: Space, models: Hub, chromium: Browser
) -> None:
    fault = NoMoreUploads(models, "ann/merged")
    tab = logged_in(chromium, space, "ann")
    planned(tab, RECIPE, "merged")
    press(tab, "Merge")
    wait_until(lambda: fault.reached)
    assert_no_secret(space, tab)
    space.lose()
    fault.end()
    assert models.repos["ann/merged"].private
    assert "config.json" not in models.contents("ann/merged"), "in the middle of the merge"

    space.start()
    tab = logged_in(chromium, space, "ann")
    press(tab, "Go on from a mirror")
    press(tab, "Look for mirrors")
    tab.wait("document.querySelector('[aria-label=Mirror]').value === 'merged'")
    press(tab, "Go on from it")
    says(tab, "100% committed. Done in 2 attempts")
    planned(tab, RECIPE, "uninterrupted")
    press(tab, "Merge")
    says(tab, "100% committed. Done in 1 attempt")
    made = weights(models, "ann/merged")
    assert len(made) > 4
    assert made == weights(models, "ann/uninterrupted")
    assert_no_secret(space, tab)


def test_two_people_at_once_do_not_see_each_other(
    space: Space, models: Hub, chromium: Browser
) -> None:
    fault = NoMoreUploads(models, "ann/hers")
    ann = logged_in(chromium, space, "ann")
    planned(ann, RECIPE.replace("org/math", "ann/secret"), "hers")
    press(ann, "Merge")
    wait_until(lambda: fault.reached)

    bob = logged_in(chromium, space, "bob", width=390)
    write(bob, "Recipe (YAML)", RECIPE.replace("org/math", "ann/secret"))
    says(bob, "a token that may read this model")
    write(bob, "Recipe (YAML)", RECIPE.replace("org/math", f"{space.of('ann')}/hers"))
    says(bob, "This path leads out of the page's folder")
    planned(bob, RECIPE, "his")
    press(bob, "Merge")
    says(bob, "100% committed. Done")
    assert not bob.run("document.body.innerText.includes('hers')")
    assert "his" not in [path.name for path in space.of("ann").iterdir()]
    assert bob.run("document.documentElement.scrollWidth") == 390
    # A page says that a merge is done when the ledger does; its process ends a moment later.
    wait_until(lambda: space.tokens_of_processes() == {TOKENS["ann"]})

    press(bob, "Upload to the Hub")
    write(bob, "Repo", "ann/his")
    press(bob, "Push")
    says(bob, "The push did not end")
    write(bob, "Repo", "bob/copy")
    press(bob, "Push")
    says(bob, "Done: ")
    assert weights(models, "bob/copy") == weights(models, "bob/his")
    press(bob, "Go on from a mirror")
    press(bob, "Remove the chosen run")
    says(bob, "Removed from here")
    assert not (space.of("bob") / "his").exists()

    write(ann, "Name of the output", "more")
    says(ann, "You have as many merges at work as you may")
    press(ann, "Merge")
    says(ann, "The merge did not begin")
    assert_no_secret(space, ann, bob)
    authorizations = {request.authorization for request in [*models.log]}
    assert f"Bearer {TOKEN}" not in authorizations, "the Space's own token is used for nobody"


def test_who_is_not_logged_in_has_nothing(space: Space, models: Hub, chromium: Browser) -> None:
    tab = opened(chromium, space)
    write(tab, "Recipe (YAML)", RECIPE)
    says(tab, "You are not logged in")
    press(tab, "Merge")
    says(tab, "The merge did not begin")
    assert not space.folder.exists()
    assert models.requests == []
