"""Promise: each row of the output's vocabulary comes from where the rules say, however tokens lie.

The rules are written down a second time here, token by token, in the plainest way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from resumerge.layout.model_views import ModelViews
from resumerge.recipe import Input, ModelRef, Module, Recipe, Slice, TokenizerSetting, TokenRow
from resumerge.sources.types import Source
from resumerge.tensors import Gathered, Stored, Tensor, stored_in
from resumerge.tensors.rows import AVERAGE, MEAN, ZERO
from resumerge.tokenizers.row_alignment import RowAlignment
from resumerge.tokenizers.vocabulary import Vocabulary

EMBEDDING = "model.embed_tokens.weight"
WIDTH = 4
TOKENS = "abcdefgh"


@dataclass(frozen=True, eq=False)
class Known(Vocabulary):
    """A vocabulary without a file.

    Args:
        pairs: the merges of a BPE.
    """

    pairs: tuple[tuple[str, str], ...] = ()

    def merges(self) -> list[tuple[str, str]]:
        return list(self.pairs)


@dataclass(frozen=True)
class Model:
    """A model with numbered tokens and an embedding.

    Args:
        ids: the numbers of its tokens.
        size: the number of rows of its embedding.
        more: further tensors.
    """

    name: str
    ids: Mapping[str, int]
    size: int
    kind: str = "BPE, byte-level"
    added: Mapping[str, Mapping[str, Any]] | None = None
    pairs: tuple[tuple[str, str], ...] = ()
    more: tuple[Stored, ...] = ()

    @property
    def ref(self) -> ModelRef:
        return ModelRef(self.name, self.name)

    @property
    def tensor(self) -> Stored:
        return Stored(EMBEDDING, "F32", (self.size, WIDTH), "file", 0)

    @property
    def source(self) -> Source:
        config = {"vocab_size": self.size}
        tensors = {tensor.name: tensor for tensor in (self.tensor, *self.more)}
        return Source(
            ref=self.ref, kind="local", folder=Path(), revision=None, config=config, tensors=tensors
        )

    @property
    def vocabulary(self) -> Known:
        return Known(self.source, self.kind, self.ids, self.added or {}, (), "", self.pairs)


def alignment(
    models: Sequence[Model],
    setting: TokenizerSetting,
    *,
    others: Sequence[Model] = (),
    base: int | None = None,
    assumed: Mapping[ModelRef, ModelRef] | None = None,
) -> RowAlignment:
    """Return the row alignment of a merge of `models`; rows may also come from `others`."""
    inputs = tuple(Input(model.ref) for model in models)
    base_model = models[base].ref if base is not None else None
    recipe = Recipe("linear", (Module((Slice(inputs),)),), base_model, tokenizer=setting)
    every = [*models, *others]
    sources = {model.ref: model.source.numbered(number) for number, model in enumerate(every)}
    views = ModelViews(sources, base_model or models[0].ref)
    vocabularies = {model.ref: model.vocabulary for model in every}
    return RowAlignment(recipe, setting, views, vocabularies, assumed or {})


def rows_of(
    found: RowAlignment, models: Sequence[Model], base: int | None = None
) -> tuple[list[Tensor], int]:
    """Return the embedding of each model with its rows aligned, and the number of rows."""
    refs = tuple(model.ref for model in models)
    tensors = tuple(replace(model.tensor, source=number) for number, model in enumerate(models))
    aligned, shape = found.aligned(refs, tensors, None if base is None else refs[base])
    assert shape[1:] == (WIDTH,)
    assert {tensor.shape for tensor in aligned if isinstance(tensor, Gathered)} <= {shape}
    return list(aligned), shape[0]


Row = tuple[str, Any]


def expand(tensor: Tensor, model: int, count: int) -> list[Row]:
    """Return the origin of each row: ``own`` model and row, ``zero``, ``mean``, or ``average``."""
    if not isinstance(tensor, Gathered):
        assert tensor.shape[0] == count
        return [("own", (model, number)) for number in range(count)]
    rows = tensor.rows
    assert rows.count == count
    runs = rows.runs(0, count)
    found: list[Row] = []
    for begin, end, origin, shift in zip(runs.begins, runs.ends, runs.origins, runs.shifts):
        for number in range(begin, end):
            if origin == ZERO:
                found.append(("zero", None))
            elif origin == MEAN:
                found.append(("mean", rows.named))
            elif origin == AVERAGE:
                found.append(("average", sorted(rows.members(number + int(shift)))))
            else:
                assert next(stored_in(tensor.tables[origin])).source == origin
                found.append(("own", (int(origin), number + int(shift))))
    return found


def expected_tokens(
    models: Sequence[Model], setting: TokenizerSetting, base: int | None
) -> dict[str, int]:
    """Return the number of each token of the output."""
    source = setting.source
    host = models[base or 0]
    if isinstance(source, ModelRef):
        host = next(model for model in models if model.ref == source)
    ids = dict(host.ids)
    wanted: list[str] = []
    if source == "union":
        for model in [host, *models]:
            wanted += sorted(model.ids, key=model.ids.__getitem__)
    wanted += setting.tokens
    for token in wanted:
        if token not in ids:
            ids[token] = max(ids.values(), default=-1) + 1
    return ids


def expected_row(
    number: int,
    mine: int,
    models: Sequence[Model],
    others: Sequence[Model],
    setting: TokenizerSetting,
    ids: Mapping[str, int],
    base: int | None,
) -> Row:
    """Return the origin of a row for one of the models."""
    named = max(ids.values(), default=-1) + 1
    if setting.pad_to_multiple_of is not None and number >= named:
        return ("mean", named)
    tokens = [token for token, n in ids.items() if n == number]
    model = models[mine]
    if not tokens:
        if number < model.size and number not in model.ids.values():
            return ("own", (mine, number))
        return ("zero", None)
    [token] = tokens
    special = setting.tokens.get(token)

    def own(other: int) -> int | None:
        if special is not None and special.force:
            return None
        row = models[other].ids.get(token)
        return row if row is not None and row < models[other].size else None

    if (row := own(mine)) is not None:
        return ("own", (mine, row))
    if special is not None:
        if special.model is None:
            return ("zero", None)
        every = [*models, *others]
        other = next(k for k, m in enumerate(every) if m.ref == special.model)
        if special.token_id is not None:
            return ("own", (other, special.token_id))
        return ("own", (other, every[other].ids[special.token or token]))
    having = {k: row for k in range(len(models)) if (row := own(k)) is not None}
    if base is not None and base in having:
        return ("own", (base, having[base]))
    if len(having) == 1:
        return ("own", next(iter(having.items())))
    return ("average", sorted(having.items())) if having else ("zero", None)


@st.composite
def a_model(draw: st.DrawFn, name: str) -> Model:
    tokens = draw(st.lists(st.sampled_from(TOKENS), unique=True, max_size=6))
    numbers = draw(
        st.lists(st.integers(0, 9), unique=True, min_size=len(tokens), max_size=len(tokens))
    )
    return Model(
        name, dict(zip(tokens, numbers)), draw(st.integers(2, 12))
    )  # an axis of 1 is no vocabulary


@st.composite
def a_token_row(draw: st.DrawFn, models: Sequence[Model]) -> TokenRow:
    """Draw the setting of a token's row, which names a row that its model has, or no model."""
    force = draw(st.booleans())
    model = draw(st.sampled_from([None, *models]))
    if model is None:
        return TokenRow(force=force)
    rows = [(None, number) for number in range(model.size)]
    rows += [(token, None) for token, number in model.ids.items() if number < model.size]
    token, number = draw(st.sampled_from(rows))
    return TokenRow(model.ref, token, number, force)


@st.composite
def a_case(draw: st.DrawFn) -> tuple[list[Model], list[Model], TokenizerSetting, int | None]:
    models = [draw(a_model(name)) for name in "xyz"[: draw(st.integers(1, 3))]]
    others = [draw(a_model("other"))] if draw(st.booleans()) else []
    sources = ["union", "base", *(model.ref for model in models)]
    tokens = draw(
        st.dictionaries(
            st.sampled_from(TOKENS + "new"), a_token_row([*models, *others]), max_size=3
        )
    )
    named = [other for other in others if any(r.model == other.ref for r in tokens.values())]
    multiple = draw(st.sampled_from([None, 1, 4, 16]))
    setting = TokenizerSetting(draw(st.sampled_from(sources)), tokens, multiple)
    return models, named, setting, draw(st.sampled_from([None, *range(len(models))]))


@settings(max_examples=400)
@given(a_case())
def test_any_vocabularies(
    case: tuple[list[Model], list[Model], TokenizerSetting, int | None],
) -> None:
    models, others, setting, base = case
    ids = expected_tokens(models, setting, base)
    assume(ids)
    found = alignment(models, setting, others=others, base=base)
    assert found.problems == []
    assert found.vocabulary.ids == ids
    new = [token for token in ids if token not in found.vocabulary.host.ids]
    assert [token.content for token in found.vocabulary.new] == new
    assert [token.id for token in found.vocabulary.new] == [ids[token] for token in new]
    tensors, count = rows_of(found, models, base)
    named = max(ids.values(), default=-1) + 1
    multiple = setting.pad_to_multiple_of
    host = next(m for m in models if m.ref == found.vocabulary.host.ref)
    assert count == (-(-named // multiple) * multiple if multiple else max(named, host.size))
    for mine, tensor in enumerate(tensors):
        expected = [
            expected_row(number, mine, models, others, setting, ids, base)
            for number in range(count)
        ]
        assert expand(tensor, mine, count) == expected
        unchanged = [("own", (mine, number)) for number in range(models[mine].size)]
        is_stored = isinstance(tensor, Stored)
        assert is_stored is (expected == unchanged), "what is read as it is needs no gathering"


def model(name: str, tokens: str, size: int | None = None, **more: Any) -> Model:
    """Return a model with these tokens, in their order."""
    ids = {token: number for number, token in enumerate(tokens)}
    return Model(name, ids, size or len(tokens), **more)


A, B = model("A", "abc", 5), model("B", "abd")


@pytest.mark.parametrize(
    ("row", "fits", "expected"),
    [
        (TokenRow(A.ref, token_id=4), True, ""),
        (TokenRow(A.ref, token_id=5), False, "a token id below 5"),
        (TokenRow(A.ref, token="c"), True, ""),
        (TokenRow(A.ref, token="d"), False, "one of: B"),
        (TokenRow(A.ref, token="e"), False, "a token that a model has"),
        (TokenRow(A.ref), False, "a token that a model has"),
        (TokenRow(), True, ""),
    ],
)
def test_a_row_of_a_token_has_to_exist(row: TokenRow, fits: bool, expected: str) -> None:
    found = alignment([A, B], TokenizerSetting("union", {"new": row}))
    if fits:
        assert found.problems == []
        return
    [problem] = found.problems
    assert problem.expected == expected
    assert problem.path == "tokenizer.tokens.new.source"
    assert problem.found == "3 tokens, 5 rows"
    assert rows_of(found, [A, B])[1] == 5, "nothing is looked up that does not exist"


def test_a_vocabulary_of_nothing_is_refused() -> None:
    nothing = model("nothing", "", 3)
    for multiple in (None, 8):
        found = alignment([nothing], TokenizerSetting("union", pad_to_multiple_of=multiple))
        assert [problem.what for problem in found.problems] == [
            "The tokenizer of nothing has no tokens"
        ]
        assert rows_of(found, [nothing])[0] == [nothing.tensor]
    assert alignment([nothing, A], TokenizerSetting("union")).problems == []


def test_a_token_beyond_the_rows_has_none() -> None:
    short = Model("short", {"a": 0, "b": 1, "c": 2}, 2)
    found = alignment([short, B], TokenizerSetting("union", {"x": TokenRow(short.ref, "c")}))
    assert [problem.expected for problem in found.problems] == ["one of: short"]
    found = alignment([short, B], TokenizerSetting("union"))
    first, second = rows_of(found, [short, B])[0]
    assert expand(first, 0, 4)[2] == ("zero", None), "it has no row for its third token"
    assert expand(second, 1, 4)[2] == ("zero", None)


def test_tokens_that_nobody_has_are_told() -> None:
    other = model("other", "qr")
    tokens = {"x": TokenRow(), "y": TokenRow(other.ref, "q")}
    found = alignment([A, B], TokenizerSetting("union", tokens), others=[other])
    rows_of(found, [A, B])
    assert not any("in none of" in note for note in found.notes), "the recipe says what they get"
    short = Model("short", {"a": 0, "b": 1, "c": 2, "d": 3}, 2)
    found = alignment([short], TokenizerSetting("union"))
    rows_of(found, [short])
    [note] = [note for note in found.notes if "in none of" in note]
    assert note.startswith("2 tokens are in none of the merged models: their rows are zeros")


def test_new_tokens_are_told() -> None:
    assert alignment([A], TokenizerSetting("union")).notes == []
    [note] = alignment([A, B], TokenizerSetting("union")).notes
    assert note == "the vocabulary is that of A plus 1 more: 4 tokens, 5 rows"


def test_what_a_new_token_is() -> None:
    """A new token has the definition that it has in the model that it comes from.

    A plain token that the recipe adds is defined too, because text is not cut into it by itself.
    """
    definition = {"content": "d", "special": True}
    b = model("B", "abd", added={"d": definition})
    found = alignment([A, b], TokenizerSetting("union"))
    assert [token.definition for token in found.vocabulary.new] == [definition]
    found = alignment([A, B], TokenizerSetting("union"))
    assert [token.definition for token in found.vocabulary.new] == [None]
    tokens = {"x": TokenRow(b.ref, "d"), "y": TokenRow(b.ref, "a"), "z": TokenRow()}
    same = {"d": TokenRow(b.ref)}
    [new] = alignment([A, b], TokenizerSetting("base", same)).vocabulary.new
    assert new.definition == definition
    found = alignment([A, b], TokenizerSetting("base", tokens))
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    assert [token.definition for token in found.vocabulary.new] == [
        {"content": "x", "special": True},
        {**plain, "content": "y"},
        {**plain, "content": "z"},
    ]


AB, ABC, ACB = (("a", "b"),), (("a", "b"), ("ab", "c")), (("a", "c"), ("a", "b"))


@pytest.mark.parametrize(
    ("host", "other", "expected"),
    [
        (AB, ABC, (("ab", "c"),)),
        (AB, AB, ()),
        (ABC, AB, ()),
        (AB, ACB, ()),
        ((), ABC, ABC),
        (ABC, ACB, ()),
    ],
)
def test_merges_are_those_of_a_bpe_that_begins_with_the_hosts(
    host: tuple[tuple[str, str], ...],
    other: tuple[tuple[str, str], ...],
    expected: tuple[tuple[str, str], ...],
) -> None:
    a, b = model("a", "abc", pairs=host), model("b", "abcd", pairs=other)
    assert alignment([a, b], TokenizerSetting("union")).vocabulary.merges == expected


def test_merges_are_taken_where_a_plain_token_is_new_and_all_of_the_hosts_are_there() -> None:
    a, longer = model("a", "abc", pairs=AB), model("b", "abcd", pairs=ABC)
    union = TokenizerSetting("union")
    same = model("b", "abc", pairs=ABC)
    assert alignment([a, same], union).vocabulary.merges == (), "no token is new"
    added = model("b", "abcd", pairs=ABC, added={"d": {"content": "d"}})
    assert alignment([a, added], union).vocabulary.merges == (), "the new one is no plain one"
    lacking = model("b", "abde", pairs=ABC)
    assert alignment([a, lacking], union).vocabulary.merges == (), "it is another BPE"
    hosts_added = model("a", "abcx", pairs=AB, added={"x": {"content": "x"}})
    assert alignment([hosts_added, longer], union).vocabulary.merges == ABC[1:]
    unigram = model("a", "abc", pairs=AB, kind="Unigram"), model("b", "abcd", kind="Unigram")
    assert alignment(unigram, union).vocabulary.merges == ()
    third = model("c", "abcde", pairs=(*ABC, ("d", "e")))
    assert alignment([a, longer, third], union).vocabulary.merges == ABC[1:], "the first"


def test_vocabularies_of_two_kinds() -> None:
    word = model("W", "abe", kind="WordPiece")
    [problem] = alignment([A, word], TokenizerSetting("union")).problems
    assert problem.found == "BPE, byte-level in A, WordPiece in W"
    assert problem.path == "tokenizer.source"
    found = alignment([A, word], TokenizerSetting("base", key="tokenizer_source"))
    assert found.problems == []
    assert found.notes == [
        "W has a different kind of tokenizer (WordPiece) than A (BPE, byte-level): 2 of 3 tokens "
        "are matched by text"
    ]


def test_a_model_whose_rows_are_needed_has_to_have_the_tensor() -> None:
    other = model("other", "qr")
    a, b = (
        model(m.name, "".join(m.ids), m.size, more=(vector("lm_head.bias", m.size),))
        for m in (A, B)
    )
    found = alignment(
        [a, b], TokenizerSetting("union", {"x": TokenRow(other.ref, "q")}), others=[other]
    )
    tensors = (a.more[0], b.more[0])
    assert found.aligned((a.ref, b.ref), tensors, None) == (tensors, (5,))
    [problem] = found.problems
    assert problem.what == "other has no token rows for lm_head.bias"
    assert problem.expected == "a tensor lm_head.bias with 2 rows"


def vector(name: str, size: int) -> Stored:
    return Stored(name, "F32", (size,), "file", 0)


def test_other_tensors_are_left_alone() -> None:
    norm = vector("model.norm.weight", 7)
    a, b = (model(m.name, "".join(m.ids), m.size, more=(norm,)) for m in (A, B))
    found = alignment([a, b], TokenizerSetting("union"))
    assert found.aligned((A.ref, B.ref), (norm, norm), None) == ((norm, norm), (7,))
    assert found.applies(A.ref, A.tensor) and not found.applies(A.ref, norm)


def test_a_bias_has_its_rows_where_its_length_is() -> None:
    found = alignment([A, B], TokenizerSetting("union", pad_to_multiple_of=16))
    bias = Stored("final_logits_bias", "F32", (1, 5), "file", 0)
    assert found.shape(bias) == (1, 16)
    assert found.shape(A.tensor) == (16, WIDTH)


# A model without a tokenizer


def test_a_model_without_a_tokenizer_needs_a_row_for_each_token_it_is_taken_to_have() -> None:
    base = TokenizerSetting("base")
    for rows, told in ((5, ""), (3, ", though it has 3 rows, and A has 5")):
        other = model("other", "abc", rows)
        found = alignment([A, other], base, assumed={other.ref: A.ref})
        assert found.problems == []
        said = "other has no tokenizer: the tokens of A are assumed"
        assert found.notes == [said + told]
    short = Model("short", {"a": 0, "b": 1, "c": 2}, 2)
    found = alignment([A, short], base, assumed={short.ref: A.ref})
    assert [(p.what, p.found) for p in found.problems] == [
        ("short has no tokenizer, and too few rows for the tokenizer of A", "2 rows")
    ]
    assert found.notes == []
    sparse = Model("sparse", {"a": 0, "c": 4}, 4)
    assert len(alignment([A, sparse], base, assumed={sparse.ref: A.ref}).problems) == 1


def test_a_model_without_rows_is_taken_to_have_any_tokens() -> None:
    bare = Bare("bare", dict(A.ids), 5)
    found = alignment([A, bare], TokenizerSetting("base"), assumed={bare.ref: A.ref})
    assert found.problems == []
    assert found.notes == ["bare has no tokenizer: the tokens of A are assumed"]


class Bare(Model):
    """A model without a table of tokens."""

    @property
    def source(self) -> Source:
        return Source(
            ref=self.ref,
            kind="local",
            folder=Path(),
            revision=None,
            config={},
            tensors={"x": vector("x", 3)},
        )


# Tensors of which it cannot be told


def test_where_rows_move_every_table_has_to_be_known() -> None:
    undecided = Stored("model.prompt_embed.weight", "F32", (34, WIDTH), "file", 0)
    tokens = "".join(map(chr, range(0x4E00, 0x4E20)))  # 32: a 16th more are two

    def told(second: str, setting: TokenizerSetting, *more: Stored) -> list[str]:
        found = alignment([model("A", tokens), model("B", second, more=more)], setting)
        return [f"{p.what}: {p.found}" for p in found.problems]

    union, same = TokenizerSetting("union"), tokens
    cannot = "The tensors of B with one row per token cannot be identified"
    assert told(same, union, undecided) == []
    assert told(tokens[::-1], union) == []
    assert told(tokens[::-1], union, undecided) == [f"{cannot}: {undecided.name} [34, 4]"]
    padded = TokenizerSetting("union", pad_to_multiple_of=40)
    assert told(same, padded, undecided) == [f"{cannot}: {undecided.name} [34, 4]"]
    assert told(same, TokenizerSetting("union", {tokens[0]: TokenRow()}), undecided) == [
        f"{cannot}: {undecided.name} [34, 4]"
    ]
    bare = Bare("bare", {"a": 0, "z": 1}, 5)
    [problem] = alignment([A, bare], TokenizerSetting("base")).problems
    assert problem.what.startswith("The tensors of bare")
    assert problem.found == "no such tensor" and problem.path == "tokenizer.source"
    same_tokens = Bare("bare", dict(A.ids), 5)
    assert alignment([A, same_tokens], TokenizerSetting("base")).problems == []


def test_the_reference_and_the_host_may_be_two_models() -> None:
    """The output has the host's tokenizer, and the reference's config.json."""
    long = model("B", "abdefg", 8)
    vocabulary = alignment([A, long], TokenizerSetting(long.ref)).vocabulary
    assert (vocabulary.host.ref, vocabulary.reference.ref) == (long.ref, A.ref)
    assert (vocabulary.rows, vocabulary.reference_rows) == (8, 5)
    assert vocabulary.ids == long.ids and vocabulary.new == ()


def test_a_problem_is_told_at_the_key_that_the_recipe_has() -> None:
    word = model("W", "abe", kind="WordPiece")
    for key, path in (("tokenizer", "tokenizer.source"), ("tokenizer_source", "tokenizer_source")):
        [problem] = alignment([A, word], TokenizerSetting("union", key=key)).problems
        assert problem.path == path
