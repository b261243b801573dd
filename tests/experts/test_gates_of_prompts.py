"""Promise: gates of prompts are made of the rows of their tokens, and no others are read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dense_headers import BASE, HIDDEN, TOKENS, dense
from made_up_plans import tensor, units
from reading import evaluation

from resumerge.errors import InputError, Problem
from resumerge.experts.upcycling.gates import hidden_states, layer_gates
from resumerge.experts.upcycling.gates.directions import unit
from resumerge.experts.upcycling.gates.embedding import EmbeddedPrompts
from resumerge.experts.upcycling.gates.hidden_states import HiddenStates
from resumerge.experts.upcycling.gates.prompts import (
    LIBRARY_BYTES,
    TOKEN_BYTES,
    PromptTokens,
    tokens_of_prompts,
)
from resumerge.planning import Plan
from resumerge.planning.planner import make_plan
from resumerge.recipe import parse_recipe
from resumerge.recipe.types import Expert, Mixture, ModelRef
from resumerge.sources.types import Source, numbered
from resumerge.tensors import Computed, Merged, Stored
from resumerge.tensors.target import block_elements
from resumerge.tokenizers.required import Tokenizers
from resumerge.tokenizers.vocabulary import Vocabulary, read_vocabulary

ROWS = np.random.default_rng(1).normal(size=(9, 4)).astype(np.float32)
TABLE = Stored("embedding", "F32", (9, 4), "f", 0)


@dataclass
class Rows:
    """A file with float32 tensors, which records the ranges of elements that are read."""

    arrays: Mapping[str, np.ndarray] = field(default_factory=lambda: {TABLE.name: ROWS})
    read: list[tuple[str, int, int]] = field(default_factory=list)

    def descriptor(self, of: Any) -> None:
        return None

    def fill(self, of: Any, offset: int, buffer: memoryview) -> None:
        first, count = (offset - of.offset) // 4, len(buffer) // 4
        self.read.append((of.name, first, first + count))
        buffer[:] = self.arrays[of.name].reshape(-1)[first : first + count].tobytes()


EXPERTS = (
    PromptTokens(((1, 2), (2,)), ()),
    PromptTokens(((3,),), ((5, 5), (0,))),
    PromptTokens(((4,),), ((4,),)),
    PromptTokens(((4, 8),), ()),
)
STEP = EmbeddedPrompts(TABLE, EXPERTS, 3)


def direction(*tokens: int) -> np.ndarray:
    total: np.ndarray = sum((ROWS[token].astype(np.float64) for token in tokens), np.zeros(4))
    return total / np.linalg.norm(total)


def test_a_gate_is_the_direction_of_the_sum_of_its_tokens_rows() -> None:
    """The direction of negative prompts is subtracted; equal directions give a zero gate."""
    files = Rows()
    gates = Computed.of("gates", (4, 4), STEP, 0).floats(evaluation(files), 0, 16).reshape(4, 4)
    difference = direction(3) - direction(5, 5, 0)
    expected = [direction(1, 2, 2), difference / np.linalg.norm(difference), np.zeros(4)]
    expected.append(direction(4, 8))
    assert gates == pytest.approx(np.array(expected), abs=1e-6)
    told = [(leaf.name, first, last) for leaf, first, last in STEP.reads()]
    assert sorted(told) == sorted(files.read)
    assert sorted({first // 4 for _, first, _ in told}) == [0, 1, 2, 3, 4, 5, 8]


def test_rows_are_summed_in_float64() -> None:
    """A small row is not lost beside a large one."""
    rows = np.array([[1e9, 1.0], [1.0, 0.0], [-1e9, 0.0]], np.float32)
    table = Stored("embedding", "F32", (3, 2), "f", 0)
    step = EmbeddedPrompts(table, (PromptTokens(((0, 1, 2),), ()),), 1)
    files = Rows({"embedding": rows})
    gate = Computed.of("gates", (1, 2), step, 0).floats(evaluation(files), 0, 2)
    assert gate == pytest.approx([0.5**0.5, 0.5**0.5])


def test_what_gates_of_an_embedding_take() -> None:
    assert (STEP.pieces, STEP.nbytes) == (1, 4 * 4 * 4)
    assert STEP.planning_bytes == LIBRARY_BYTES + 9 * TOKEN_BYTES
    assert STEP.working_bytes(1) == STEP.working_bytes(8) == 64 + 6 * 8 * 4
    assert STEP.tensors(0) == (TABLE,) and STEP.seconds(1) == 0


def test_only_gates_that_choose_between_experts_are_compared() -> None:
    same = np.array([[[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]], np.float32)
    hidden = HiddenStates("base", "hidden", {}, TABLE, ({},), EXPERTS, 3)
    for step in (STEP, hidden):
        assert [*step.notes(same)] == []
        [note] = replace(step, routed=4).notes(same)
        assert "experts 0 and 3" in note


def test_a_vector_of_no_length_stays() -> None:
    assert unit(np.array([3.0, 4.0])).tolist() == [0.6, 0.8]
    assert unit(np.array([0.0, 0.0])).tolist() == [0.0, 0.0]
    assert unit(np.array([3e-9, 4e-9])).tolist() == pytest.approx([0.3, 0.4])


Q = Stored("q", "F32", (6, 4), "f", 0)
NORM = Stored("n", "BF16", (4,), "f", 0)
LAYERS = ({"q": Q, "n": NORM}, {"q": replace(Q, name="q1")}, {"q": replace(Q, name="q2")})
CONFIG = {"num_attention_heads": 2}
PROMPTS = PromptTokens(((1, 2, 3), (4,)), ((5, 6),)), PromptTokens(((1, 2, 3),), ())
HIDDEN_STATES = HiddenStates("base", "hidden", CONFIG, TABLE, LAYERS, PROMPTS, 1)
NORMED = replace(HIDDEN_STATES, mode="hidden_norm")


def test_gates_of_a_layer_are_made_of_the_layers_before_it() -> None:
    """A layer's gates also need the layer's own tensors in the mode `hidden_norm`."""
    names = [[t.name for t in HIDDEN_STATES.tensors(part)] for part in range(3)]
    assert names == [["embedding"], ["embedding", "q", "n"], ["embedding", "q", "n", "q1"]]
    assert [t.name for t in NORMED.tensors(0)] == ["embedding", "q", "n"]
    assert [t.name for t in NORMED.tensors(2)] == ["embedding", "q", "n", "q1", "q2"]


def test_the_rows_of_tokens_are_read_once_for_a_prompt_and_the_layers_once() -> None:
    """The last layer is read only in the mode `hidden_norm`, whose states come from that layer."""
    rows = [("embedding", 4 * token, 4 * token + 4) for token in (1, 2, 3, 4, 5, 6)]
    layers = [("q", 0, 24), ("n", 0, 4), ("q1", 0, 24)]
    assert [(t.name, a, b) for t, a, b in HIDDEN_STATES.reads()] == rows + layers
    assert [(t.name, a, b) for t, a, b in NORMED.reads()] == [*rows, *layers, ("q2", 0, 24)]


def test_states_begin_with_the_rows_of_the_tokens() -> None:
    state = HIDDEN_STATES.begin(evaluation(Rows()))
    assert state["states"].tolist() == ROWS[[1, 2, 3, 4, 5, 6]].tolist()
    assert state["gates"].shape == (3, 2, 4) and not state["gates"].any()


def test_what_gates_of_hidden_states_take() -> None:
    """The memory is that of the largest layer, four states of all tokens, and each text in work."""
    assert (HIDDEN_STATES.pieces, HIDDEN_STATES.nbytes) == (3, 4 * 3 * 2 * 4)
    assert HIDDEN_STATES.planning_bytes == LIBRARY_BYTES + 9 * TOKEN_BYTES
    of_text = 3 * (4 * 6 + 8 * 4 + 2 * 2 * 3)
    for threads, texts in ((1, 1), (2, 2), (9, 3)):
        expected = 4 * ((24 + 4) + 4 * 6 * 4 + texts * of_text)
        assert HIDDEN_STATES.working_bytes(threads) == hidden_states.LIBRARIES_BYTES + expected
    unknown = replace(HIDDEN_STATES, config={"num_attention_heads": "many"})
    assert HIDDEN_STATES.working_bytes(1) - unknown.working_bytes(1) == 4 * 3 * 2 * 3


def test_the_time_of_hidden_states_is_that_of_weights_texts_and_tokens() -> None:
    weight, text, token = (
        hidden_states.WEIGHT_SECONDS,
        hidden_states.TEXT_SECONDS,
        hidden_states.TOKEN_SECONDS,
    )
    for step, weights in ((HIDDEN_STATES, 24 + 4 + 24), (NORMED, 24 + 4 + 24 + 24)):
        for threads, at_once in ((1, 1), (2, 2), (9, 3)):
            expected = weights * (weight + (3 * text + 6 * token) / at_once)
            found = step.seconds(threads) - hidden_states.LOADING_SECONDS
            assert found == pytest.approx(expected, rel=1e-5)


# The tokens of prompts

VOCABULARY = {"<s>": 0, "a": 1, "b": 2, "c": 3, "<eos>": 4}


def tokenizer(folder: Path, *, vocabulary: Mapping[str, int] = VOCABULARY, **config: Any) -> Path:
    """Write a tokenizer of words whose settings add a last token, truncate texts and pad them."""
    special = [
        {"id": number, "content": content, "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for content, number in vocabulary.items()
        if content.startswith("<")
    ]
    facts = {
        "version": "1.0",
        "truncation": {
            "direction": "Right",
            "max_length": 2,
            "strategy": "LongestFirst",
            "stride": 0,
        },
        "padding": {
            "strategy": {"Fixed": 8},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 3,
            "pad_type_id": 0,
            "pad_token": "c",
        },
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "<eos>", "type_id": 0}},
            ],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"<eos>": {"id": "<eos>", "ids": [4], "tokens": ["<eos>"]}},
        },
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "?"},
    }
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(facts))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def vocabulary_of(folder: Path) -> Vocabulary:
    names = tuple(path.name for path in folder.iterdir())
    return read_vocabulary(replace(dense("base"), folder=folder, companions=dict.fromkeys(names)))


A, B = ModelRef("a", "a"), ModelRef("b", "b")


def tokens(folder: Path, *prompts: str) -> tuple[tuple[int, ...], ...]:
    mixture = Mixture((Expert(A, prompts),))
    return tokens_of_prompts(mixture, vocabulary_of(folder))[0].positive


@pytest.mark.parametrize(
    ("config", "begin"),
    [
        ({}, ()),
        ({"bos_token": "<s>"}, (0,)),
        ({"bos_token": {"content": "<s>", "special": True}}, (0,)),
        ({"bos_token": None}, ()),
    ],
)
def test_a_prompt_begins_with_the_token_that_begins_texts_and_is_whole(
    tmp_path: Path, config: dict[str, Any], begin: tuple[int, ...]
) -> None:
    """A prompt is not truncated or padded, and has no token that ends texts."""
    folder = tokenizer(tmp_path, **config)
    assert tokens(folder, "a b a", "b") == ((*begin, 1, 2, 1), (*begin, 2))


def test_the_token_that_begins_texts_may_be_in_a_file_of_its_own(tmp_path: Path) -> None:
    """The tokenizer's config has priority over special_tokens_map.json."""
    folder = tokenizer(tmp_path)
    (folder / "special_tokens_map.json").write_text('{"bos_token": "<eos>"}')
    assert tokens(folder, "a") == ((4, 1),)
    tokenizer(tmp_path, bos_token="<s>")
    assert tokens(folder, "a") == ((0, 1),)


def test_prompts_of_every_expert_are_kept_apart_and_those_without_tokens_left_out(
    tmp_path: Path,
) -> None:
    first, last = Expert(A, ("a", " ", "b b"), ("c",)), Expert(B, ("c",), (" ",))
    mixture = Mixture((first,), (last,))
    assert tokens_of_prompts(mixture, vocabulary_of(tokenizer(tmp_path))) == (
        PromptTokens(((1,), (2, 2)), ((3,),)),
        PromptTokens(((3,),), ()),
    )


def test_a_tokenizer_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    found = vocabulary_of(tokenizer(tmp_path))
    facts = json.loads((tmp_path / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(facts | {"pre_tokenizer": {"type": "x"}}))
    other = replace(found, digest=vocabulary_of(tmp_path).digest)
    with pytest.raises(InputError, match="The tokenizer cannot be used"):
        tokens_of_prompts(Mixture((Expert(A, ("a",)),)), other)


# The gates in a plan

PROMPTED = (
    BASE.replace("random", "{}")
    .replace("model: a", "model: a, positive_prompts: [a b]")
    .replace("model: b}", "model: b, positive_prompts: [b], negative_prompts: [c, a a]}")
)
C = "shared_experts: [{source_model: c, positive_prompts: [c]}]\n"


def planned(
    folder: Path, mode: str, further: str = "", base: Source | None = None, **config: Any
) -> Plan:
    recipe = parse_recipe(PROMPTED.replace("{}", mode, 1) + further)
    given = {name: dense(name, "qwen2" if C in further else "llama") for name in ("base", *"abc")}
    given["base"] = base or given["base"]
    sources = {ref: replace(given[ref.name], ref=ref) for ref in recipe.models}
    of_base = vocabulary_of(folder)
    assert recipe.base_model is not None
    read = Tokenizers({recipe.base_model: of_base})
    return make_plan(recipe, numbered(sources), read, seed=0, shard_size=1 << 30)


def gates_of(found: Plan) -> dict[str, Computed]:
    made = {}
    for name, each in units(found).items():
        if "gate.weight" in name:
            [whole] = [node for node in each.expression.nodes() if isinstance(node, Computed)]
            made[name] = whole
    return made


def test_gates_of_an_embedding_are_alike_in_all_layers(tmp_path: Path) -> None:
    found = planned(tokenizer(tmp_path), "cheap_embed", C)
    gates = gates_of(found)
    assert len(gates) == 4 and {gate.part for gate in gates.values()} == {0}
    [step] = {gate.step for gate in gates.values()}
    assert isinstance(step, EmbeddedPrompts)
    assert step.table is found.sources[0].tensors["model.embed_tokens.weight"]
    assert step.experts == (
        PromptTokens(((1, 2),), ()),
        PromptTokens(((2,),), ((3,), (1, 1))),
        PromptTokens(((3,),), ()),
    )
    assert step.routed == 2 and {gate.shape for gate in gates.values()} == {(3, HIDDEN)}


def test_gates_of_hidden_states_are_each_layers_part(tmp_path: Path) -> None:
    """The step has the base's tensors of floats, without buffers that are computed."""
    inv, coded = "self_attn.rotary_emb.inv_freq", "input_layernorm.weight"
    base = dense(
        "base",
        others=[
            tensor(f"model.layers.1.{inv}", (1,)),
            tensor(f"model.layers.0.{coded}", (HIDDEN,), "I64"),
        ],
    )
    gates = gates_of(planned(tokenizer(tmp_path), "hidden_avg", base=base))
    assert {name.split(".")[2]: gate.part for name, gate in gates.items()} == {"0": 0, "1": 1}
    [step] = {gate.step for gate in gates.values()}
    assert isinstance(step, HiddenStates) and step.mode == "hidden_avg" and step.routed == 2
    assert step.base == str(base.folder / "config.json") and step.config == base.config
    for number, own in enumerate(step.layers):
        at = f"model.layers.{number}."
        expected = {name.removeprefix(at) for name in base.tensors if name.startswith(at)}
        assert own.keys() == expected - ({coded} if number == 0 else {inv})
        assert all(each.name == at + name for name, each in own.items())


def problems_of(folder: Path, *given: Any, **named: Any) -> list[Problem]:
    with pytest.raises(InputError) as refused:
        planned(folder, *given, **named)
    return refused.value.problems


def test_prompts_need_tokens_that_the_embedding_has(tmp_path: Path) -> None:
    """The tokens of negative prompts are checked too."""
    folder = tokenizer(tmp_path, vocabulary=VOCABULARY | {"b": TOKENS - 1})
    assert gates_of(planned(folder, "cheap_embed"))
    folder = tokenizer(tmp_path, vocabulary=VOCABULARY | {"b": TOKENS, "c": TOKENS + 5})
    first, second = problems_of(folder, "cheap_embed")
    assert (first.path, second.path) == (
        "experts[0].positive_prompts",
        "experts[1].positive_prompts",
    )
    assert (first.found, second.found) == (f"the token {TOKENS}", f"the token {TOKENS + 5}")
    assert first.expected == f"tokens below {TOKENS}, the number of its rows"


def test_prompts_that_say_nothing_are_refused_and_a_shared_expert_may_have_none(
    tmp_path: Path,
) -> None:
    folder = tokenizer(tmp_path)
    [problem] = problems_of(folder, "cheap_embed", C.replace("[c]", "[' ']"))
    assert problem.path == "shared_experts[0].positive_prompts" and problem.found == "no token"
    silent = C.replace(", positive_prompts: [c]", "") + "architecture: deepseek\n"
    [step] = {gate.step for gate in gates_of(planned(folder, "cheap_embed", silent)).values()}
    assert isinstance(step, EmbeddedPrompts) and step.experts[2] == PromptTokens((), ())


@pytest.mark.parametrize(
    "name", ["model.embed_tokens.weight", "model.layers.1.self_attn.q_proj.weight"]
)
def test_hidden_states_are_of_a_base_that_is_computed_block_by_block(
    tmp_path: Path, name: str
) -> None:
    """A base that a method makes of whole tensors would need a pass before the first gate."""
    folder = tokenizer(tmp_path)

    def base(method: str) -> Source:
        model = dense("base")
        own = model.tensors[name]
        made = Merged(
            name=name,
            dtype=own.dtype,
            shape=own.shape,
            method=method,
            operands=(own, own),
            params={"normalize": True, "rescale": False},
            per_operand=({"weight": 1.0, "density": 0.5},) * 2,
            base=0,
            seed=0,
            block_elements=block_elements(None),
            models=("x", "y"),
        )
        return replace(model, tensors={**model.tensors, name: made})

    assert gates_of(planned(folder, "hidden", base=base("linear")))
    assert gates_of(planned(folder, "cheap_embed", base=base("ties")))
    [problem] = problems_of(folder, "hidden", base=base("ties"))
    assert problem.path == "base_model" and "reads whole tensors before" in problem.what


def test_hidden_states_need_libraries_that_an_embedding_does_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tokenizer(tmp_path)
    monkeypatch.setattr(
        layer_gates, "find_spec", lambda name: None if name == "transformers" else name
    )
    assert gates_of(planned(folder, "cheap_embed"))
    [problem] = problems_of(folder, "hidden")
    assert problem.path == "gate_mode" and problem.found == "no transformers"
    assert problem.expected == "the libraries torch and transformers"


def test_gates_of_other_libraries_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    before = replace(HIDDEN_STATES).key
    monkeypatch.setattr(hidden_states, "version", lambda library: f"{library} 99")
    assert HIDDEN_STATES.libraries == {"torch": "torch 99", "transformers": "transformers 99"}
    assert replace(HIDDEN_STATES).key != before
