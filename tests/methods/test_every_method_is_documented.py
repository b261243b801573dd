"""docs/methods.md is current, and every method says what it must."""

import pytest
from methods_table import DOCUMENT, updated

from resumerge.methods import METHODS


def test_the_table_is_current() -> None:
    text = DOCUMENT.read_text()
    assert text == updated(text), "run: python tests/methods/methods_table.py"


@pytest.mark.parametrize("name", METHODS.built_in)
def test_a_method_says_what_it_computes(name: str) -> None:
    method = METHODS[name]
    assert method.name == name
    assert len(method.summary) < 100
    documented = [base.__doc__ for base in type(method).__mro__ if base.__module__ != "builtins"]
    assert documented[0] or documented[1]
    assert all(paper.url.startswith("https://") for paper in method.papers)
    assert all(p.meaning for p in method.parameters)
