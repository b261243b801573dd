"""Promise: a reported change of the last attempt is accepted; any other change is refused."""

from __future__ import annotations

import json

from crashing import Bench, Merge
from retrained_models import FILE, moved_over, retrained, with_own_models

REFUSED = "A source has changed since the run was created"


def replace(merge: Merge, name: str) -> bytes:
    """Give a model other weights, and return the former ones."""
    model = merge.models / name / FILE
    before = model.read_bytes()
    moved_over(model, retrained(model))
    return before


def stopped_by_a_change(bench: Bench, operations: int) -> Merge:
    """Give `math` other weights during a merge that has committed something, which stops it."""
    merge = with_own_models(bench.merge())
    paused = merge.start("run", operations // 2)
    replace(merge, "math")
    assert paused.go_on().code == 75
    assert merge.query("SELECT 1 FROM units WHERE committed_blocks")
    return merge


def test_another_model_that_changed_afterwards_is_refused(bench: Bench, operations: int) -> None:
    merge = stopped_by_a_change(bench, operations)
    before = replace(merge, "code")
    refused = merge.resume()
    assert refused.code == 2
    assert REFUSED in refused.stderr
    assert f"code/{FILE} has different contents" in refused.stderr
    moved_over(merge.models / "code" / FILE, before)
    assert merge.resume().code == 0


def test_what_was_told_of_an_attempt_is_not_told_of_the_next(bench: Bench, operations: int) -> None:
    """The next attempt continues with the other weights; a later change is another one."""
    merge = stopped_by_a_change(bench, operations)
    merge.resume(operations // 2)
    assert [row["n"] for row in merge.query("SELECT n FROM attempts")] == [1, 2]
    assert merge.query("SELECT 1 FROM units WHERE attempt = 2")
    replace(merge, "math")
    refused = merge.resume()
    assert refused.code == 2
    assert f"math/{FILE} has different contents" in refused.stderr


def test_a_change_is_told_once(bench: Bench, operations: int) -> None:
    """The event names the changed models, and the units that were committed of them."""
    merge = stopped_by_a_change(bench, operations)
    [told] = merge.query("SELECT data FROM events WHERE kind = 'source_changed'")
    data = json.loads(told["data"])
    assert data["models"] == ["math"]
    assert data["files"] == [str(merge.models / "math" / FILE)]
    committed = merge.query("SELECT name FROM units WHERE committed_blocks ORDER BY number")
    assert data["units"] == len(committed)
    assert data["names"] == [row["name"] for row in committed][:5]
