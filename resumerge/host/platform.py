"""What kind of machine this is: a Colab or Kaggle VM, a cluster's node, a container, a laptop.

Found by what each leaves lying about: environment variables, folders, `/proc` and `/sys`. Nothing
is asked over a network, and nothing is imported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")

_SCHEDULERS = {
    "SLURM_JOB_ID": "Slurm",
    "PBS_JOBID": "PBS",
    "LSB_JOBID": "LSF",
    "JOB_ID": "Grid Engine",
    "KUBERNETES_SERVICE_HOST": "Kubernetes",
}
"""The variable that each sets for its jobs. Only with SGE_ROOT is JOB_ID Grid Engine's."""

_CONTAINED = ("docker", "containerd", "kubepods", "libpod", "lxc", "garden")
"""Words in the path of a cgroup that a container's runtime made."""


@dataclass(frozen=True)
class Platform:
    """What was found.

    Args:
        kind: the word that tells most: ``colab``, ``kaggle``, ``notebook``, ``cluster``,
            ``container``, ``laptop`` or ``machine``.
        notebook: this process is a Jupyter kernel or a child of one.
        scheduler: whose job this is, like ``Slurm``; None for nobody's.
        container: it runs in one.
        laptop: there is a battery.
    """

    kind: str
    notebook: bool
    scheduler: str | None
    container: bool
    laptop: bool

    @property
    def vanishes(self) -> bool:
        """Whether the machine and its disk may be taken away while it works."""
        return self.kind in ("colab", "kaggle")


def find_platform(root: Path = ROOT, env: Mapping[str, str] | None = None) -> Platform:
    """Look around.

    Args:
        root: where the file system begins.
        env: environment variables; by default those of this process.
    """
    env = os.environ if env is None else env
    notebook, scheduler = in_notebook(env), _scheduler(env)
    container, laptop = _in_container(root), _has_battery(root)
    if _on_colab(root, env):
        kind = "colab"
    elif _on_kaggle(root, env):
        kind = "kaggle"
    elif scheduler:
        kind = "cluster"
    elif notebook:
        kind = "notebook"
    else:
        kind = "container" if container else "laptop" if laptop else "machine"
    return Platform(kind, notebook, scheduler, container, laptop)


def in_notebook(env: Mapping[str, str] | None = None) -> bool:
    """Whether what this process prints is shown in a notebook's cell, not on a real terminal.

    IPython gives the commands of a cell (``!resumerge run …``) a pseudo-terminal, so that
    `isatty` is true there. What launches a kernel sets JPY_PARENT_PID for it and its children; a
    kernel sets the other four, whoever launched it.
    """
    env = os.environ if env is None else env
    kernel = {"TERM": "xterm-color", "CLICOLOR": "1", "PAGER": "cat", "GIT_PAGER": "cat"}
    return "JPY_PARENT_PID" in env or all(env.get(k) == v for k, v in kernel.items())


def _on_colab(root: Path, env: Mapping[str, str]) -> bool:
    return "COLAB_RELEASE_TAG" in env or (
        (root / "content").is_dir() and (root / "opt/google/drive").is_dir()
    )


def _on_kaggle(root: Path, env: Mapping[str, str]) -> bool:
    return "KAGGLE_KERNEL_RUN_TYPE" in env or (root / "kaggle/working").is_dir()


def _scheduler(env: Mapping[str, str]) -> str | None:
    for variable, name in _SCHEDULERS.items():
        if env.get(variable) and (variable != "JOB_ID" or "SGE_ROOT" in env):
            return name
    return None


def _in_container(root: Path) -> bool:
    if any((root / mark).exists() for mark in (".dockerenv", "run/.containerenv")):
        return True
    groups = _read(root / "proc/1/cgroup")
    return any(word in groups for word in _CONTAINED)


def _has_battery(root: Path) -> bool:
    try:
        supplies = list((root / "sys/class/power_supply").iterdir())
    except OSError:
        return False
    return any(
        _read(supply / "type").strip() == "Battery"
        and _read(supply / "scope").strip() != "Device"  # of a mouse, say
        for supply in supplies
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
