"""The entry point of ``resumerge`` and ``python -m resumerge``."""

from __future__ import annotations

import os


def main() -> None:
    """Run the command line, and end with the command's exit code."""
    # Before NumPy is imported: the threads of its OpenBLAS would spin without work.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from resumerge.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
