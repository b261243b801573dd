"""Documents of one recipe name each other: every mistake is a problem at its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resumerge.errors import InputError
from resumerge.recipe import parse_recipe
from resumerge.recipe.load import InvalidRecipe


def document(name: str | None, *models: str, **more: str) -> str:
    lines = [f"name: {name}"] if name is not None else []
    lines += ["merge_method: linear", "models:"]
    lines += [f"  - {{model: {model}, parameters: {{weight: 1}}}}" for model in models]
    return "\n".join([*lines, *(f"{key}: {value}" for key, value in more.items())]) + "\n"


def recipe(*documents: str) -> str:
    return "---\n".join(documents)


FAULTS = {
    "two without a name": (
        recipe(document(None, "org/a"), document(None, "org/b")),
        [(5, "", "Two documents have no name")],
    ),
    "a name that two have": (
        recipe(document("first", "org/a"), document("first", "org/b"), document(None, "first")),
        [(6, "name", "'first' is that of two documents")],
    ),
    "a circle": (
        recipe(document("a", "b", "org/x"), document("b", "a"), document(None, "b")),
        [(4, "models[0].model", "'a' is made from itself")],
    ),
    "behind a circle": (
        recipe(document("x", "a"), document("a", "b"), document("b", "a"), document(None, "x")),
        [(9, "models[0].model", "'a' is made from itself")],
    ),
    "a stage of itself": (
        recipe(document("aaa", "org/x", "aaa"), document(None, "aaa")),
        [(5, "models[1].model", "'aaa' is made from itself")],
    ),
    "nobody uses it": (
        recipe(document("first", "org/a"), document("second", "org/b"), document(None, "first")),
        [(6, "name", "No document uses the stage 'second'")],
    ),
    "only one of those with names is the result": (
        recipe(document("first", "org/a"), document("second", "org/b")),
        [(1, "name", "No document uses the stage 'first'")],
    ),
    "a misspelt name": (
        recipe(document("first", "org/a"), document(None, "frist", "first")),
        [(8, "models[0].model", "No document has the name 'frist'")],
    ),
    "a name of a list": (
        recipe(document("[1]", "org/a"), document(None, "first")),
        [(1, "name", "[1] is not a valid stage name")],
    ),
    "each document's own mistakes": (
        recipe(document("first", "org/a", dtype="f12"), document(None, "first", dtype="f13")),
        [(5, "dtype", "dtype"), (10, "dtype", "dtype")],
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_mistake_is_a_problem_at_its_line(name: str) -> None:
    text, expected = FAULTS[name]
    with pytest.raises(InvalidRecipe) as caught:
        parse_recipe(text, "r.yaml")
    problems = caught.value.problems
    assert [(problem.line, problem.path) for problem in problems] == [e[:2] for e in expected]
    for problem, (_, _, words) in zip(problems, expected):
        assert words in problem.what
        assert problem.expected and problem.found and problem.fix


def test_the_document_without_a_name_is_the_result() -> None:
    found = parse_recipe(recipe(document(None, "second"), document("second", "org/a")))
    assert not found.name
    assert [stage.name for stage in found.stages] == ["second"]


def test_if_all_have_names_the_last_of_the_chain_is_the_result() -> None:
    found = parse_recipe(recipe(document("last", "first"), document("first", "org/a")))
    assert (found.name, [stage.name for stage in found.stages]) == ("last", ["first"])


def test_only_models_are_stages_whatever_they_are_called() -> None:
    """mergekit replaces every text that equals a name, also that of a method or a filter."""
    first = document("linear", "org/a", "org/b")
    last = (
        "merge_method: linear\nmodels:\n"
        "  - {model: linear, parameters: {weight: [{filter: mlp, value: 2}, {value: 1}]}}\n"
        "  - {model: mlp, parameters: {weight: 1}}\n"
    )
    found = parse_recipe(recipe(first, document("mlp", "org/b"), last))
    assert found.merge_method == "linear"
    assert [ref.text for ref in found.source_models] == ["org/a", "org/b"]


def test_of_a_stage_with_an_adapter_the_adapter_is_read() -> None:
    found = parse_recipe(recipe(document("first", "org/a"), document(None, "first+org/lora")))
    assert [ref.text for ref in found.source_models] == ["org/a", "org/lora"]
    assert [found.is_adapter(ref) for ref in found.source_models] == [False, True]


def test_in_one_document_a_name_has_no_effect() -> None:
    found = parse_recipe(document("any name: of a merge".replace(":", ""), "org/a"))
    assert found.name == ""
    assert any("name has no effect" in note for note in found.notes)


def test_too_many_documents_are_refused() -> None:
    texts = [document(f"n{k}", f"n{k - 1}" if k else "org/a") for k in range(101)]
    assert len(parse_recipe(recipe(*reversed(texts[:100]))).stages) == 99
    with pytest.raises(InputError, match="too many documents") as caught:
        parse_recipe(recipe(*texts), "r.yaml")
    assert caught.value.problems[0].line == 501


def test_empty_documents_are_none(tmp_path: Path) -> None:
    text = "---\n---\n" + document(None, "org/a") + "---\n# nothing\n---\n"
    assert parse_recipe(text).stages == ()


@given(st.permutations(range(5)), st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4))))
def test_stages_stand_after_those_that_they_name(
    order: list[int], edges: list[tuple[int, int]]
) -> None:
    """The documents are any acyclic graph, written in any order."""
    uses = {n: {a for a, b in edges if b == n and a < n} for n in range(5)}
    uses[4] |= {n for n in range(4) if all(n not in uses[m] for m in range(5))}
    texts = [
        document(None if n == 4 else f"stage{n}", "org/a", *(f"stage{m}" for m in uses[n]))
        for n in order
    ]
    found = parse_recipe(recipe(*texts))
    done: set[str] = {"org/a"}
    for stage in found.documents:
        assert {ref.text for ref in stage.models} <= done
        done.add(stage.name)
    assert len(found.stages) == 4
