"""``python -m fuzz``: see `main`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

# What libraries read once, when they are imported; the place is chosen before.
MEMORY = Path("/dev/shm")
WHERE = MEMORY if os.access(MEMORY, os.W_OK) else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run cases for a while, and print a summary. Return 1 if there are findings, else 0."""
    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (60)")
    parser.add_argument("--cases", type=int, help="how many of each kind, at most")
    parser.add_argument("--seed", default="0", help="of the draw (0)")
    parser.add_argument("--kinds", help="names, with commas between them (all)")
    parser.add_argument("--case", help="one case, KIND:NUMBER, and what its commands say")
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"))
    given = parser.parse_args(arguments)
    findings = given.findings.absolute()
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=WHERE, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        _set_environment(folder)
        from fuzz.session import FuzzSession

        kind, _, number = (given.case or "").partition(":")
        chosen = kind or given.kinds
        names = chosen.split(",") if chosen else None
        session = FuzzSession(folder, findings, given.seed, names)
        try:
            if number:
                session.show(kind, int(number))
            else:
                session.run(given.seconds, given.cases)
        finally:
            os.chdir("/")
    return 1 if session.has_findings else 0


def _set_environment(folder: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("HF_", "RESUMERGE")):
            del os.environ[name]
    os.environ |= {
        "HOME": str(folder / "work" / "home"),
        "HF_HOME": str(folder / "work" / "hf"),
        "HF_HUB_OFFLINE": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "RESUMERGE_LEASE_SECONDS": "0.05",
        "COLUMNS": "120",
    }


if __name__ == "__main__":
    sys.exit(main())
