"""Writes the repository's address from pyproject.toml into the notebooks: `make notebook`."""

import json
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "colab" / "resumerge.ipynb", ROOT / "doors" / "kaggle.ipynb"
PROJECT = ROOT / "pyproject.toml"


def with_address(notebook: str, project: str) -> str:
    """The text of a notebook with the address that the text of a pyproject.toml has, if any."""
    address = tomllib.loads(project)["project"].get("urls", {}).get("Repository", "")
    line = json.dumps(f'repository = "{address}"')[1:-1]
    return re.sub(r'\brepository = \\"[^"]*\\"', lambda found: line, notebook)


if __name__ == "__main__":
    for path in NOTEBOOKS:
        path.write_text(with_address(path.read_text(), PROJECT.read_text()))
