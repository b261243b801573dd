"""A session that runs cases and counts their outcomes."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random

from fuzz.command_line import (
    EXPECTED,
    LARGEST_RSS,
    SECONDS,
    SIGNALLED,
    Ending,
    Took,
    call,
    limit_memory,
    limited_time,
    measured,
)
from fuzz.kinds import KINDS, Kind
from fuzz.place import Place

KEPT = 3
"""The most findings with the same text whose files are kept."""

LARGEST_KEPT = 1 << 24
"""The most bytes of a changed file that is kept."""

STATUS_SECONDS = 60.0


@dataclass(frozen=True)
class Case:
    """A case that was run.

    Args:
        changed: the changed file.
        endings: the ends of its commands.
    """

    kind: str
    number: int
    changed: Path
    endings: Sequence[Ending]
    took: Took

    @property
    def code(self) -> int:
        """The outcome: the largest of the exit codes."""
        return max(ending.code for ending in self.endings)

    @property
    def finding(self) -> str:
        """The text of a finding, the same for the same bug; empty if there is no finding."""
        for ending in self.endings:
            if ending.code not in EXPECTED:
                return ending.signature
        words = " ".join(ending.words[0] for ending in self.endings)
        if self.took.seconds > SECONDS:
            return f"{self.kind}, {words}: more than {SECONDS:g} s of CPU time"
        if self.took.peak_rss > LARGEST_RSS:
            return f"{self.kind}, {words}: more than {LARGEST_RSS / 1e6:.0f} MB"
        return ""


@dataclass
class Tally:
    """The counts of one kind."""

    cases: int = 0
    seconds: float = 0.0
    outcomes: Counter[int] = field(default_factory=Counter)
    findings: int = 0


class FuzzSession:
    """A session that runs cases of several kinds in turn.

    Args:
        folder: a new folder for everything that commands read and write.
        findings: the folder of the findings, made with the first one.
        seed: the seed of the draws; seed, kind and number determine a case.
        kinds: the names of kinds; None for all.
    """

    def __init__(
        self, folder: Path, findings: Path, seed: str, kinds: Sequence[str] | None = None
    ) -> None:
        self._place, self._findings, self._seed = Place(folder), findings, seed
        self._kinds: dict[str, Kind] = {name: KINDS[name]() for name in kinds or KINDS}
        for name, kind in self._kinds.items():
            self._place.prepare(name, kind.make)
        self._tallies = {name: Tally() for name in self._kinds}
        self._found: Counter[str] = Counter()
        self._rss, self._peak, self._slowest = 0, 0, 0.0
        limit_memory()

    @property
    def has_findings(self) -> bool:
        return bool(self._found)

    def run(self, seconds: float, most: int | None = None) -> None:
        """Run cases of all kinds in turn until a limit or a signal, then print their outcomes.

        Args:
            seconds: the time after which no round begins.
            most: the most cases of each kind; None for no limit.
        """
        began = time.monotonic()
        with suppress(KeyboardInterrupt):
            self._run_many(began, seconds, most)
        print("\n".join(self._table()))
        print(self._line(time.monotonic() - began))
        for finding, times in self._found.most_common():
            print(f"{times:6} x {finding}")

    def _run_many(self, began: float, seconds: float, most: int | None) -> None:
        told = began
        for number in count() if most is None else range(most):
            for name in self._kinds:
                self._account(self._run(name, number))
                now = time.monotonic()
                if now - told > STATUS_SECONDS:
                    told = now
                    print(self._line(now - began), flush=True)
            if now - began > seconds:
                break

    def show(self, name: str, number: int) -> None:
        """Run one case, and print what each command prints to stderr."""
        case = self._run(name, number)
        self._account(case)
        print(f"changed: {case.changed}")
        for ending in case.endings:
            print(f"$ resumerge {' '.join(ending.words)}\n{ending.said}-> {ending.code}")
        print(f"{case.took.seconds:.2f} s, {case.took.peak_rss / 1e6:.0f} MB")

    def _run(self, name: str, number: int) -> Case:
        kind, draw = self._kinds[name], Random(f"{self._seed} {name} {number}")
        self._place.restore(name)
        changed = kind.change(draw, self._place.work)
        commands = kind.commands(draw)
        endings = []
        with measured() as took, limited_time():
            for words in commands:
                endings.append(call(words))
                if endings[-1].code in SIGNALLED:
                    raise KeyboardInterrupt
        return Case(name, number, changed, endings, took)

    def _account(self, case: Case) -> None:
        tally = self._tallies[case.kind]
        tally.cases += 1
        tally.seconds += case.took.seconds
        tally.outcomes[case.code] += 1
        self._rss = case.took.rss
        self._peak = max(self._peak, case.took.peak_rss)
        self._slowest = max(self._slowest, case.took.seconds)
        if finding := case.finding:
            tally.findings += 1
            self._found[finding] += 1
            if self._found[finding] <= KEPT:
                self._keep(case)

    def _keep(self, case: Case) -> None:
        folder = self._findings / f"{case.kind}-{self._seed}-{case.number}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        again = f"make fuzz SEED={self._seed} CASE={case.kind}:{case.number}"
        facts = {
            "finding": case.finding,
            "again": again,
            "changed": str(case.changed),
            "commands": [[*ending.words, f"-> {ending.code}"] for ending in case.endings],
            "seconds": case.took.seconds,
            "peak_rss": case.took.peak_rss,
        }
        (folder / "case.json").write_text(json.dumps(facts, indent=2))
        (folder / "said.txt").write_text("\n\n".join(ending.said for ending in case.endings))
        if case.changed.is_file() and case.changed.stat().st_size <= LARGEST_KEPT:
            shutil.copy(case.changed, folder)
        print(f"FOUND {case.finding}\n      {again}", flush=True)

    def _line(self, seconds: float) -> str:
        cases = sum(tally.cases for tally in self._tallies.values())
        return (
            f"{cases} cases in {seconds:.0f} s, {cases / seconds:.1f} a second; "
            f"{self._rss / 1e6:.0f} MB, at most {self._peak / 1e6:.0f}; "
            f"slowest {self._slowest:.1f} s; "
            f"{sum(self._found.values())} findings of {len(self._found)} sorts"
        )

    def _table(self) -> Iterator[str]:
        codes = sorted({*EXPECTED, *(c for t in self._tallies.values() for c in t.outcomes)})
        yield f"{'':20}{'cases':>7}{'ms':>6}" + "".join(f"{f'exit {c}':>9}" for c in codes)
        for name, tally in self._tallies.items():
            each = 1000 * tally.seconds / max(tally.cases, 1)
            counts = "".join(f"{tally.outcomes[code]:9}" for code in codes)
            yield f"{name:20}{tally.cases:7}{each:6.0f}{counts}" + (
                f"  {tally.findings} findings" if tally.findings else ""
            )
