"""A session that runs cases and counts their outcomes."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable
from itertools import count
from mmap import mmap
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import psutil

from fuzz.kernel_calls.arguments import Arguments, Files
from fuzz.kernel_calls.calls import CALLS
from fuzz.kernel_calls.mistakes import Refusal, make_wrong
from resumerge.native import _kernels

ALLOWED = (ValueError, TypeError, MemoryError, Refusal)
THREADS = 3
TOGETHER = 0.01
"""The part of the cases in which several threads make several calls with the same arguments."""

STATUS_SECONDS = 60.0


class Session:
    """A session that calls functions with random arguments.

    Args:
        seed: the seed of the draws; seed and number determine a case.
        folder: the folder for files that are read.
        now: memory for the number of the current case, to be read after the end of this process.
    """

    def __init__(self, seed: str, folder: Path, now: mmap) -> None:
        self._seed, self._files, self._now = seed, Files(folder), now
        self._outcomes: Counter[tuple[str, str]] = Counter()
        self._findings = 0

    @property
    def has_findings(self) -> bool:
        return self._findings > 0

    def run(self, seconds: float, most: int | None) -> None:
        """Run cases and print their outcomes.

        Args:
            seconds: the time after which it stops, if there is no `most`.
            most: the number of calls after which it stops.
        """
        began = told = time.monotonic()
        for number in count():
            self.case(number)
            now = time.monotonic()
            if now - told > STATUS_SECONDS:
                told = now
                print(self._line(now - began), flush=True)
            if self._calls >= most if most is not None else now - began > seconds:
                break
        self._print_table()
        print(self._line(time.monotonic() - began), flush=True)

    def case(self, number: int) -> None:
        self._now[:8] = number.to_bytes(8, "little")
        draw = Random(f"{self._seed} {number}")
        _kernels.use(draw.choice(_kernels.instruction_sets()))
        given = Arguments(draw, self._files)
        try:
            if draw.random() < TOGETHER:
                self._call_together(given)
            else:
                self._call_once(given)
        except Exception:
            self._findings += 1
            print(f"FOUND by case {number} of seed {self._seed}\n{traceback.format_exc()}")

    def _call_once(self, given: Arguments) -> None:
        function, draw_arguments = given.draw.choice(CALLS)
        arguments = draw_arguments(given)
        right = given.draw.random() < 0.5
        if not right:
            make_wrong(arguments, given)
        before = [memoryview(result).tobytes() for result in given.results]
        raised = self._call(function, arguments)
        for constant, content in given.constants:
            assert constant == content, f"{function}: it wrote to bytes"
        if not raised:
            return
        assert not right, f"{function}: {raised!r} for right arguments"
        if not given.meddled and not isinstance(raised, MemoryError):
            after = [memoryview(result).tobytes() for result in given.results]
            assert before == after, f"{function}: it wrote, and raised {raised!r}"

    def _call_together(self, given: Arguments) -> None:
        calls = []
        for function, draw_arguments in given.draw.choices(CALLS, k=5):
            arguments = draw_arguments(given)
            if given.draw.random() < 0.5:
                make_wrong(arguments, given)
            calls.append((function, arguments))
        unexpected: list[Exception] = []

        def call_all(first: int) -> None:
            try:
                for function, arguments in calls[first:] + calls[:first]:
                    self._call(function, arguments)
            except Exception as error:
                unexpected.append(error)

        threads = [Thread(target=call_all, args=(first,)) for first in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if unexpected:
            raise ExceptionGroup("in threads", unexpected)

    def _call(self, function: Callable[..., Any], arguments: list[Any]) -> Exception | None:
        """Return the exception that the call raised if it is an expected one; raise any other."""
        raised, outcome = None, "computed"
        try:
            function(*arguments)
        except ALLOWED as error:
            raised = error
            outcome = next(kind.__name__ for kind in ALLOWED if isinstance(error, kind))
        self._outcomes[function.__qualname__, outcome] += 1
        return raised

    @property
    def _calls(self) -> int:
        return sum(self._outcomes.values())

    def _line(self, seconds: float) -> str:
        rss = psutil.Process().memory_info().rss
        return (
            f"{self._calls} calls in {seconds:.0f} s, {self._calls / seconds:.0f} a second; "
            f"{rss / 1e6:.0f} MB; {self._findings} findings"
        )

    def _print_table(self) -> None:
        outcomes = sorted({outcome for _, outcome in self._outcomes}, reverse=True)
        print(f"{'':32}" + "".join(f"{outcome:>14}" for outcome in outcomes))
        for name in sorted({name for name, _ in self._outcomes}):
            counts = "".join(f"{self._outcomes[name, outcome]:14}" for outcome in outcomes)
            print(f"{name:32}{counts}")
