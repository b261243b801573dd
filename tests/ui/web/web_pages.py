"""A page that a process serves, and what a person does with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from chromium import Browser, Tab
from waiting import wait_until

import resumerge

TOKEN = "hf_thisisatokenwhichnobodymaysee"


class Page:
    """The page that a process serves, and its folder.

    Args:
        folder: its folder.
        hold: the file that holds merges, as long as it is there.
        variables: more variables of its environment.
    """

    def __init__(self, folder: Path, hold: Path, variables: Mapping[str, str]) -> None:
        self.folder, self.hold, self._variables = folder, hold, variables
        self.log = folder.with_name("log")
        self.start()

    def start(self) -> None:
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "resumerge", "ui", str(self.folder), "--port", "0"],
                env=os.environ | {"HF_TOKEN": TOKEN} | dict(self._variables),
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        wait_until(lambda: self.log.read_text().endswith("/\n"), self._process)
        self.address = self.log.read_text().strip()

    def states(self) -> list[str]:
        runs = resumerge.status(state_dir=self.folder / "state")["runs"]
        return [run["state"] for run in runs]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        self.hold.unlink(missing_ok=True)
        self._process.terminate()
        self._process.wait()


class Served(Protocol):
    """A page that a process serves."""

    address: str


def opened(chromium: Browser, page: Served, width: int = 1280) -> Tab:
    tab = chromium.open(page.address, width)
    wait_for_page(tab)
    return tab


def wait_for_page(tab: Tab) -> None:
    """Wait until every part is there, and what is typed stays: the page's timer has run."""
    tab.wait("document.querySelector('[aria-label=Run]') !== null")
    tab.wait(f"{button('Compare models')} !== undefined")
    wait_until(lambda: tab.requests("/queue/join") > 2)


def field(label: str) -> str:
    """Return the JavaScript of the input with a label."""
    labelled = f"[...document.querySelectorAll('label')].find(e => e.innerText.includes('{label}'))"
    return f"{labelled}?.querySelector('input, textarea')"


def button(name: str) -> str:
    named = f"e => e.innerText.trim().startsWith('{name}')"
    return f"[...document.querySelectorAll('button')].find({named})"


def write(tab: Tab, label: str, text: str) -> None:
    tab.run(f"{field(label)}.focus(); {field(label)}.select()")
    tab.type(text)


def says(tab: Tab, text: str) -> None:
    tab.wait(f"document.body.innerText.includes({json.dumps(text)})")


def press(tab: Tab, name: str) -> None:
    tab.wait(f"{button(name)} && !{button(name)}.disabled")
    tab.run(f"{button(name)}.click()")
