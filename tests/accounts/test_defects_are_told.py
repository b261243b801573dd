"""Defects of a model, and of its use in a recipe, are reported: before the merge by a problem or by
the accounts of tensors, which --strict refuses; after the merge by the effect on its numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from accounted import planned
from defects import ACCOUNTED, HARMLESS, REFUSED, WORRYING
from merging import Told, working_in

from resumerge.documents.accounts import describe_accounts
from resumerge.engine.lifecycle.session import Session
from resumerge.engine.opening.plan_rows import account_rows
from resumerge.errors import DoubtfulNumbers, InputError
from resumerge.options import Options
from resumerge.ui.text.accounts import account_lines


def test_there_are_25() -> None:
    assert sum(map(len, (REFUSED, ACCOUNTED, HARMLESS, WORRYING))) == 25


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name: str, tmp_path: Path) -> None:
    build, words = REFUSED[name]
    recipe = build(tmp_path)
    with pytest.raises(InputError) as refused:
        planned(tmp_path, recipe)
    for said in words:
        assert said in str(refused.value)


@pytest.mark.parametrize("name", ACCOUNTED)
def test_it_is_told_and_refused_if_asked(name: str, tmp_path: Path) -> None:
    build, words = ACCOUNTED[name]
    recipe = build(tmp_path)
    for said in words:
        assert said in lines(tmp_path, recipe)
    with pytest.raises(InputError, match="would not be used"):
        planned(tmp_path, recipe, strict=True)


@pytest.mark.parametrize("name", HARMLESS)
def test_nothing_is_lost(name: str, tmp_path: Path) -> None:
    build, words = HARMLESS[name]
    recipe = build(tmp_path)
    for said in words:
        assert said in lines(tmp_path, recipe, strict=True)


@pytest.mark.parametrize("name", WORRYING)
def test_its_numbers_are_told_and_strict_fails(name: str, tmp_path: Path) -> None:
    build, words = WORRYING[name]
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(build(tmp_path))

    def merge(out: str, **options: Any) -> list[str]:
        reporter = Told()
        with working_in(tmp_path):
            Session(Options(state_dir=tmp_path / "state", **options), reporter).run(
                recipe, tmp_path / out
            )
        return reporter.notes[reporter.notes.index("done") + 1 :]

    said = "\n".join(merge("out"))
    assert all(word in said for word in words), said
    with pytest.raises(DoubtfulNumbers) as raised:
        merge("again", strict=True)
    assert all(word in str(raised.value) for word in words)


def lines(models: Path, recipe: str, **options: Any) -> str:
    """Return the lines about the tensors that a run of this recipe ends with."""
    plan = planned(models, recipe, **options)
    found = describe_accounts(account_rows(plan.accounts), every=False)
    return "\n".join(account_lines(found))
