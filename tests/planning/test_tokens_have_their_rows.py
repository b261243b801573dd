"""Promise: where a recipe says how tokens are matched, each row of an embedding, and of a head, is
its token's; the plan has the vocabulary and the chat template of the output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from made_up_plans import LINEAR, llama, tensor, units

from resumerge.errors import InputError
from resumerge.planning import Plan, make_plan
from resumerge.recipe import parse_recipe
from resumerge.sources.types import Source
from resumerge.tensor_uses import UnusedReason
from resumerge.tensors import Adapted, Gathered, Merged, Stored, Tensor, stored_in
from resumerge.tensors.rows import AVERAGE
from resumerge.tokenizers.required import Tokenizers
from resumerge.tokenizers.vocabulary import Vocabulary

HEAD, EMBEDDING, NORM = "lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"
BOTH = (HEAD, EMBEDDING)
TOKENS = {"a": ("p", "q", "r"), "b": ("q", "s"), "c": ("r", "q", "t", "s")}
ARITHMETIC = (
    "merge_method: task_arithmetic\nbase_model: a\nparameters: {weight: 1}\n"
    "models: [{model: b}, {model: c}]\n"
)
COPY = "merge_method: passthrough\nbase_model: a\nmodels: [{model: b}]\n"


def model(name: str, *others: Stored) -> Source:
    count = len(TOKENS[name])
    tables = [tensor(table, (count, 4)) for table in BOTH]
    return llama(name, others=[*tables, *others], config={"vocab_size": count})


def planned(
    text: str,
    *models: Source,
    tokens: Mapping[str, tuple[str, ...]] = TOKENS,
    assumed: Mapping[str, str] | None = None,
    templates: Mapping[str, str] | None = None,
    without: str = "",
) -> Plan:
    recipe = parse_recipe(text)
    given = {source.ref.name: source for source in models or map(model, TOKENS)}
    sources = {
        ref: replace(given[ref.name], ref=ref).numbered("abc".index(ref.name))
        for ref in recipe.models
    }
    refs = {ref.name: ref for ref in sources}
    vocabularies = {
        ref: Vocabulary(
            source,
            "Unigram",
            {token: n for n, token in enumerate(tokens[ref.name])},
            {},
            (),
            f"digest of {ref.name}",
        )
        for ref, source in sources.items()
        if recipe.tokenizer is not None
    }
    known = Tokenizers(
        vocabularies,
        {refs[name]: template for name, template in (templates or {}).items() if name in refs},
        frozenset(refs[name] for name in without),
        {refs[one]: refs[other] for one, other in (assumed or {}).items()},
    )
    return make_plan(recipe, sources, known, seed=0, shard_size=1 << 30)


def rows_of(operand: Tensor) -> list[str | None]:
    """Return what each row of an input is: a row of a model, or an average of members."""
    if not isinstance(operand, Gathered):
        assert isinstance(operand, Stored)
        return [f"{'abc'[operand.source]}{n}" for n in range(operand.shape[0])]
    rows = operand.rows
    found: list[str | None] = []
    for number in range(rows.count):
        run = int(np.searchsorted(rows.starts, number, "right")) - 1
        origin, row = int(rows.origins[run]), int(rows.firsts[run] + number - rows.starts[run])
        table = operand.tables[origin] if origin >= 0 else None
        if isinstance(table, Stored):
            found.append(f"{'abc'[table.source]}{row}")
        elif origin == AVERAGE:
            row = int(rows.firsts[run] + number - rows.starts[run])
            members = range(rows.offsets[row], rows.offsets[row + 1])
            found.append(
                "+".join(f"{rows.member_origins[m]}.{rows.member_rows[m]}" for m in members)
            )
        else:
            found.append(None)
    return found


def inputs(found: Plan, name: str = HEAD) -> list[list[str | None]]:
    return [rows_of(operand) for operand in units(found)[name].expression.children()]


@pytest.mark.parametrize("name", BOTH)
def test_each_input_has_the_row_of_each_token(name: str) -> None:
    found = planned(LINEAR + "tokenizer_source: union\n")
    assert found.vocabulary is not None
    assert found.vocabulary.ids == {"p": 0, "q": 1, "r": 2, "s": 3}
    assert inputs(found, name) == [["a0", "a1", "a2", "b1"], ["a0", "b0", "a2", "b1"]]
    unit = units(found)[name]
    assert (unit.shape, unit.tensors, unit.nbytes) == ((4, 4), {name: (4, 4)}, 64)
    assert found.tokenizers == {"a": "digest of a", "b": "digest of b"}


def test_the_base_gives_the_row_that_another_model_lacks() -> None:
    """The row is an average of the models that have the token if the merge has no base model."""
    found = planned(ARITHMETIC + "tokenizer_source: base\n")
    assert sorted(inputs(found)) == [["a0", "a1", "a2"], ["a0", "b0", "a2"], ["a0", "c1", "c0"]]
    three = LINEAR.replace("}]", "}, {model: c}]") + "tokenizer_source: base\n"
    assert inputs(planned(three)) == [
        ["a0", "a1", "a2"],
        ["a0", "b0", "0.2+2.0"],
        ["a0", "c1", "c0"],
    ]


def test_one_model_alone_gets_the_rows_of_the_vocabulary_too() -> None:
    found = planned(COPY + "tokenizer_source: base\n", model("a"), model("b"))
    [only] = inputs(found)
    assert only == [None, "b0", None], "p and r are no tokens of b"
    assert units(found)[HEAD].shape == (3, 4)
    assert isinstance(units(found)[NORM].expression, Stored), "the rest is copied"
    base = replace(model("b"), ref=model("a").ref)
    alike = {**TOKENS, "a": TOKENS["b"]}
    same = planned(COPY + "tokenizer_source: base\n", base, model("b"), tokens=alike)
    assert isinstance(units(same)[HEAD].expression, Stored), "no row changes its place"


def test_rows_of_a_model_with_an_adapter_change_places_like_any() -> None:
    stored, *matrices = (tensor("w", s) for s in ((2, 4), (1, 4), (2, 1)))
    changed = Adapted.of(HEAD, replace(stored, name=HEAD), *matrices, 1.0, False, None)
    other = model("b")
    other = replace(other, tensors={**other.tensors, HEAD: changed})
    found = planned(COPY + "tokenizer_source: base\n", model("a"), other)
    [operand] = units(found)[HEAD].expression.children()
    assert isinstance(operand, Gathered) and units(found)[HEAD].shape == (3, 4)
    base = replace(model("b"), ref=model("a").ref)
    alike = {**TOKENS, "a": TOKENS["b"]}
    same = planned(COPY + "tokenizer_source: base\n", base, other, tokens=alike)
    assert isinstance(units(same)[HEAD].expression, Adapted), "no row changes its place"


def test_what_an_adapter_makes_is_computed_in_the_dtype_of_the_recipe() -> None:
    """The result of an adapter is not rounded to the model's dtype in between."""
    stored, *matrices = (tensor(HEAD, s, "BF16") for s in ((10, 4), (1, 4), (10, 1)))
    changed = Adapted.of(HEAD, stored, *matrices, 1.0, False, None)
    made = replace(llama("b"), tensors={**llama("b").tensors, HEAD: changed})
    for said, kind in (("dtype: float32", Adapted), ("dtype: float32\nout_dtype: float16", Merged)):
        expression = units(planned(f"{COPY}{said}\n", llama("a"), made))[HEAD].expression
        assert type(expression) is kind
        assert expression.dtype == ("F32" if kind is Adapted else "F16")
        assert expression is not changed


def test_a_part_that_no_module_names_has_the_rows_of_its_model() -> None:
    found = planned(
        "merge_method: linear\nparameters: {weight: 1}\nbase_model: a\ntokenizer_source: union\n"
        "modules:\n  text_decoder: {models: [{model: a}, {model: b}]}\n"
    )
    assert inputs(found) == [["a0", "a1", "a2", "b1"], ["a0", "b0", "a2", "b1"]]


def test_what_has_no_tokens_has_to_be_of_one_shape() -> None:
    odd = model("b", tensor(NORM, (5,)))
    with pytest.raises(InputError) as refused:
        planned(LINEAR + "tokenizer_source: union\n", model("a"), odd)
    assert [p.what for p in refused.value.problems] == [f"Shapes do not match in tensor {NORM}"]


def test_an_assumed_tokenizer_is_noted_and_has_to_fit() -> None:
    text = LINEAR + "tokenizer_source: union\n"
    alike = {**TOKENS, "b": TOKENS["a"][:2]}
    found = planned(text, tokens=alike, assumed={"b": "a"})
    assert any("b has no tokenizer: the tokens of a are assumed" in n for n in found.notes)
    assert not any("assumed" in note for note in planned(text).notes)
    with pytest.raises(InputError):
        planned(text, tokens={**TOKENS, "b": TOKENS["a"]}, assumed={"b": "a"})


def test_of_equally_common_templates_the_references_is_taken() -> None:
    models = [llama(name) for name in "abc"]
    for extra in ("", "tokenizer_source: union\n"):
        text = f"{LINEAR}{extra}chat_template: auto\n"
        found = planned(text, *models, templates={"b": "{{ b }}", "a": "{{ a }}"})
        assert found.chat_template == "{{ a }}"
        assert (found.vocabulary is None) == (not extra)
    three = LINEAR.replace("}]", "}, {model: c}]") + "chat_template: auto\n"
    templates = {"a": "{{ a }}", "b": "{{ b }}", "c": "{{ b }}"}
    assert planned(three, *models, templates=templates).chat_template == "{{ b }}"
    assert planned(LINEAR, *models, templates=templates).chat_template is None
    with pytest.raises(InputError, match="Unknown chat template"):
        planned(LINEAR + "chat_template: chatmi\n", *models)


def test_an_output_without_a_tokenizer_is_reminded_of() -> None:
    """The reminder names the tokenizer of a model with as many tokens, which would fit.

    Reminders are shown again when the output is complete.
    """
    same = model("a")
    fitting = replace(same, ref=model("c").ref)
    text = LINEAR.replace("model: b", "model: c")
    found = planned(text, same, fitting, without="a")
    expected = (
        "a has no tokenizer, so the output has none: "
        "write 'tokenizer_source: c' to use the tokenizer of c"
    )
    assert found.reminders == (expected,) and expected in found.notes
    alone = planned(text, same, fitting, without="ac").reminders
    assert alone == (
        "a has no tokenizer, so the output has none: "
        "save the tokenizer that it was trained with into the output folder",
    )
    assert planned(text, same, fitting, without="c").reminders == ()
    assert planned(text, same, fitting).reminders == ()
    assert planned(f"{text}tokenizer_source: c\n", same, fitting, without="a").reminders == ()
    assert planned(text, replace(same, single=True), fitting, without="a").reminders == ()
    tables = dict.fromkeys(BOTH)
    none = replace(same, tensors={n: t for n, t in same.tensors.items() if n not in tables})
    bare = replace(fitting, tensors={n: t for n, t in fitting.tensors.items() if n not in tables})
    assert planned(text, none, bare, without="a").reminders == ()


def test_without_any_config_the_output_has_none_and_that_is_noted() -> None:
    """No library loads an output without a config.json, but tokens can be matched."""
    bare = [replace(model(name), config={}) for name in "ab"]
    found = planned(LINEAR + "tokenizer_source: union\n", *bare)
    assert any("the output has none; no library can load it" in note for note in found.notes)


def test_a_model_that_gives_its_tokens_alone_is_told_to() -> None:
    found = planned(LINEAR + "tokenizer_source: c\n")
    of_c = [each for each in found.left_out if next(stored_in(each.tensor)).source == 2]
    assert {each.reason for each in of_c} == {UnusedReason.TOKENIZER}
    assert {each.tensor.name for each in of_c} == {*model("c").tensors}
    assert inputs(found)[0] == ["a2", "a1", None, "b1"]
