"""Promise: a plan says which vocabulary and chat template the output has, and what it lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from made_up_plans import expression, expressions, llama, tensor

from resumerge.errors import InputError
from resumerge.planning import Plan, estimate
from resumerge.planning.planner import make_plan
from resumerge.recipe import ModelRef, parse_recipe
from resumerge.sources.types import Source, numbered
from resumerge.tokenizers.chat_template import BUILT_IN, choose_template, syntax_error
from resumerge.tokenizers.required import Tokenizers
from resumerge.tokenizers.vocabulary import Vocabulary

LINEAR = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"
COPY = "merge_method: passthrough\nmodels: [{model: a}]\n"
EMBEDDING, HEAD, NORM = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"


def speaking(name: str, tokens: str, rows: int | None = None) -> tuple[Source, Vocabulary]:
    """Return a model with these tokens, in their order, and its vocabulary."""
    rows = rows or len(tokens)
    tables = [tensor(table, (rows, 4)) for table in (EMBEDDING, HEAD)]
    model = llama(name, others=tables, config={"vocab_size": rows})
    ids = {token: number for number, token in enumerate(tokens)}
    return model, Vocabulary(model, "Unigram", ids, {}, (), f"digest of {name}")


def planned(recipe: str, *models: tuple[Source, Vocabulary], **tokenizers: Any) -> Plan:
    sources = {model.ref: model for model, _ in models}
    vocabularies: Mapping[ModelRef, Vocabulary] = {
        model.ref: vocabulary for model, vocabulary in models if "tokenizer" in recipe
    }
    known = Tokenizers(vocabularies, **tokenizers)
    return make_plan(parse_recipe(recipe), numbered(sources), known, seed=0, shard_size=1 << 30)


# The vocabulary


def test_tables_of_tokens_get_the_rows_of_all_models() -> None:
    found = planned(
        LINEAR + "tokenizer_source: union\n", speaking("a", "abc"), speaking("b", "abde")
    )
    for name in (EMBEDDING, HEAD):
        [unit] = [unit for unit in found.units if unit.name == name]
        assert unit.shape == (5, 4)
        assert all(operand.rows is not None for operand in expression(unit).operands)
    [norm] = [unit for unit in found.units if unit.name == NORM]
    assert norm.shape == (4,) and all(o.rows is None for o in expression(norm).operands)
    assert found.vocabulary is not None and found.vocabulary.rows == 5
    assert "the vocabulary is that of a plus 2 more: 5 tokens, 5 rows" in found.notes
    assert found.tokenizers == {"a": "digest of a", "b": "digest of b"}


def test_tables_of_tokens_are_known_by_their_own_models_names() -> None:
    b, vocabulary = speaking("b", "abde")
    wrapped = {f"text.{n}": replace(t, name=f"text.{n}") for n, t in b.tensors.items()}
    renamed = replace(b, tensors=wrapped)
    union = LINEAR + "tokenizer_source: union\n"
    found = planned(union, speaking("a", "abc"), (renamed, replace(vocabulary, source=renamed)))
    [head] = [unit for unit in found.units if unit.name == HEAD]
    assert head.shape == (5, 4) and all(o.rows for o in expression(head).operands)


def test_each_slice_has_the_rows_of_its_own_models() -> None:
    recipe = (
        "merge_method: passthrough\ntokenizer_source: union\nslices:\n"
        "  - sources: [{model: a, layer_range: [0, 2]}]\n"
        "  - sources: [{model: b, layer_range: [2, 3]}]\n"
    )
    found = expressions(planned(recipe, speaking("a", "abc"), speaking("b", "cba")))
    [first], [last] = found[EMBEDDING].operands, found[HEAD].operands
    assert (first.source, first.rows) == (0, None), "as they are"
    assert last.source == 1 and last.rows is not None
    assert last.rows.runs(0, 3).shifts.tolist() == [2, 0, -2]


def test_of_a_model_that_gives_single_rows_the_tables_are_read() -> None:
    recipe = LINEAR + "tokenizer: {source: a, tokens: {a: {source: c, force: true}}}\n"
    found = planned(recipe, speaking("a", "abc"), speaking("b", "abc"), speaking("c", "xa"))
    tables = sum(found.sources[2].tensors[name].nbytes for name in (EMBEDDING, HEAD))
    assert estimate(found).read_of(2) == {"m.safetensors": tables}
    [head] = [unit for unit in found.units if unit.name == HEAD]
    assert found.files_of(head.expression, "local") == {
        (number, "m.safetensors") for number in (0, 1, 2)
    }


def test_a_table_whose_rows_move_is_no_copy() -> None:
    same = expressions(planned(COPY + "tokenizer_source: a\n", speaking("a", "abc")))
    assert same[HEAD].method == "copy"
    padded = COPY + "tokenizer: {source: a, pad_to_multiple_of: 8}\n"
    moved = expressions(planned(padded, speaking("a", "abc")))
    assert (moved[HEAD].method, moved[NORM].method) == ("passthrough", "copy")


def test_without_a_tokenizer_option_there_is_no_vocabulary() -> None:
    found = planned(LINEAR, speaking("a", "abc"), speaking("b", "xyz"))
    assert found.vocabulary is None and found.tokenizers == {}
    assert all(o.rows is None for e in expressions(found).values() for o in e.operands)


def test_problems_with_tokens_are_told_with_the_others() -> None:
    b, vocabulary = speaking("b", "abc")
    wordpiece = replace(vocabulary, kind="WordPiece")
    broken = replace(b, tensors={**b.tensors, NORM: tensor(NORM, (5,))})
    with pytest.raises(InputError) as refused:
        planned(LINEAR + "tokenizer_source: union\n", speaking("a", "abd"), (broken, wordpiece))
    assert [problem.what for problem in refused.value.problems] == [
        f"Shapes do not match in tensor {NORM}",
        "The vocabularies of a and b cannot be combined into a union",
    ]


# A model without a tokenizer


def test_an_output_without_a_tokenizer_is_a_reminder() -> None:
    a, b = speaking("a", "abc"), speaking("b", "xyz")
    found = planned(LINEAR, a, b, without=frozenset([a[0].ref]))
    [reminder] = found.reminders
    assert reminder in found.notes
    assert reminder.endswith("write 'tokenizer_source: b' to use the tokenizer of b")
    assert planned(LINEAR, a, b, without=frozenset([b[0].ref])).reminders == ()
    assert planned(LINEAR, a, b).reminders == ()
    neither = planned(LINEAR, a, b, without=frozenset([a[0].ref, b[0].ref]))
    assert neither.reminders[0].endswith(
        "save the tokenizer that it was trained with into the output folder"
    )
    option = LINEAR + "tokenizer_source: b\n"
    assert planned(option, a, b, without=frozenset([a[0].ref])).reminders == ()
    longer = speaking("b", "xyz", 9)
    sliced = (
        "merge_method: passthrough\nslices:\n  - sources: [{model: a, layer_range: [0, 3]}]\n"
        "  - sources: [{model: b, layer_range: [1, 2]}]\n"
        "  - sources: [{model: a, layer_range: [2, 3]}]\n"
    )
    [unfit] = planned(sliced, a, longer, without=frozenset([a[0].ref])).reminders
    assert "tokenizer_source" not in unfit


def test_a_model_without_tokens_needs_no_tokenizer() -> None:
    bare = llama("a", without=[EMBEDDING, HEAD])
    found = planned(COPY, (bare, speaking("a", "a")[1]), without=frozenset([bare.ref]))
    assert found.reminders == ()


def test_reminders_add_up() -> None:
    found = planned(COPY, speaking("a", "abc"))
    twice = found.with_reminders(["one"]).with_reminders(["two"])
    assert twice.reminders == ("one", "two")
    assert twice.notes == (*found.notes, "one", "two")


# The chat template


def chosen(asked: str, *templates: str | None) -> tuple[str | None, list[str], list[str]]:
    recipe = parse_recipe(COPY + (f"chat_template: {asked}\n" if asked else ""))
    template, problems, notes = choose_template(recipe, templates)
    return template, [problem.what for problem in problems], notes


def test_auto_is_the_most_common_and_of_equals_the_first() -> None:
    assert chosen("auto", "{{a}}", "{{b}}", "{{b}}") == ("{{b}}", [], [])
    assert chosen("auto", "{{a}}", "{{b}}") == ("{{a}}", [], [])
    assert chosen("auto", None, None, "", "{{b}}") == ("{{b}}", [], [])
    template, _, notes = chosen("auto", None, "")
    assert template is None
    assert notes == ["no model has a chat template, so the output has none"]


def test_the_references_template_counts_first() -> None:
    a, b = speaking("a", "abc"), speaking("b", "xyz")
    templates = {a[0].ref: "{{a}}", b[0].ref: "{{b}}"}
    recipe = LINEAR + "chat_template: auto\n"
    assert planned(recipe, a, b, templates=templates).chat_template == "{{a}}"
    based = recipe + "base_model: b\n"
    assert planned(based, a, b, templates=templates).chat_template == "{{b}}"


def test_without_a_wish_the_tokenizers_own_stays() -> None:
    assert chosen("", "{{a}}") == (None, [], [])


def test_a_name_or_a_template() -> None:
    assert chosen("chatml") == (BUILT_IN["chatml"], [], [])
    assert chosen("'{% if x %}y{% endif %}'") == ("{% if x %}y{% endif %}", [], [])
    assert chosen("'{{ x }}'") == ("{{ x }}", [], [])
    assert chosen("chatlm")[:2] == (None, ["Unknown chat template 'chatlm'"])
    assert chosen("'{{ x '")[:2] == (None, ["The chat template is not valid Jinja"])


def test_what_transformers_renders_is_valid() -> None:
    assert syntax_error("{% generation %}{{ x }}{% endgeneration %}") is None
    assert syntax_error("{% for x in y %}{% break %}{% endfor %}") is None
    assert syntax_error("{% for x in y %}\n{% endfr %}") is not None
    assert "(line 2 of the template)" in str(syntax_error("{% for x in y %}\n{% endfr %}"))
    assert syntax_error("{{ " + "(" * 5000 + "x" + ")" * 5000 + " }}")
    assert syntax_error("{{ " + "9" * 5000 + " }}")
