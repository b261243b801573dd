"""Promise: a stage's result is written to a scratch file where that takes less time than to compute
it again; what is written is computed once, however often it is read.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from made_up_plans import staged, tensor, vectors

from resumerge.methods import METHODS
from resumerge.planning import Plan
from resumerge.planning.stage_results import spilled as spilling
from resumerge.planning.stage_results.kept import with_kept
from resumerge.planning.stage_results.spilled import Materialize, with_spilled
from resumerge.tensors import Computed, Merged, Sliced, Spilled, Stored, spilled_in

MIB = 1 << 20
SIZE = 3 * MIB
"""Elements of a tensor: more than are read at once."""

BYTES = 4 * SIZE / MIB
READ = 1.0
"""The milliseconds to read a MiB here, long enough to count beside the computation."""

COST = {name: METHODS[name].cost.milliseconds for name in ("linear", "ties", "iso_c")}
SELECTING = ", density: 0.5"


def document(name: str, method: str, *models: str, more: str = "") -> str:
    listed = ", ".join(f"{{model: {model}}}" for model in models)
    base = f"base_model: {models[0]}\n" if METHODS[method].base == "required" else ""
    head = f"name: {name}\n" if name else ""
    values = f"parameters: {{weight: 1{more}}}\n"
    return f"{head}merge_method: {method}\n{base}{values}models: [{listed}]\n"


def recipe(*documents: str) -> str:
    return "---\n".join(documents)


SUM = document("sum", "linear", "a", "b")


def planned(text: str, *shape: int) -> Plan:
    """Return the plan of a recipe for models of one tensor."""
    found = {"t0": tensor("t0", shape or (SIZE,))}
    return staged(text, *(replace(vectors(name, 1), tensors=found) for name in "abc"))


def spilled(plan: Plan) -> list[Spilled]:
    """Return the tensors that are spilled, each once."""
    found = (node for unit in plan.units for node in spilled_in(unit.expression))
    return [*dict.fromkeys(found)]


def names(plan: Plan) -> list[str]:
    """Return the models of each spilled merge, joined by "+"."""
    merges = ([n for n in s.tensor.nodes() if isinstance(n, Merged)][-1] for s in spilled(plan))
    return sorted("+".join(merged.models) for merged in merges)


def most_for_writing(monkeypatch: pytest.MonkeyPatch, plan: Plan, what: str) -> float:
    """Return the milliseconds per MiB written from which on a result is not spilled."""
    monkeypatch.setattr(spilling, "READ_MS", READ)
    low, high = 0.0, 1e4
    for _ in range(40):
        middle = (low + high) / 2
        monkeypatch.setattr(spilling, "WRITE_MS", middle)
        is_spilled = what in names(with_spilled(plan, Materialize.AUTO))
        low, high = (middle, high) if is_spilled else (low, middle)
    return low


OF_TWO = COST["linear"] * 2 * SIZE / MIB + 2 * READ * BYTES
"""The milliseconds to compute a sum of two, both of which are read."""


@pytest.mark.parametrize(
    ("last", "times"),
    [
        (document("", "ties", "a", "sum", more=SELECTING), 3),
        (document("", "sce", "a", "sum", "b", more=", select_topk: 0.5"), 5),
        (recipe(document("left", "linear", "sum", "a"), document("", "linear", "left", "sum")), 2),
        (
            recipe(
                document("left", "ties", "a", "sum", more=SELECTING),
                document("", "linear", "left", "sum"),
            ),
            4,
        ),
    ],
    ids=["selection", "five passes", "by two ways", "passes, and once more"],
)
def test_each_pass_that_reads_it_counts(
    monkeypatch: pytest.MonkeyPatch, last: str, times: int
) -> None:
    plan = planned(recipe(SUM, last))
    wanted = (times - 1) * OF_TWO / BYTES - times * READ
    assert most_for_writing(monkeypatch, plan, "a+b") == pytest.approx(wanted, abs=1e-6)


def test_what_takes_time_to_decode_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(recipe(SUM, document("", "ties", "a", "sum", more=SELECTING)))
    monkeypatch.setattr(Stored, "own_milliseconds", 2 * SIZE)
    wanted = 2 * (OF_TWO + 2 * 2 * SIZE / MIB) / BYTES - 3 * READ
    assert most_for_writing(monkeypatch, plan, "a+b") == pytest.approx(wanted, abs=1e-6)


def test_what_a_spilled_result_is_computed_of_is_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The operands of a spilled result are read by its scans, and then once for its blocks."""
    inner = document("left", "ties", "a", "sum", more=SELECTING)
    plan = planned(recipe(SUM, inner, document("", "ties", "a", "left", more=SELECTING)))
    monkeypatch.setattr(spilling, "WRITE_MS", 0.0)
    assert "a+left" not in names(plan)
    limit = most_for_writing(monkeypatch, plan, "a+sum")
    own = COST["ties"] * 2 * SIZE / MIB / 3 + READ * BYTES + OF_TWO
    assert limit == pytest.approx(2 * own / BYTES - 3 * READ, abs=1e-6), "one of its passes"
    for over, times in ((-0.01, 3), (0.01, 5)):
        monkeypatch.setattr(spilling, "WRITE_MS", limit + over)
        worth = (times - 1) * OF_TWO / BYTES - times * READ > limit + over
        found = names(with_spilled(plan, Materialize.AUTO))
        assert found == ["a+b"] * worth + ["a+sum"] * (over < 0), "2 scans, and 1 or 3 of blocks"


def test_a_matrix_that_is_read_in_parts_is_computed_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A method of whole matrices computes its one block again for each part that is read.

    A method that needs the whole matrix reads it at once.
    """
    rows = 1025
    whole = document("sum", "iso_c", "a", "b")
    parts = planned(recipe(whole, document("", "linear", "sum", "c")), rows, 2048)
    numel = rows * 2048
    own = COST["iso_c"] * 2 * numel / MIB + 2 * READ * 4 * numel / MIB
    limit = most_for_writing(monkeypatch, parts, "a+b")
    assert limit == pytest.approx(2 * own / (4 * numel / MIB) - READ, abs=1e-6), "3 parts"
    monkeypatch.setattr(spilling, "WRITE_MS", 0.0)
    again = planned(recipe(whole, document("", "iso_c", "c", "sum")), rows, 2048)
    assert names(with_spilled(again, Materialize.AUTO)) == []
    for first, second in (("iso_c", "linear"), ("linear", "iso_c")):
        both = recipe(
            whole,
            document("left", first, "c", "sum"),
            document("right", second, "c", "sum"),
            document("", "linear", "left", "right", "c"),
        )
        plan = planned(both, rows, 2048)
        assert names(with_spilled(plan, Materialize.AUTO)) == ["a+b", "c+sum"], "in parts by one"
        with monkeypatch.context() as patched:
            patched.setattr(spilling, "WRITE_MS", 1e5)
            assert names(with_spilled(plan, Materialize.AUTO)) == []


@pytest.mark.parametrize(
    ("inner", "shape", "worth"),
    [
        (SUM, (1 << 18,), False),
        (SUM, ((1 << 18) + 1,), True),
        (document("sum", "iso_c", "a", "b"), (1024, 1024), False),
        (document("sum", "iso_c", "a", "b"), (1024, 1025), True),
    ],
)
def test_what_is_read_once_for_all_passes_is_not(
    monkeypatch: pytest.MonkeyPatch, inner: str, shape: tuple[int, ...], worth: bool
) -> None:
    """All passes share one computation of a result that fits in a block, or in one read."""
    monkeypatch.setattr(spilling, "WRITE_MS", 0.0)
    monkeypatch.setattr(spilling, "READ_MS", 0.01)
    plan = planned(recipe(inner, document("", "ties", "a", "sum", more=SELECTING)), *shape)
    assert names(with_spilled(plan, Materialize.AUTO)) == ["a+b"] * worth


TWICE = recipe(
    SUM,
    document("left", "linear", "sum", "a"),
    document("right", "linear", "sum", "b"),
    document("", "linear", "left", "right"),
)


def test_all_or_none_can_be_asked_for() -> None:
    plan = planned(TWICE)
    assert with_spilled(plan, Materialize.NEVER) is plan
    inner = document("sum", "ties", "a", "b", more=SELECTING)
    dear = planned(recipe(inner, document("", "ties", "a", "sum", more=SELECTING)))
    assert names(with_spilled(dear, Materialize.AUTO)) == ["a+b"]
    assert names(with_spilled(plan, Materialize.AUTO)) == [], "a sum is soon computed"
    made = with_spilled(plan, Materialize.ALWAYS)
    assert names(made) == ["a+b", "sum+a", "sum+b"], "of stages, not of the output"
    assert {each.block_elements for each in spilled(made)} == {1 << 18}
    assert isinstance(made.units[0].expression, Merged)
    assert made.stages is plan.stages, "stages are not computed from scratch files of their own"


def test_what_is_used_twice_is_one_file_and_what_is_spilled_reads_files_too() -> None:
    made = with_spilled(planned(TWICE), Materialize.ALWAYS)
    [root] = [unit.expression for unit in made.units]
    left, right = root.children()
    assert isinstance(left, Spilled) and isinstance(right, Spilled)
    inner = [side.tensor.children()[0] for side in (left, right)]
    assert isinstance(inner[0], Spilled) and inner[0] is inner[1]


def test_what_no_stage_computes_is_not() -> None:
    """A stage that only copies has its tensors in files already."""
    copy = "name: copy\nmerge_method: passthrough\nmodels: [{model: a}]\n"
    plan = planned(recipe(copy, document("", "ties", "copy", "b", more=SELECTING)))
    assert with_spilled(plan, Materialize.ALWAYS) is plan


def test_the_unit_of_a_kept_stage_is_not_spilled_itself() -> None:
    """The unit of a kept stage is not spilled itself; its operand is.

    The output reads the stage's result from a scratch file.
    """
    inner = document("left", "ties", "a", "sum", more=SELECTING)
    plan = planned(recipe(SUM, inner, document("", "linear", "left", "b")))
    made = with_spilled(with_kept(plan, ["left"]), Materialize.ALWAYS)
    model, stage = (unit.expression for unit in made.units)
    assert isinstance(model.children()[0], Spilled)
    assert isinstance(stage, Merged)
    assert isinstance(stage.children()[1], Spilled)


def test_what_is_cut_out_of_a_result_is_a_result() -> None:
    plan = planned(recipe(SUM, document("", "linear", "sum", "c")))
    [stage], [unit] = plan.stages[0].units, plan.units
    part = Sliced.of("t0", (SIZE // 2,), stage.expression, 0)
    other = Sliced.of("t0", (SIZE // 2,), unit.expression.children()[1], 0)
    cut = replace(unit, expression=unit.expression.with_children((part, other)))
    stages = (replace(plan.stages[0], units=(replace(stage, expression=part),)),)
    made = with_spilled(replace(plan, stages=stages, units=(cut,)), Materialize.ALWAYS)
    [found] = spilled(made)
    assert found.tensor is part


def test_each_tensor_of_a_stage_is_decided_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (10, SIZE, 2 * SIZE)
    plan = staged(
        recipe(SUM, document("", "ties", "a", "sum", more=SELECTING)),
        *(vectors(name, *sizes) for name in "abc"),
    )
    monkeypatch.setattr(spilling, "WRITE_MS", 0.0)
    made = with_spilled(plan, Materialize.AUTO)
    assert [each.name for each in spilled(made)] == ["t1", "t2"]


def test_what_a_step_alone_reads_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step has read its tensors before the first block, so that they are not spilled."""
    plan = planned(recipe(SUM, document("", "ties", "a", "sum", more=SELECTING)))
    [stage] = plan.stages
    step: Any = SimpleNamespace(tensors=lambda part: (stage.units[0].expression,))
    gate = Computed.of("gate", (SIZE,), step, 0)
    [unit] = plan.units
    plan = replace(plan, units=(replace(unit, expression=gate),))
    monkeypatch.setattr(spilling, "WRITE_MS", 0.0)
    for how in (Materialize.AUTO, Materialize.ALWAYS):
        assert with_spilled(plan, how).units[0].expression is gate
