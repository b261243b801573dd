"""Promise: a recipe of adapters alone makes an adapter, with the recipe's values for modules;
settings of models are refused there, and a rank in a recipe of models.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lora_files import write_lora_files
from made_up_plans import LINEAR, llama, plan, tensor
from merging import working_in
from tiny_models import LLAMA, write_family

from resumerge.engine.lifecycle.session import Session
from resumerge.errors import InputError, Problem
from resumerge.options import Options
from resumerge.planning import Plan, fingerprint, fingerprint_parts, make_plan
from resumerge.planning.other_outputs.adapters import is_combination, with_ranks
from resumerge.recipe import parse_recipe
from resumerge.sources.left_out import LeftOut
from resumerge.sources.types import Source, numbered
from resumerge.tensor_uses import UnusedReason
from resumerge.tensors import Combined, Factors

MODULES = {
    "model.layers.0.self_attn.q_proj": (16, 16),
    "model.layers.1.mlp.up_proj": (40, 16),
    "model.layers.2.mlp.up_proj": (40, 16),
}
Q, UP, LAST = MODULES
TWO = "models: [{model: one}, {model: two}]\n"
OF_TWO = f"merge_method: linear\nparameters: {{weight: 1}}\n{TWO}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("adapters")
    for seed, name in enumerate(("one", "two", "three")):
        write_lora_files(made / name, MODULES, seed, rank=2 + seed)
    write_family(made, LLAMA)
    return made


def planned(folder: Path, text: str, **options: Any) -> Plan:
    with working_in(folder):
        return Session(Options(**options)).plan(parse_recipe(text))


def combined(found: Plan) -> dict[str, Combined]:
    nodes = (node for unit in found.units for node in unit.expression.nodes())
    return {node.name: node for node in nodes if isinstance(node, Combined)}


def test_it_is_one_file_in_the_order_of_the_recipe(folder: Path) -> None:
    found = planned(folder, OF_TWO, shard_size=100, seed=5)
    assert [shard.name for shard in found.shards] == ["adapter_model.safetensors"]
    assert found.shard_size == sum(unit.nbytes for unit in found.units)
    assert found.adapter is not None and found.adapter.ranks == dict.fromkeys(MODULES, 5)
    assert found.reference_model.ref.name == "one" and found.seed == 5
    back = planned(folder, OF_TWO.replace("one", "x").replace("two", "one").replace("x}", "two}"))
    assert back.reference_model.ref.name == "two"
    assert len(found.left_out) == len(found.layer_maps) == 0
    ignored = planned(folder, OF_TWO.replace("weight: 1", "weight: 1, density: 0.5"))
    assert any("no parameter 'density'" in note for note in ignored.notes)


def test_values_are_those_of_each_module_and_adapter(folder: Path) -> None:
    text = (
        "merge_method: ties\nparameters:\n"
        "  lambda: [{filter: up_proj, value: [0.5, 1]}, {value: 2}]\n"
        "models:\n  - {model: one, parameters: {weight: [{filter: q_proj, value: 3}, {value: 1}],"
        " density: 0.5}}\n  - {model: two, parameters: {weight: 4, density: 0.25}}\n"
    )
    found = combined(planned(folder, text, seed=9))
    assert set(found) == set(MODULES)
    values = {
        name: [dict(each) for each in found[name].core.per_operand if each] for name in MODULES
    }
    of_two = [each[-1] for each in values.values()]
    assert [each["weight"] for each in of_two] == [4, 4, 4]
    assert [each["density"] for each in of_two] == [0.25] * 3
    assert [each[-2]["weight"] for each in values.values()] == [3, 1, 1]
    lambdas = [found[name].core.params["lambda"] for name in MODULES]
    assert lambdas[0] == 2 and lambdas[1] < lambdas[2] == 1, "a gradient goes from layer to layer"
    assert {node.core.method for node in found.values()} == {"ties"}
    assert {node.core.seed for node in found.values()} == {9}


def test_a_rank_compresses_and_is_of_adapters_alone(folder: Path) -> None:
    found = planned(folder, OF_TWO + "rank: 3\n")
    assert found.adapter is not None and set(found.adapter.ranks.values()) == {3}
    with pytest.raises(InputError) as refused:
        plan(LINEAR + "rank: 3\n", llama("a"), llama("b"))
    [problem] = refused.value.problems
    assert (problem.path, problem.found) == ("rank", "rank: 3, and models")


def refused(folder: Path, text: str) -> Problem:
    with working_in(folder), pytest.raises(InputError) as error:
        Session(Options()).plan(parse_recipe(text))
    return error.value.problems[0]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (OF_TWO.replace("two", "base"), "one is an adapter, and base is none"),
        (OF_TWO + "base_model: base\n", "one is an adapter, and base is none"),
        (OF_TWO.replace("linear", "slerp"), "slerp does not combine adapters"),
        (OF_TWO + "base_model: one\n", "Adapters are combined without their base model"),
        (
            OF_TWO + "experts: together\n",
            "The recipe combines adapters, and 'experts' is of models",
        ),
        (
            OF_TWO + "out_dtype: int4\n",
            "The recipe combines adapters, and 'out_dtype' is of models",
        ),
        (
            "merge_method: linear\nparameters: {weight: 1}\nslices:\n"
            "  - sources: [{model: one, layer_range: [0, 1]}, {model: two, layer_range: [0, 1]}]\n",
            "Adapters are combined whole",
        ),
        (
            OF_TWO.replace(TWO, f"modules: {{text: {{{TWO.strip()}}}}}\n"),
            "Adapters are combined whole",
        ),
        (OF_TWO.replace("weight: 1", "weight: x"), "The parameter 'weight' has an invalid value"),
        ("merge_method: linear\n" + TWO, "The parameter 'weight' of linear is missing for one"),
    ],
)
def test_what_is_of_models_is_refused(folder: Path, text: str, what: str) -> None:
    found = refused(folder, text)
    assert found.what.startswith(what)


def with_three(folder: Path, text: str) -> Plan:
    """Return the plan of a recipe for any of the folder's three adapters."""
    three = OF_TWO.replace("}]", "}, {model: three}]")
    opened = {source.ref: source for source in planned(folder, three).sources}
    recipe = parse_recipe(text)
    sources = numbered({ref: opened[ref] for ref in recipe.models})
    return make_plan(recipe, sources, seed=0, shard_size=None)


def test_what_its_adapters_say_and_leave_out_is_told(folder: Path) -> None:
    """The reference is the recipe's first adapter, in whatever order the adapters were opened."""
    recipe = parse_recipe(OF_TWO + "layer_order: x\n")
    opened = [*planned(folder, OF_TWO).sources]
    name, left = next(iter(opened[1].tensors.items()))
    unused = LeftOut(left, UnusedReason.NOT_LOADED)
    opened[1] = replace(opened[1], notes=("a note of two", "a note of two"), left_out=(unused,))
    sources = {source.ref: source for source in reversed(opened)}
    found = make_plan(recipe, sources, seed=0, shard_size=None)
    assert found.reference == 0, "the first of the recipe"
    assert found.notes.count("a note of two") == 1
    assert any("layer_order" in note for note in found.notes)
    assert unused in found.left_out and name


def test_values_that_cannot_be_are_told_of_adapters_too(folder: Path) -> None:
    for text, what in (
        (OF_TWO.replace("weight: 1", "weight: x"), "has an invalid value"),
        ("merge_method: linear\n" + TWO, "'weight' of linear is missing for one"),
    ):
        with pytest.raises(InputError, match=what):
            with_three(folder, text)


@pytest.mark.parametrize("line", ["tokenizer_source: union", "chat_template: chatml"])
def test_tokenizers_are_of_models(folder: Path, line: str) -> None:
    with pytest.raises(InputError, match="The recipe combines adapters, and '"):
        with_three(folder, f"{OF_TWO}{line}\n")


@pytest.mark.parametrize(
    ("method", "count", "wanted"),
    [
        ("passthrough", 1, None),
        ("passthrough", 2, "exactly 1 adapter"),
        ("nuslerp", 1, "exactly 2 adapters"),
        ("nuslerp", 2, None),
        ("nuslerp", 3, "exactly 2 adapters"),
        ("model_stock", 1, "at least 2 adapters"),
        ("model_stock", 2, None),
        ("ties", 1, None),
        ("linear", 3, None),
    ],
)
def test_a_method_takes_so_many_adapters(
    folder: Path, method: str, count: int, wanted: str | None
) -> None:
    """A base model that the method requires does not count as an adapter."""
    listed = ", ".join(f"{{model: {name}}}" for name in ("one", "two", "three")[:count])
    text = f"merge_method: {method}\nparameters: {{weight: 1}}\nmodels: [{listed}]\n"
    if wanted is None:
        assert with_three(folder, text).units
        return
    with pytest.raises(InputError) as error:
        with_three(folder, text)
    [problem] = error.value.problems
    assert problem.what == f"{method} takes {wanted}"
    assert problem.found == str(count)


def test_a_file_of_matrices_beside_adapters_is_told_to_be_one() -> None:
    matrix = "base_model.model.q_proj.lora_{}.weight"
    recipe = parse_recipe(OF_TWO)
    first, second = recipe.models
    made = replace(llama("one", 0), ref=first, is_adapter=True)
    pair = {matrix.format(x): tensor(matrix.format(x), (4, 4)) for x in "AB"}
    bare = replace(llama("two", 0), ref=second, tensors=pair, config={})
    sources: dict[Any, Source] = numbered({first: made, second: bare})
    assert is_combination(recipe, sources)
    with pytest.raises(InputError, match=r"two is an adapter without an adapter_config\.json"):
        make_plan(recipe, sources, seed=0, shard_size=None)


@pytest.fixture(scope="module")
def extracted(folder: Path) -> Plan:
    return planned(
        folder, "extract_lora: {model: math, max_rank: 6, energy: 0.5}\nbase_model: base\n"
    )


def test_ranks_that_were_chosen_change_shapes_and_places_alone(extracted: Plan) -> None:
    assert extracted.adapter is not None and extracted.is_undecided
    name, *others = extracted.adapter.ranks
    found = with_ranks(extracted, {name: 2})
    assert found.adapter is not None
    assert found.adapter.ranks == {**extracted.adapter.ranks, name: 2}
    assert not found.is_undecided
    assert fingerprint(fingerprint_parts(found)) == fingerprint(fingerprint_parts(extracted))
    assert found.shard_size == extracted.shard_size and len(found.shards) == 1
    assert found.shards[0].name == extracted.shards[0].name == "adapter_model.safetensors"
    before, after = ({u.name: u for u in each.units} for each in (extracted, found))
    assert before.keys() == after.keys()
    for unit in after.values():
        was = before[unit.name]
        assert isinstance(unit.expression, Factors) == isinstance(was.expression, Factors)
        if unit.name != name:
            assert (unit.shape, unit.tensors, unit.nbytes) == (was.shape, was.tensors, was.nbytes)
            continue
        assert isinstance(unit.expression, Factors) and unit.expression.rank == 2
        (a, shape_a), (b, shape_b) = unit.tensors.items()
        assert (shape_a, shape_b) == (
            (2, was.tensors[a][1]),
            (was.tensors[b][0], 2),
        )
        assert (
            unit.numel == unit.block_elements == shape_a[0] * shape_a[1] + shape_b[0] * shape_b[1]
        )
    [shard] = found.shards
    assert shard.nbytes == len(shard.header) + sum(unit.nbytes for unit in after.values())
    assert shard.nbytes < extracted.shards[0].nbytes and others


def test_an_extraction_is_one_file_of_the_model_that_differs(extracted: Plan) -> None:
    assert extracted.reference_model.ref.name == "math"
    assert extracted.shard_size == sum(unit.nbytes for unit in extracted.units)
    assert extracted.layers.main == "model.layers"
