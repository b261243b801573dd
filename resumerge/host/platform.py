"""The kind of this machine (Colab, Kaggle, a notebook, or another), and the kind of its output.

Both are determined from environment variables and folders, without the network.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path("/")
TERMINAL, CELL, LOG = "terminal", "cell", "log"


@dataclass(frozen=True)
class Platform:
    """The kind of a machine.

    Args:
        kind: ``colab``, ``kaggle``, ``notebook`` or ``machine``.
        notebook: whether this process is a Jupyter kernel or a child of one.
    """

    kind: str
    notebook: bool

    @property
    def ephemeral(self) -> bool:
        """Whether the machine and its disk may disappear during a merge."""
        return self.kind in ("colab", "kaggle")


def find_platform(root: Path = ROOT, env: Mapping[str, str] | None = None) -> Platform:
    """Find the kind of this machine.

    Args:
        root: the root of the file system.
        env: the environment variables; None for those of this process.
    """
    env = os.environ if env is None else env
    is_notebook = in_notebook(env)
    if _on_colab(root, env):
        return Platform("colab", is_notebook)
    if _on_kaggle(root, env):
        return Platform("kaggle", is_notebook)
    return Platform("notebook" if is_notebook else "machine", is_notebook)


def in_notebook(env: Mapping[str, str] | None = None) -> bool:
    """Return whether the output of this process is shown in a notebook's cell, not on a terminal.

    IPython runs the commands of a cell (``!resumerge run …``) in a pseudo-terminal, so `isatty`
    returns True there. Environment variables are checked instead. The launcher of a kernel sets
    JPY_PARENT_PID for the kernel and its children. A kernel sets the other four variables,
    independently of its launcher.
    """
    env = os.environ if env is None else env
    kernel = {"TERM": "xterm-color", "CLICOLOR": "1", "PAGER": "cat", "GIT_PAGER": "cat"}
    return "JPY_PARENT_PID" in env or all(env.get(k) == v for k, v in kernel.items())


def goes_to(stream: IO[str], env: Mapping[str, str] | None = None) -> str:
    """Return the place where a stream is displayed: ``terminal``, ``cell`` or ``log``.

    A cell cannot display a progress bar: it shows control codes as text, and every state of the bar
    on a line of its own.
    """
    env = os.environ if env is None else env
    if in_notebook(env):
        return CELL
    try:
        is_terminal = stream.isatty() and env.get("TERM") != "dumb"
    except ValueError:  # the stream is closed
        return LOG
    return TERMINAL if is_terminal else LOG


def _on_colab(root: Path, env: Mapping[str, str]) -> bool:
    return "COLAB_RELEASE_TAG" in env or (
        (root / "content").is_dir() and (root / "opt/google/drive").is_dir()
    )


def _on_kaggle(root: Path, env: Mapping[str, str]) -> bool:
    return "KAGGLE_KERNEL_RUN_TYPE" in env or (root / "kaggle/working").is_dir()
