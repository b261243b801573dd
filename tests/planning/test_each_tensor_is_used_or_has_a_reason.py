"""Promise: of every tensor of a model the plan says why it is not used, if it is not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from made_up_plans import LINEAR, REST, llama, plan, tensor

from resumerge.accounts import account
from resumerge.planning import Plan, Unshared, make_plan
from resumerge.recipe import parse_recipe
from resumerge.sources.left_out import LeftOut
from resumerge.sources.types import Source, numbered
from resumerge.tensor_uses import UnusedReason
from resumerge.tensors import Stored

HEAD, EMBEDDING, NORM = "lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"
BUFFER = "model.layers.1.self_attn.rotary_emb.inv_freq"
COUNTER = "model.steps"
OTHER = "model.other.embed_tokens.weight"
TIED = {"tie_word_embeddings": True}
OF_BOTH = "merge_method: linear\nparameters: {weight: 1}\n"


def told(found: Plan) -> dict[str, dict[str, str]]:
    """Return the reason of each unused tensor, by model; models without any are left out."""
    accounts = account(found.sources, (u.expression for u in found.units), found.left_out)
    return {
        each.model: {
            name: reason.value if reason else "none"
            for reason, names in each.unused.items()
            for name in names
        }
        for each in accounts.models
        if each.unused
    }


def layers(*numbers: int, rests: Iterable[str] = REST) -> list[str]:
    return [f"model.layers.{number}.{rest}" for number in numbers for rest in rests]


def because(reason: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, reason)


def seeing(name: str, *, buffer: bool = False, **more: object) -> Source:
    blocks = [tensor(f"visual.blocks.{n}.w.weight", (4, 4)) for n in range(2)]
    return llama(name, others=blocks, config={"vision_config": {"depth": 2}, **more})


def having(name: str, *others: Stored, **config: object) -> Source:
    return llama(name, others=others, config=config)


TOWER = ("visual.blocks.0.w.weight", "visual.blocks.1.w.weight")
SLICES = (
    "merge_method: passthrough\nslices:\n"
    "  - sources: [{model: a, layer_range: [0, 2]}]\n"
    "  - sources: [{model: b, layer_range: [1, 2]}]\n"
)
IN_SLICES = (
    "slices: [{sources: [{model: a, layer_range: [0, 3]}, {model: b, layer_range: [0, 3]}]}]\n"
)


@pytest.mark.parametrize(
    ("recipe", "models", "expected"),
    [
        (LINEAR, [llama("a"), llama("b")], {}),
        (
            LINEAR,
            [llama("a", config=TIED, without=[HEAD]), llama("b", config=TIED)],
            {"b": because("tied", HEAD)},
        ),
        (
            LINEAR,
            [
                llama("a", config=TIED),
                llama("b", config=TIED, without=[HEAD], others=[tensor(OTHER, (3, 4))]),
            ],
            {"a": because("tied", HEAD), "b": because("no_place", OTHER)},
        ),
        (
            LINEAR,
            [having("a", tensor(COUNTER, (1,), "I64")), having("b", tensor(COUNTER, (1,), "I64"))],
            {"b": because("from_another", COUNTER)},
        ),
        (
            LINEAR,
            [having("a", tensor(COUNTER, (1,))), having("b", tensor(COUNTER, (1,), "I64"))],
            {"a": because("from_another", COUNTER)},
        ),
        (
            f"{LINEAR}  - {{model: c}}\n".replace(
                "[{model: a}, {model: b}]\n", "\n  - {model: a}\n  - {model: b}\n"
            ),
            [having("a", tensor(BUFFER, (4,))), having("b", tensor(BUFFER, (4,))), llama("c")],
            {"b": because("computed", BUFFER)},
        ),
        (
            LINEAR,
            [llama("a"), having("b", tensor(BUFFER, (4,)))],
            {"b": because("computed", BUFFER)},
        ),
        (
            SLICES,
            [llama("a"), llama("b")],
            {
                "a": because("not_chosen", *layers(2)) | because("from_another", NORM, HEAD),
                "b": because("not_chosen", *layers(0, 2)) | because("from_another", EMBEDDING),
            },
        ),
        (
            OF_BOTH + "modules:\n  text_decoder: {models: [{model: a}, {model: b}]}\n"
            "  vision_tower: {models: [{model: b}]}\n",
            [seeing("a"), seeing("b")],
            {"a": because("from_another", *TOWER)},
        ),
        (
            OF_BOTH + "modules:\n  text_decoder: {models: [{model: a}, {model: b}]}\n",
            [seeing("a"), seeing("b")],
            {"b": because("from_another", *TOWER)},
        ),
        (
            LINEAR,
            [llama("a"), having("b", tensor("value_head.weight", (1, 4)))],
            {"b": because("no_place", "value_head.weight")},
        ),
        (
            OF_BOTH + IN_SLICES,
            [llama("a"), having("b", tensor("model.layers.1.extra.weight", (4,)))],
            {"b": because("no_place", "model.layers.1.extra.weight")},
        ),
        (
            "merge_method: passthrough\nbase_model: a\nmodels: [{model: b}]\n",
            [llama("a"), llama("b")],
            {"a": because("not_merged", EMBEDDING, *layers(0, 1, 2), NORM, HEAD)},
        ),
    ],
    ids=[
        "all used",
        "a head that the reference ties",
        "a head that none can take the place of",
        "whole numbers",
        "floats beside whole numbers",
        "buffers that one model lacks",
        "a buffer that the reference lacks",
        "slices",
        "a module of another model",
        "a module that is not named",
        "a head of another kind",
        "another tensor of a layer",
        "a base that only gives the config",
    ],
)
def test_a_reason_for_each(
    recipe: str, models: list[Source], expected: Mapping[str, Mapping[str, str]]
) -> None:
    away = [
        replace(m, files={n: replace(f, present=False) for n, f in m.files.items()}) for m in models
    ]
    assert told(plan(recipe, *away)) == expected


def test_what_the_opening_of_a_model_leaves_out_is_told_too() -> None:
    """Opening a model leaves out, for example, copies in an adapter's file that peft ignores."""
    one, other = llama("a"), llama("b")
    left = LeftOut(other.tensors[NORM], UnusedReason.NOT_LOADED)
    found = plan(LINEAR, one, replace(other, left_out=(left,)))
    assert told(found) == {}, "it is used after all"
    assert found.left_out == (LeftOut(found.sources[1].tensors[NORM], UnusedReason.NOT_LOADED),)


@pytest.mark.parametrize(
    ("unshared", "expected"),
    [
        (Unshared.UNION, {}),
        (Unshared.INTERSECTION, {"a": {"mine": "unshared"}, "b": {"yours": "unshared"}}),
    ],
)
def test_checkpoints_say_it_of_what_not_all_of_them_have(
    unshared: Unshared, expected: Mapping[str, Mapping[str, str]]
) -> None:
    recipe = parse_recipe(LINEAR)
    tensors = {"a": ("mine", "ours"), "b": ("ours", "yours")}
    sources = {
        ref: replace(
            llama(ref.name),
            ref=ref,
            config={},
            tensors={name: tensor(name, (4,)) for name in tensors[ref.name]},
        )
        for ref in recipe.models
    }
    found = make_plan(recipe, numbered(sources), seed=0, shard_size=1 << 30, unshared=unshared)
    assert told(found) == expected
