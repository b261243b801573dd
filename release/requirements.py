"""Prints what the package and its extras depend on: ``python release/requirements.py test``."""

from __future__ import annotations

import sys

from without_torch import project

if __name__ == "__main__":
    found = project()
    print(*found["dependencies"], sep="\n")
    for extra in sys.argv[1:]:
        print(*found["optional-dependencies"][extra], sep="\n")
