"""Makes without-torch.txt from pyproject.toml: what the package depends on, but for torch.

``python release/without_torch.py`` writes the file; ``python release/without_torch.py test`` prints
the requirements of an extra, without the libraries that depend on torch.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FILE = ROOT / "without-torch.txt"

NEED_TORCH = {"torch", "transformers", "peft", "diffusers", "mergekit"}
"""The libraries that are torch, install it, or do little without it."""

HEADER = """\
# Made by `make without-torch` from pyproject.toml. A small installation, in a clone:
#     pip install -r without-torch.txt && pip install --no-deps -e .
"""


def project() -> dict[str, Any]:
    """Return the table ``project`` of pyproject.toml."""
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"])


def without_torch(requirements: list[str]) -> list[str]:
    """Return the requirements of libraries that do not need torch, in their order."""
    return [text for text in requirements if re.split(r"[^\w.-]", text)[0] not in NEED_TORCH]


def contents() -> str:
    """Return what without-torch.txt has to say."""
    return HEADER + "".join(f"{text}\n" for text in without_torch(project()["dependencies"]))


if __name__ == "__main__":
    if extras := sys.argv[1:]:
        for extra in extras:
            print(*without_torch(project()["optional-dependencies"][extra]), sep="\n")
    else:
        FILE.write_text(contents(), encoding="utf-8")
