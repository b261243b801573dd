"""What the crash tests share: a small merge, its uninterrupted output, and crashes of it."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import os
import shutil
import signal
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fork_server import Server
from ledger_rows import query
from waiting import wait_until

from resumerge.ledger import LEDGER_FILE, Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.output_path import OutputPath

DRIVER = Path(__file__).with_name("driver.py")
KILLED = -9
RECIPE = """\
merge_method: dare_ties
base_model: base
models:
  - {model: math, parameters: {weight: 0.6}}
  - {model: code, parameters: {weight: 0.4}}
parameters: {density: 0.5}
dtype: float32
out_dtype: bfloat16
"""
"""A recipe with random masks, an election of signs and a reduction over whole tensors."""


@dataclass(frozen=True)
class Ended:
    """The end of one process.

    Args:
        code: the exit code, or minus the number of the signal that ended the process.
        kinds: every operation that the process reached, in order.
        written: (file name, offset, bytes) of every write.
        stderr: the text on stderr.
        states: (number of an operation, name of a copy, writes before) of every copy that it made.
    """

    code: int
    kinds: list[str]
    written: list[tuple[str, int, int]]
    stderr: str
    states: list[tuple[int, str, int]] = field(default_factory=list)


@dataclass(frozen=True)
class State:
    """The files that a crash before an operation would leave, of an attempt that continued.

    Args:
        point: the number of the operation.
        copy: a copy of the output and the ledger.
        attempts: the attempts up to the crash.
    """

    point: int
    copy: Path
    attempts: list[Ended]


class Driver(Server):
    """A server that merges on request."""

    def __init__(self) -> None:
        super().__init__(DRIVER)

    def end(self) -> Ended:
        """Wait for the end of the job."""
        code, told, stderr = self.wait()
        written = [(name, offset, nbytes) for name, offset, nbytes in told.get("written", [])]
        states = [(point, name, count) for point, name, count in told.get("states", [])]
        return Ended(code, told.get("kinds", []), written, stderr, states)

    def logged(self) -> dict[str, Any]:
        """Wait for the job's log, and return its content."""
        wait_until(self.log.exists, every=0.002)
        return dict(json.loads(self.log.read_text()))


@dataclass(frozen=True)
class Paused:
    """An attempt that is stopped before an operation, or has ended before it reached it."""

    merge: Merge
    pid: int

    def go_on(self) -> Ended:
        """Let the attempt continue to its end."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)
        ended = self.merge.driver.end()
        self.merge.attempts.append(ended)
        return ended


@dataclass
class Merge:
    """One merge in a folder of its own: its attempts, its output, its ledger.

    Args:
        folder: the folder of everything but the output and the ledger.
        root: the folder of the output and the ledger.
        models: the folder of the recipe's models.
        recipe: YAML text.
        options: the options of every attempt.
        block: the number of elements in a block.
        uncommitted_limit: the governor's limit in bytes.
        output: the path of the output below `root`.
        name: a name that no other merge in the same folder has.
        imports: modules that the driver imports before the first attempt.
    """

    folder: Path
    driver: Driver
    models: Path
    recipe: str
    options: Mapping[str, Any]
    block: int = 512
    uncommitted_limit: int = 8192
    output: str = "merged"
    root: Path = Path()
    name: str = "first"
    attempts: list[Ended] = field(default_factory=list)
    imports: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.root = self.root / self.folder.name if self.root.name else self.folder / "disk"
        self.out = self.root / self.output
        self.state = self.root / "state"
        self.config = self.folder / "recipe.yaml"
        (self.folder / "graveyard").mkdir(parents=True)
        self.root.mkdir()
        self.config.write_text(self.recipe)
        self._verified = False

    def run(self, at: int | None = None, mode: str = "kill", **more: Any) -> Ended:
        """Run `resumerge run`, which crashes at an operation."""
        return self._attempt("run", at, mode, **more)

    def resume(self, at: int | None = None, mode: str = "kill", **more: Any) -> Ended:
        """Run `resumerge resume OUT`, which crashes at an operation."""
        return self._attempt("resume", at, mode, **more)

    def record(
        self, points: Iterable[int], mode: str = "kill", command: str = "run", **more: Any
    ) -> list[State]:
        """Run or resume to the end, and return what crashes at these operations would leave.

        Operations that leave the same bytes give one state: the last one, which has written most.
        """
        before, folder = [*self.attempts], self.folder / f"states{len(self.attempts)}"
        folder.mkdir()
        ended = self._attempt(command, None, mode, points=points, states=folder, **more)
        assert ended.code == 0, ended.stderr
        states = {}
        for point, name, writes in ended.states:
            crashed = Ended(KILLED, ended.kinds[:point], ended.written[:writes], "")
            states[name] = State(point, folder / name, [*before, crashed])
        return list(states.values())

    def become(self, state: State) -> None:
        """Replace the output and the ledger by those of a state."""
        shutil.rmtree(self.root)
        shutil.copytree(state.copy, self.root, symlinks=True)
        self.attempts, self._verified = [*state.attempts], False

    def verify(self) -> Ended:
        """Run `resumerge verify OUT`, which exits with 0 if the output is complete and intact."""
        return self._attempt("verify", None, "kill")

    def finish(self) -> Ended:
        """Resume, or run if the crash came before the run existed; then verify."""
        command = "resume" if self.runs() else "run"
        ended = self._attempt(f"{command}, verify", None, "kill")
        assert ended.code == 0, ended.stderr
        self._verified = True
        return ended

    def start(self, command: str, at: int) -> Paused:
        """Start to `run` or `resume`, and stop before an operation."""
        self.driver.begin(**self._job(command, at, "pause", 0, {}), points=[], states="")
        pid = self.driver.logged()["pid"]
        wait_until(lambda: not _is_running(pid), every=0.002)
        return Paused(self, pid)

    def _attempt(
        self,
        command: str,
        at: int | None,
        mode: str,
        seed: int = 0,
        points: Iterable[int] = (),
        states: Path = Path(),
        **options: Any,
    ) -> Ended:
        self._verified = False
        job = self._job(command, at, mode, seed, options)
        self.driver.begin(**job, points=[*points], states=states)
        ended = self.driver.end()
        self.attempts.append(ended)
        return ended

    def _job(
        self, command: str, at: int | None, mode: str, seed: int, options: dict[str, Any]
    ) -> dict[str, Any]:
        return {
            "command": command,
            "root": self.root,
            "graveyard": self.folder / "graveyard",
            "log": self.folder / f"{self.name}.json",
            "stderr": self.folder / f"{self.name}.stderr",
            "at": at,
            "mode": mode,
            "seed": seed,
            "models": self.models,
            "config": self.config,
            "out": self.out,
            "state": self.state,
            "options": {**self.options, **options},
            "block": self.block,
            "uncommitted_limit": self.uncommitted_limit,
            "imports": [*self.imports],
        }

    # What is there

    def runs(self) -> list[Path]:
        """Return the folders of the runs in the state folder."""
        return RunStore(self.state).runs()

    def ledger(self) -> Ledger:
        """Return the ledger of the only run, which the caller closes."""
        (folder,) = self.runs()
        return Ledger(folder / LEDGER_FILE)

    def query(self, sql: str) -> list[dict[str, Any]]:
        """Return rows of the ledger."""
        (folder,) = self.runs()
        return query(folder / LEDGER_FILE, sql)

    def events(self) -> list[str]:
        """Return the kinds of all events."""
        return [row["kind"] for row in self.query("SELECT kind FROM events ORDER BY id")]

    def files(self) -> dict[str, bytes]:
        """Return every file of the output, or of its folder if it is one file, by its path."""
        folder = OutputPath(self.out).folder
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }

    def rewritten(self) -> int:
        """Return the bytes of tensors that were written again, over all attempts."""
        heads = {s["name"]: s["header_bytes"] for s in self.query("SELECT * FROM shards")}
        total, places = 0, set()
        for attempt in self.attempts:
            for name, offset, nbytes in attempt.written:
                shard = name.removesuffix(".partial")
                if shard in heads and offset >= heads[shard]:
                    total += nbytes
                    places.add((shard, offset, nbytes))
        return total - sum(nbytes for _, _, nbytes in places)

    def largest_limit(self) -> int:
        """Return the largest uncommitted limit in the ledger."""
        rows = self.query("SELECT max(batch_bytes) AS n FROM attempts")
        return int(rows[0]["n"] or self.uncommitted_limit)

    def remove(self) -> None:
        """Delete the files of the merge."""
        shutil.rmtree(self.root)
        shutil.rmtree(self.folder)

    # What must be so

    def assert_finals_are(self, reference: Mapping[str, bytes]) -> None:
        """Check that every file that has its final name is complete."""
        for name, data in self.files().items():
            if not name.endswith((".partial", ".lock")):
                assert data == reference[name], f"{name} has its final name but is not whole"

    def assert_done(self, reference: Mapping[str, bytes]) -> None:
        """Check that the output has the bytes of the uninterrupted run, and the run is done."""
        found = self.files()
        assert sorted(found) == sorted(reference)
        for name, data in found.items():
            assert data == reference[name], f"{name} differs"
        (_,) = (folder for folder in self.state.iterdir() if any(folder.iterdir()))
        if not self._verified:
            verified = self.verify()
            assert verified.code == 0, verified.stderr
        assert self.query("SELECT state FROM run")[0]["state"] == "done"

    def assert_resumed(self, reference: Mapping[str, bytes]) -> None:
        """Check a crashed merge: its files are right, it continues, and writes little again."""
        self.assert_finals_are(reference)
        self.finish()
        self.assert_done(reference)
        assert self.rewritten() <= self.largest_limit()


class Bench:
    """A maker of merges and of their crashes, as many at a time as there are drivers."""

    def __init__(
        self,
        drivers: Sequence[Driver],
        folder: Path,
        models: Path,
        recipe: str,
        options: Mapping[str, Any],
        output: str = "merged",
    ) -> None:
        """Set the drivers, and what all merges have in common.

        Args:
            drivers: the drivers that merge.
            folder: the folder of the merges.
            models: the folder of the recipe's models.
            recipe: YAML text.
            options: the options of every attempt.
            output: the folder or file to be written.
        """
        self._output = output
        self._folder, self.models, self.recipe, self.options = folder, models, recipe, options
        self._drivers = drivers
        self.imports: Sequence[str] = ()
        """Modules that drivers import once, for all attempts that follow."""
        self.block, self.uncommitted_limit = 512, 8192
        """The elements of a block and the uncommitted limit in bytes: larger for larger models."""
        self._names = itertools.count()

    def merge(self, recipe: str | None = None, worker: int = 0, disk: Path | None = None) -> Merge:
        """Return a merge that has not begun; its output and ledger may be on another disk."""
        folder = self._folder / f"{next(self._names)}"
        driver, recipe = self._drivers[worker], recipe or self.recipe
        root, output = disk or Path(), self._output
        merge = Merge(folder, driver, self.models, recipe, self.options, root=root, output=output)
        merge.imports, merge.block = self.imports, self.block
        merge.uncommitted_limit = self.uncommitted_limit
        return merge

    def beside(self, first: Merge) -> Merge:
        """Return the same merge for another process that works at the same time."""
        second = copy.copy(first)
        second.driver, second.name, second.attempts = self._drivers[1], "second", []
        return second

    def calm(self, recipe: str | None = None) -> tuple[Ended, dict[str, bytes]]:
        """Merge without interruptions; return how the merge ended, and its output."""
        merge = self.merge(recipe)
        ended = merge.run()
        assert ended.code == 0, ended.stderr
        try:
            return ended, merge.files()
        finally:
            merge.remove()

    def each(
        self,
        points: Iterable[Any],
        check: Callable[[Merge, Any], None],
        recipe: str | None = None,
    ) -> None:
        """Check every point, each on a merge of its own, and fail with all errors."""

        def work(worker: int, share: Sequence[Any], wrong: list[str]) -> None:
            for point in share:
                merge = self.merge(recipe, worker)
                if not (said := _went_wrong(check, merge, point)):
                    merge.remove()
                wrong += said

        self._share([*points], work)

    def each_state(
        self,
        points: Iterable[int],
        check: Callable[[Merge], None],
        mode: str = "kill",
        recipe: str | None = None,
        prepare: Callable[[Merge], None] = lambda merge: None,
        command: str = "run",
        **options: Any,
    ) -> int:
        """Check what crashes at these operations leave, and fail with all errors.

        Every driver records one attempt. Crashes that leave the same bytes are one.

        Args:
            points: numbers of operations of the attempt.
            check: a function that checks a merge whose attempt crashed.
            mode: the mode of the crashes.
            recipe: the recipe of the merge.
            prepare: a function that is called before the attempt.
            command: the command of the attempt: ``run`` or ``resume``.
            options: the options of the attempt.

        Returns:
            how many of the operations the attempts reached.
        """
        reached = []

        def work(worker: int, share: Sequence[int], wrong: list[str]) -> None:
            merge = self.merge(recipe, worker)
            prepare(merge)
            states = merge.record(share, mode, command, **options)
            count = len(merge.attempts[-1].states)
            reached.append(count)
            print(f"{mode} at {count} operations, which leaves {len(states)} states")
            for state in states:
                merge.become(state)
                wrong += _went_wrong(lambda merge, _: check(merge), merge, state.point)
            merge.remove()

        self._share([*points], work)
        return sum(reached)

    def _share(
        self, todo: Sequence[Any], work: Callable[[int, Sequence[Any], list[str]], None]
    ) -> None:
        """Give every driver a share of the points, which are consecutive."""
        wrong: list[str] = []
        count = len(self._drivers)
        ends = [len(todo) * k // count for k in range(count + 1)]
        with ThreadPoolExecutor(count) as pool:
            begun = [pool.submit(work, k, todo[ends[k] : ends[k + 1]], wrong) for k in range(count)]
        for share in begun:
            share.result()
        assert not wrong, f"{len(wrong)} of {len(todo)}:\n" + "\n".join(wrong[:5])

    def check_crashes(
        self,
        points: Iterable[int],
        reference: Mapping[str, bytes],
        mode: str = "kill",
        recipe: str | None = None,
    ) -> int:
        """Crash at operations, resume and compare; return how many of them were reached."""
        return self.each_state(points, lambda merge: merge.assert_resumed(reference), mode, recipe)

    def check_kills(self, reference: Mapping[str, bytes], operations: int, points: int) -> None:
        """Kill at about so many of the operations, resume, and compare."""
        some = range(1, operations + 1, max(1, operations // points))
        assert self.check_crashes(some, reference) >= points - 1


def _went_wrong(check: Callable[[Merge, Any], None], merge: Merge, point: Any) -> list[str]:
    """Return the error that a check raised, with its point; an empty list if it passed."""
    try:
        check(merge, point)
    except BaseException:
        crashes = [a.kinds[-1] for a in merge.attempts if a.code == KILLED]
        return [f"--- at {point} {crashes}\n{traceback.format_exc(limit=-3)}"]
    return []


def _is_running(pid: int) -> bool:
    """Return whether any thread of a process has neither stopped nor ended."""
    try:
        states = [
            path.read_text().rpartition(")")[2].split()[0]
            for path in Path(f"/proc/{pid}/task").glob("*/stat")
        ]
    except (FileNotFoundError, ProcessLookupError):  # a thread has just ended: look again
        return True
    return any(state not in "TtZX" for state in states)


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))
