"""Promise: a change of any file that a tensor reads is noticed, and its effect is reported."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from made_up_plans import plan, remote, vectors

from resumerge.engine.evaluation.source_watch import SourceWatch
from resumerge.errors import Resumable
from resumerge.ledger import Progress
from resumerge.sources.types import Source

RECIPE = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"
PENDING = Progress(
    committed_blocks=0, hashes=b"", input_hashes=b"", checksum=None, attempt=None, batch=None
)
BEGUN = replace(PENDING, committed_blocks=1)


class Bench:
    """A plan whose files change when a test says so."""

    def __init__(self, *models: Source) -> None:
        self.plan = plan(RECIPE, *models)
        self.changed: set[tuple[int, str]] = set()
        self.looked: set[tuple[int, str]] = set()
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.progress = [PENDING] * len(self.plan.units)
        ledger: Any = SimpleNamespace(
            units=SimpleNamespace(progress=lambda: self.progress),
            events=SimpleNamespace(add=lambda kind, **facts: self.events.append((kind, facts))),
        )
        reader: Any = SimpleNamespace(changed=self._look)
        self.watch = SourceWatch(self.plan, ledger, reader)

    def _look(self, files: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
        files = set(files)
        self.looked |= files
        return sorted(files & self.changed)

    def stopped(self, unit: int | None = None) -> str:
        """Return the message that ends the run; a unit is the only one of its batch."""
        with pytest.raises(Resumable) as caught:
            self.watch.check_all() if unit is None else self.watch.check([self.plan.units[unit]])
        assert caught.value.reason == "source_changed"
        return str(caught.value)


@pytest.mark.parametrize("kind", ["local", "hub"])
def test_files_of_folders_and_of_the_hubs_cache_are_watched(kind: str) -> None:
    """Another program may clean the cache, or fetch a file again, while it is read."""
    bench = Bench(*(replace(remote(name, 3, 4), kind=kind) for name in "ab"))
    bench.watch.check(bench.plan.units[1:])
    assert bench.looked == {(0, "f1"), (1, "f1")}, "those that it reads"
    bench.watch.check_all()
    assert len(bench.looked) == 4
    bench.changed = {(1, "f0")}
    bench.watch.check(bench.plan.units[1:])
    bench.stopped(0)
    bench.stopped()


def test_each_unit_of_a_batch_counts() -> None:
    bench = Bench(remote("a", 3, 4, 5), vectors("b", 3, 4, 5))
    for file in ("f0", "f1", "f2"):
        bench.changed = {(0, file)}
        with pytest.raises(Resumable):
            bench.watch.check(bench.plan.units)


def test_what_had_been_computed_from_it_is_told() -> None:
    bench = Bench(remote("a", *[3] * 8), remote("b", *[3] * 8))
    bench.progress = [BEGUN] * 7 + [PENDING]
    bench.changed = {(0, "f7")}
    said = bench.stopped(7)
    assert "0 tensors had been computed" in said and "a/f7" in said and "(" not in said
    bench.changed = {(0, "f2"), (1, "f7")}
    said = bench.stopped()
    assert "1 tensor had been computed" in said and "(t2)" in said and "and more" not in said
    assert bench.events[-1] == (
        "source_changed",
        {
            "models": ["a", "b"],
            "files": [str(bench.plan.sources[n].path(f)) for n, f in ((0, "f2"), (1, "f7"))],
            "units": 1,
            "names": ["t2"],
        },
    )
    bench.changed = {(0, f"f{number}") for number in range(3)}
    said = bench.stopped()
    assert "a/f2 changed" in said and "(t0, t1, t2)" in said, "all of them are named"
    bench.changed = {(0, f"f{number}") for number in range(4)}
    said = bench.stopped()
    assert "4 tensors" in said and "(t0, t1, t2, …)" in said
    assert "a/f2 and more changed" in said and "a/f3" not in said
    bench.changed = {(0, f"f{number}") for number in range(8)}
    bench.stopped()
    facts = bench.events[-1][1]
    assert (facts["units"], len(facts["files"]), len(facts["names"])) == (7, 5, 5)
    assert facts["models"] == ["a"]


def test_files_that_did_not_change_are_no_event() -> None:
    bench = Bench(remote("a", 3), remote("b", 3))
    bench.watch.check_all()
    assert bench.events == []
