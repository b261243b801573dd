"""olah, a mirror of the Hub that others wrote, on the loopback interface.

It gets a virtual environment of its own: it needs fastapi-utils, which needs psutil below 6.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from loopback_s3.servers import answers, held_port
from waiting import wait_until

PACKAGE = "olah==0.5.4"
HOME = Path(sys.prefix) / "olah"

CONFIG = """
[basic]
host = "127.0.0.1"
port = {port}
repos-path = "{folder}/repos"
mirrors-path = ["{folder}/mirrors"]
[accessibility]
offline = true
"""


def install() -> Path:
    """Install olah, if it is not installed.

    Returns:
        The command that starts it.
    """
    ready = HOME / PACKAGE
    if not ready.exists():
        shutil.rmtree(HOME, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", HOME], check=True)
        subprocess.run([HOME / "bin" / "pip", "install", "--quiet", PACKAGE], check=True)
        ready.touch()
    return HOME / "bin" / "olah-cli"


class Olah:
    """A server of git repositories as the Hub's models; it sends whole files for ranges."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held = ExitStack()
        self.port = self._held.enter_context(held_port())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def commit(self, repo: str, files: dict[str, bytes]) -> str:
        """Put a model into a new repository, and return the id of its commit."""
        folder = self.folder / "mirrors" / "models" / repo
        folder.mkdir(parents=True)
        for name, data in files.items():
            (folder / name).write_bytes(data)
        self._git(folder, "init", "--quiet", "--initial-branch", "main")
        self._git(folder, "add", "--all")
        self._git(folder, "commit", "--quiet", "--message", "a model")
        return self._git(folder, "rev-parse", "HEAD").strip()

    def start(self) -> None:
        """Start the server, and return when it answers."""
        config = self.folder / "olah.toml"
        config.write_text(CONFIG.format(port=self.port, folder=self.folder))
        with (self.folder / "olah.log").open("w") as log:
            self._process = subprocess.Popen(
                [install(), "-c", config],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
            )
        wait_until(lambda: answers(f"{self.url}/"), self._process, every=0.1)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._held.close()

    def _git(self, folder: Path, *words: str) -> str:
        who = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
        return subprocess.run(
            ["git", *who, "-C", folder, *words], check=True, capture_output=True, text=True
        ).stdout
