"""`python -m suites renew REPORT…` writes the times that a run took; `check REPORT` reads them.

`check` fails where a quick file takes far longer than it may. It counts CPU time, which depends
little on what else the machine does, and allows `ALLOWANCE` times the limit for what it does; on a
machine where the whole suite takes more CPU time than is kept, each file may take as much more.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

from suites.measured import KEPT, LIMIT, divided, kept_times, measured_in, representatives
from suites.names import file_of, function_of

ALLOWANCE = 4
"""A quick test may compute with both cores, and caches and pages are shared with other programs."""

START = 5.0
"""The CPU seconds of imports, which count for the file that is the first to need them."""


def renew(reports: list[Path]) -> None:
    """Write the times of a run, and print what that changes."""
    before, found = kept_times(), measured_in(reports)
    after = divided(found, before)
    KEPT.write_text(after.text(), encoding="utf-8")
    cases = {True: 0, False: 0}
    for name, one in found.items():
        cases[name in after.slow] += one.cases
    print(f"{cases[False]} quick tests, {sum(after.quick.values()):.0f} s")
    print(f"{cases[True]} slow tests, {sum(after.slow.values()):.0f} s")
    for name in sorted(after.slow.keys() - before.slow.keys()):
        print(f"slow now: {name} ({after.slow[name]:.1f} s, {found[name].cases} cases)")
    for name in sorted(found.keys() & before.slow.keys() - after.slow.keys()):
        print(f"quick now: {name}")


def check(reports: list[Path]) -> int:
    """Return 1 if a file of the quick suite took far longer than it may, and print its name."""
    found, kept = measured_in(reports), sum(kept_times().quick.values())
    slower = max(1.0, sum(one.cpu for one in found.values()) / kept)
    chosen = set(map(function_of, representatives()))
    files: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for name, one in found.items():
        if name not in chosen:
            files[file_of(name)][0] += one.cases
            files[file_of(name)][1] += one.cpu
    failed = 0
    for file, (cases, seconds) in sorted(files.items()):
        allowed = slower * (START + ALLOWANCE * LIMIT * cases)
        if seconds > allowed:
            failed = 1
            print(
                f"{file}: its {cases:.0f} quick tests took {seconds:.0f} s of CPU time; they may "
                f"take {allowed:.0f}. Make them quicker, or run `make times` on a quiet machine."
            )
    return failed


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["renew", *reports] if reports:
            renew([Path(report) for report in reports])
        case ["check", *reports] if reports:
            sys.exit(check([Path(report) for report in reports]))
        case _:
            sys.exit(__doc__)
