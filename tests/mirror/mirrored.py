"""Small merges with a mirror in a folder, whose every operation a test may spoil."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fork_server import Server
from ledger_rows import query
from mirror_audit import AuditResult, check_mirror

from resumerge.ledger import LEDGER_FILE
from resumerge.ledger.run_store import RunStore
from resumerge.mirror.stores.folder import FolderStore

DRIVER = Path(__file__).with_name("mirror_driver.py")
KILLED = -9
RECIPE = """\
merge_method: linear
models:
  - {model: math, parameters: {weight: 0.6}}
  - {model: code, parameters: {weight: 0.4}}
dtype: float32
out_dtype: bfloat16
"""


@dataclass(frozen=True)
class Ended:
    """The end of one process.

    Args:
        code: its exit code, or the negative number of the signal that ended it.
        kinds: every operation on the mirror, in order.
        failed: how many of them failed.
        stderr: the text of its standard error.
    """

    code: int
    kinds: list[str]
    failed: int
    stderr: str


class Driver(Server):
    """A server that merges on request."""

    def __init__(self) -> None:
        super().__init__(DRIVER)

    def work(self, **job: Any) -> Ended:
        """Do a job, and return how its process ended."""
        self.begin(**job)
        code, told, stderr = self.wait()
        return Ended(code, told.get("kinds", []), told.get("failed", 0), stderr)


@dataclass
class Merge:
    """One merge in a folder of its own, with its mirror.

    Args:
        folder: the folder of everything that belongs to the merge.
        models: the folder of the recipe's models.
        mirror: another place for the mirror.
        options: values of `Options`.
    """

    folder: Path
    driver: Driver
    models: Path
    mirror: Path = Path()
    options: dict[str, Any] = field(default_factory=dict)
    lease: str = "1"
    """Seconds. Who was killed while it wrote its lease is watched for so long."""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.out, self.state = self.folder / "merged", self.folder / "state"
        self.config = self.folder / "recipe.yaml"
        self.config.write_text(RECIPE)
        if self.mirror == Path():
            self.mirror = self.folder / "mirror"
        self.options = {"mirror": str(self.mirror), **self.options, "shard_size": 8000}

    def run(self, lacks: Iterable[str] = (), **far: Any) -> Ended:
        """Do `resumerge run --mirror`.

        Args:
            lacks, far: arguments of `FarStorage`.
        """
        return self._work("run", lacks, far)

    def resume(self, lacks: Iterable[str] = (), **far: Any) -> Ended:
        """Do `resumerge resume OUT`, or `run` if the run is not recorded yet."""
        return self._work("resume" if self.has_begun else "run", lacks, far)

    @property
    def has_begun(self) -> bool:
        """Whether there is a ledger."""
        return bool(RunStore(self.state).runs())

    def _work(self, command: str, lacks: Iterable[str], far: dict[str, Any]) -> Ended:
        return self.driver.work(
            command=command,
            lease=self.lease,
            mirror=self.mirror,
            far=far,
            lacks=list(lacks),
            log=self.folder / "log.json",
            stderr=self.folder / "stderr",
            models=self.models,
            config=self.config,
            out=self.out,
            state=self.state,
            options=self.options,
        )

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Return rows of the ledger of the only run."""
        (folder,) = RunStore(self.state).runs()
        return query(folder / LEDGER_FILE, sql)

    def events(self) -> list[str]:
        """Return the kinds of all events, in order."""
        return [row["kind"] for row in self.rows("SELECT kind FROM events ORDER BY id")]

    def checked(self) -> AuditResult:
        """Return the result of an audit of the mirror."""
        return check_mirror(FolderStore(self.mirror))

    def model(self) -> dict[str, bytes]:
        """Return every file of the output, by its path."""
        return files_in(self.out)

    def mirrored(self) -> dict[str, bytes]:
        """Return every file in the mirror but `done.json`, by its path."""
        found = files_in(self.mirror)
        found.pop(".resumerge/done.json", None)
        return found

    def assert_done(self, reference: dict[str, bytes]) -> None:
        """Assert that the mirror contains the model to the byte, its manifest, and nothing else."""
        checked = self.checked()
        assert (checked.state, checked.problems) == ("finished", {})
        assert self.mirrored() == reference
        assert sorted(checked.files) == sorted(reference)


def files_in(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file below a folder, by its path from there."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def one_of_each_kind(kinds: Sequence[str], numbers: Iterable[int]) -> list[int]:
    """Choose the first of one kind, the second of the next, so that all parts of a run have some.

    Args:
        kinds: the kinds of all operations, in order; numbers in them do not count.
        numbers: the numbers of the operations to choose from, counted from 1.
    """
    alike: dict[str, list[int]] = defaultdict(list)
    for number in numbers:
        alike[re.sub(r"[0-9a-f]{8,}|\d+", "#", kinds[number - 1])].append(number)
    return sorted(found[n % len(found)] for n, found in enumerate(alike.values()))


class Bench:
    """A factory of merges, which run as many at a time as it has drivers."""

    def __init__(self, folder: Path, models: Path) -> None:
        self._folder, self.models = folder, models
        self._drivers = [Driver() for _ in range(2)]
        self._names = itertools.count()

    def merge(self, worker: int = 0, mirror: Path = Path(), **options: Any) -> Merge:
        """Make a merge that has not begun.

        Args:
            mirror: the place of its mirror; by default a folder beside its output.
            options: values of `Options`.
        """
        folder = self._folder / f"{next(self._names)}"
        return Merge(folder, self._drivers[worker], self.models, mirror, options)

    def each(self, numbers: Iterable[int], check: Callable[[Merge, int], None]) -> None:
        """Do something with a new merge for each number, on all drivers."""
        shares = list(numbers)

        def work(worker: int) -> None:
            for number in shares[worker :: len(self._drivers)]:
                check(self.merge(worker), number)

        with ThreadPoolExecutor(len(self._drivers)) as pool:
            for done in [pool.submit(work, n) for n in range(len(self._drivers))]:
                done.result()

    def close(self) -> None:
        for driver in self._drivers:
            driver.close()
