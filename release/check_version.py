"""Compares the version of pyproject.toml, its only place, with what is about to be released.

``python release/check_version.py [TAG]`` compares the files in dist/ and, given a tag, its name and
the headings of CHANGELOG.md. It exits with 1, and a line for each difference.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]


def differences(root: Path, tag: str | None) -> Iterator[str]:
    """Yield what does not fit the version, a line each."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, version = project["name"], project["version"]
    files = [path.name for path in sorted((root / "dist").glob("*"))]
    if not files:
        yield "dist/ is empty: run 'make wheel'"
    for file in files:
        if not file.startswith((f"{name}-{version}-", f"{name}-{version}.tar.gz")):
            yield f"dist/{file}: not of the version {version} of pyproject.toml"
    if tag is None:
        return
    if tag != f"v{version}":
        yield f"the tag {tag}: expected v{version}, from pyproject.toml"
    if f"## [{version}]" not in (root / "CHANGELOG.md").read_text(encoding="utf-8"):
        yield f"CHANGELOG.md: no heading '## [{version}]'"


if __name__ == "__main__":
    found = list(differences(ROOT, sys.argv[1] if len(sys.argv) > 1 else None))
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))
