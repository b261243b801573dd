"""A virtual environment with everything except this package, which a test installs there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import venv
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]

QUICK = """#!/bin/sh
exec {compiler} "$@" -O0
"""
"""A compiler that does not optimise, since nothing compiled is measured: it is much quicker."""


class FreshVenv:
    """The virtual environment of a user who has not installed the package.

    The packages of this process's environment are linked into it, so nothing is downloaded.

    Args:
        folder: the folder to be made.
    """

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self.python = folder / "bin" / "python"
        compiler = folder / "bin" / "quick-cc"
        compiler.write_text(QUICK.format(compiler=sysconfig.get_config_var("CC")))
        compiler.chmod(0o755)
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "PYTHON"))},
            "CC": str(compiler),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_INDEX_URL": "http://127.0.0.1:9/",  # where nothing is
            "PIP_NO_BUILD_ISOLATION": "0",  # which means: without isolation
            "PIP_RETRIES": "0",
        }
        (here,) = folder.glob("lib/python*/site-packages")
        for entry in Path(sysconfig.get_path("purelib")).iterdir():
            if "resumerge" not in entry.name:
                (here / entry.name).symlink_to(entry)

    def run(self, *words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run Python with some words, outside of the checkout."""
        return subprocess.run(
            [str(self.python), *map(str, words)],
            cwd=cwd,
            env=self.environment,
            capture_output=True,
            text=True,
        )

    def pip(self, *words: object, cwd: Path) -> None:
        """Run pip, and require that it succeeds."""
        done = self.run("-m", "pip", *words, cwd=cwd)
        assert done.returncode == 0, done.stdout + done.stderr


def copy_checkout(folder: Path) -> Path:
    """Copy the files that an installation is made from, and the folders beside them."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
    for name in ("resumerge", "colab", "configs", "state", "benchmarks"):
        shutil.copytree(CHECKOUT / name, folder / name, ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, folder)
    return folder
