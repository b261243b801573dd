"""The page of a Space that a process serves, with people who log in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
from chromium import Browser, Tab
from login_provider import LoginProvider
from waiting import kill_wholly, wait_until
from web_pages import TOKEN, says, wait_for_page

TOKENS = {"ann": "hf_tokenofannwhichnobodymaysee", "bob": "hf_tokenofbobwhichnobodymaysee"}

SERVE = """
import sys
from pathlib import Path
from resumerge.ui.web.space.limits import Limits
from resumerge.ui.web.space.server import serve_space

limits = Limits(all_runs=3, runs=1, disk=100_000_000, memory=1_000_000_000)
serve_space(Path(sys.argv[1]), limits, host="127.0.0.1", port=0)
"""


class Space:
    """A Space, whose owner has a token of its own.

    Args:
        folder: the folder of all people.
        provider: the server that logs them in.
    """

    def __init__(self, folder: Path, provider: LoginProvider) -> None:
        self.folder, self.provider = folder, provider
        self.log = folder.with_name("log")
        self.start()

    def start(self) -> None:
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-c", SERVE, str(self.folder)],
                env=os.environ | {"HF_TOKEN": TOKEN} | self.provider.settings,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        wait_until(lambda: self.log.read_text().endswith("/\n"), self._process)
        self.address = self.log.read_text().strip()

    def of(self, person: str) -> Path:
        return self.folder / f"id-of-{person}"

    def processes(self) -> list[psutil.Process]:
        """Return the processes that work for people."""
        return [found for found in psutil.process_iter() if self._is_below(found)]

    def tokens_of_processes(self) -> set[str]:
        """Return the Hub tokens that processes of people have; one that just ended has none."""
        tokens = set()
        for process in self.processes():
            with suppress(psutil.Error):
                if environment := process.environ():  # empty while it ends
                    tokens.add(environment["HF_TOKEN"])
        return tokens

    def _is_below(self, process: psutil.Process) -> bool:
        try:
            return Path(process.cwd()).is_relative_to(self.folder)
        except (psutil.Error, OSError):
            return False

    def lose(self) -> None:
        """Kill all processes and delete the folder, as if the machine were lost with its disk."""
        self._process.kill()
        self._process.wait()
        while found := self.processes():
            kill_wholly([process.pid for process in found])
        shutil.rmtree(self.folder)

    def end(self) -> None:
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):  # it has just ended
                process.kill()
        self._process.terminate()
        self._process.wait()


def logged_in(chromium: Browser, space: Space, person: str, width: int = 1280) -> Tab:
    """Open the page as a person who has just logged in, and return its tab."""
    space.provider.person = person
    tab = chromium.open(f"{space.address}login/huggingface", width)
    tab.wait("location.pathname === '/'")
    wait_for_page(tab)
    says(tab, f"Logout ({person})")
    return tab
