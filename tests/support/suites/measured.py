"""Times of tests: those in pytest's JUnit files of a run, and those that are kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from suites.names import file_of, function_of

LIMIT = 0.25
"""The most seconds that a case of a quick test takes, on average."""

KEPT = Path(__file__).with_name("times.txt")
REPRESENTATIVES = Path(__file__).with_name("representatives.txt")

HEADER = """\
# Seconds: of each slow test function, and of a file's quick ones if that is a second or more.
# Written by `make times`; after a merge conflict, keep the lines of both sides.
"""


@dataclass
class Measured:
    """The seconds that the cases of one test function took.

    Attributes:
        cases: the number of cases that ran; skipped ones do not count.
        own: wall time of all cases, without what they share with others.
        needs: wall time of making what they share with others: fixtures of modules and sessions.
        cpu: CPU time of the process and of those that it waited for.
    """

    cases: int = 0
    own: float = 0.0
    needs: float = 0.0
    cpu: float = 0.0


@dataclass(frozen=True)
class Times:
    """The times that are kept.

    Attributes:
        slow: seconds of each slow test function.
        quick: seconds of the quick tests of each file; a file may be missing.
    """

    slow: Mapping[str, float]
    quick: Mapping[str, float]

    def text(self) -> str:
        """Return the lines of the kept file, in the order of their names."""
        lines = [f"{name} {seconds:.1f}" for name, seconds in self.slow.items()]
        lines += [f"{name} {seconds:.0f}" for name, seconds in self.quick.items() if seconds >= 1]
        return HEADER + "".join(f"{line}\n" for line in sorted(lines))


def kept_times() -> Times:
    """Return the times that the last `make times` wrote."""
    kept = dict(line.rsplit(" ", 1) for line in _lines(KEPT))
    seconds = {name: float(text) for name, text in kept.items()}
    return Times(
        slow={name: took for name, took in seconds.items() if "::" in name},
        quick={name: took for name, took in seconds.items() if "::" not in name},
    )


def representatives() -> dict[str, str]:
    """Return promises by the slow test, or the single case of one, that stands for each."""
    return dict(reversed(line.split(": ", 1)) for line in _lines(REPRESENTATIVES))


def measured_in(reports: Iterable[Path]) -> dict[str, Measured]:
    """Return the times of each test function in a run, by its name.

    Args:
        reports: JUnit files.
    """
    found: dict[str, Measured] = defaultdict(Measured)
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase"):
            place = case.attrib["classname"].split(".")  # folders, the file, classes
            at = next((i for i, part in enumerate(place) if part.startswith("test_")), None)
            if at is None:
                continue  # a file that could not be collected
            parts = [f"{place[at]}.py", *place[at + 1 :], case.attrib["name"]]
            function = found[function_of("::".join(parts))]
            if case.find("skipped") is not None:
                continue
            told = {p.attrib["name"]: float(p.attrib["value"]) for p in case.iter("property")}
            function.cases += 1
            function.own += max(0.0, float(case.attrib["time"]) - told.get("shared", 0.0))
            function.needs = max(function.needs, told.get("needs", 0.0))
            function.cpu += told.get("cpu", 0.0)
    return found


def divided(found: Mapping[str, Measured], before: Times) -> Times:
    """Return the times of a run's slow functions, and those of the quick ones of each file.

    What functions of a file share is divided among them: if that makes them slow on average, each
    of them is slow. A function whose cases were all skipped keeps its time.
    """
    slow = {name: before.slow[name] for name in found.keys() & before.slow.keys()}
    quick: dict[str, float] = {}
    files: dict[str, dict[str, Measured]] = defaultdict(dict)
    for name, one in found.items():
        if one.cases:
            slow.pop(name, None)
            files[file_of(name)][name] = one
    for file, ran in files.items():
        kept = {name: one for name, one in ran.items() if one.own < LIMIT * one.cases}
        sharing = [one for one in kept.values() if one.needs]
        shared = max((one.needs for one in sharing), default=0.0)
        if shared + sum(one.own for one in sharing) > LIMIT * sum(one.cases for one in sharing):
            kept = {name: one for name, one in kept.items() if not one.needs}
            shared = 0.0
        slow.update({name: one.own for name, one in ran.items() if name not in kept})
        quick[file] = shared + sum(one.own for one in kept.values())
    return Times(slow, quick)


def _lines(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [line for line in lines if line and not line.startswith("#")]
