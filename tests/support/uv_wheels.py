"""Wheels that uv installs without a network: this checkout, and empty ones of its dependencies.

The modules of the empty ones are in the environment of the tests. torch has no wheel: a script that
requires it cannot be installed.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")


class Wheels:
    """A folder of wheels, and settings with which uv finds no others.

    Args:
        folder: the folder to be made, with uv's cache in it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "wheels").mkdir(parents=True)
        project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
        needed = project["dependencies"]
        self._write("resumerge", project["version"], needed, [CHECKOUT])
        here = [Path(sysconfig.get_path("purelib"))]
        for name in (re.split(r"[^\w-]", line)[0] for line in needed):
            if name != "torch":
                self._write(name, version(name), [], here)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of a process that runs uv."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("UV_", "VIRTUAL_ENV"))}
        return {
            **kept,
            "UV_CACHE_DIR": str(self._folder / "cache"),
            "UV_FIND_LINKS": str(self._folder / "wheels"),
            "UV_NO_CONFIG": "1",
            "UV_NO_INDEX": "1",
            "UV_OFFLINE": "1",
            "UV_PYTHON": sys.executable,
            "UV_PYTHON_DOWNLOADS": "never",
        }

    def _write(self, name: str, number: str, needed: list[str], places: list[Path]) -> None:
        """Write a wheel of metadata and a .pth file, which names the folders of the modules."""
        stem = f"{name.replace('-', '_')}-{number}"
        about = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {number}"]
        about += [f"Requires-Dist: {line}" for line in needed]
        kind = ["Wheel-Version: 1.0", "Generator: tests", "Root-Is-Purelib: true"]
        files = {
            f"{name}.pth": "\n".join(map(str, places)),
            f"{stem}.dist-info/METADATA": "\n".join(about),
            f"{stem}.dist-info/WHEEL": "\n".join([*kind, "Tag: py3-none-any"]),
        }
        files[f"{stem}.dist-info/RECORD"] = "".join(f"{file},,\n" for file in files)
        path = self._folder / "wheels" / f"{stem}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            for file, text in files.items():
                wheel.writestr(file, f"{text}\n")
