"""Promise: each part, head and list of layers of the output comes from the models that it names."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_up_plans import expression, expressions, llama, plan, tensor, units

from resumerge.errors import InputError, Problem
from resumerge.sources.types import Source
from resumerge.tensors import Merged, Rounded, Stacked

LINEAR = "merge_method: linear\nparameters: {weight: 1}\n"
TWO = "models: [{model: a}, {model: b}]\n"
EMBEDDING, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
TIED = {"tie_word_embeddings": True}
EYE = "visual.blocks.{}.w.weight"


def seeing(name: str, depth: int = 2, layers: int = 3, **more: object) -> Source:
    """Return a language model with a vision tower of `depth` blocks."""
    blocks = [tensor(EYE.format(n), (4, 4)) for n in range(depth)]
    config = {"vision_config": {"depth": depth}, **more}
    return llama(name, layers, others=blocks, config=config)


def problem(recipe: str, *models: Source) -> Problem:
    with pytest.raises(InputError) as refused:
        plan(recipe, *models)
    [found] = refused.value.problems
    return found


def sources(recipe: str, *models: Source) -> dict[str, list[str]]:
    """Return the names of the models that each tensor is computed from."""
    found = plan(recipe, *models)
    names = [source.ref.name for source in found.sources]
    return {n: [names[o.source] for o in e.operands] for n, e in expressions(found).items()}


# Lists of layers


def test_every_list_of_a_model_that_is_merged_whole_has_as_many_layers() -> None:
    plan(LINEAR + TWO, seeing("a"), seeing("b"))
    found = problem(LINEAR + TWO, seeing("a", 2), seeing("b", 4))
    assert found.what == "b and a have different numbers of layers"
    assert found.expected.startswith("2 layers visual.blocks.*")
    lacking = problem(LINEAR + TWO, seeing("a"), llama("b"))
    assert lacking.what == "2 tensors are missing from b", "it has none at all"


def test_only_the_module_that_is_named_has_to_have_as_many_layers() -> None:
    recipe = LINEAR + "modules:\n  text_decoder: {models: [{model: a}, {model: b}]}\n"
    assert sources(recipe, seeing("a", 2), seeing("b", 4))[EYE.format(1)] == ["a"]
    assert "different numbers" in problem(recipe, seeing("a"), seeing("b", 2, 4)).what


STACK = (
    "merge_method: passthrough\nslices:\n"
    "  - sources: [{model: b, layer_range: [0, 1]}]\n"
    "  - sources: [{model: a, layer_range: [1, 3]}]\n"
)


def test_other_lists_stay_as_in_the_first_slice() -> None:
    models = seeing("b"), seeing("a")
    found = sources(STACK, *models)
    assert found[EYE.format(0)] == found[EYE.format(1)] == found[EMBEDDING] == ["b"]
    assert found[NORM] == found[HEAD] == ["a"]
    note = "slices choose layers of model.layers; visual.blocks are merged as in the first slice"
    assert note in plan(STACK, *models).notes
    by_module = STACK.replace("slices:\n", "modules:\n  text_decoder:\n    slices:\n").replace(
        "  - sources", "    - sources"
    )
    assert not any("as in the first" in note for note in plan(by_module, *models).notes)


# Heads


def test_the_last_slice_brings_its_head_where_the_reference_has_none() -> None:
    tied = llama("b", without=[HEAD], config=TIED)
    found = sources(STACK, tied, llama("a"))
    assert found[HEAD] == ["a"]
    both = STACK.replace("{model: a", "{model: b").replace("[1, 3]", "[1, 2]")
    assert HEAD not in sources(both, tied)
    first = STACK.replace("model: b", "model: x").replace("model: a", "model: b")
    first = first.replace("model: x", "model: a") + "base_model: b\n"
    assert sources(first, llama("a"), tied)[HEAD] == ["b"], "its embedding"


def test_a_head_belongs_to_the_part_that_has_the_embedding() -> None:
    recipe = LINEAR + (
        "modules:\n  text_decoder: {models: [{model: a}, {model: b}]}\n"
        "  vision_tower: {models: [{model: a}, {model: b}]}\n"
    )
    tied = seeing("a", **TIED)
    tied = replace(tied, tensors={n: t for n, t in tied.tensors.items() if n != HEAD})
    found = plan(recipe, tied, seeing("b"))
    [head] = [unit for unit in found.units if unit.name == HEAD]
    assert [o.tensor.name for o in expression(head).operands] == [EMBEDDING, HEAD]
    eyes = LINEAR + "modules:\n  vision_tower: {models: [{model: a}, {model: b}]}\n"
    assert HEAD not in expressions(plan(eyes, tied, seeing("b")))


def test_a_head_gets_the_references_name() -> None:
    tied = llama("a", without=[HEAD], config=TIED)
    b = llama("b")
    wrapped = {f"text.{n}": replace(t, name=f"text.{n}") for n, t in b.tensors.items()}
    found = expressions(plan(LINEAR + TWO, tied, replace(b, tensors=wrapped)))
    assert [o.tensor.name for o in found[HEAD].operands] == [EMBEDDING, f"text.{HEAD}"]


# Modules


def test_a_part_is_named_once_and_by_a_name_that_it_has() -> None:
    twice = LINEAR + (
        "modules:\n  text_decoder: {models: [{model: a}]}\n"
        "  language_model: {models: [{model: a}]}\n"
    )
    found = problem(twice, seeing("a"))
    assert found.what == "The module text_decoder is named twice"
    assert found.found == "text_decoder and language_model"
    unknown = LINEAR + "modules:\n  vision_towel: {models: [{model: a}]}\n"
    found = problem(unknown, seeing("a"))
    assert found.what == "a has no module 'vision_towel'"
    assert "visual" in found.expected and "vision_tower (2 tensors, visual.blocks.*)" in (
        found.expected
    )
    assert found.fix == "Did you mean 'vision_tower'?"


def test_names_in_another_wrapper_are_matched_and_noted() -> None:
    b = llama("b")
    wrapped = {f"text.{n}": replace(t, name=f"text.{n}") for n, t in b.tensors.items()}
    found = plan(LINEAR + TWO, llama("a"), replace(b, tensors=wrapped))
    assert "tensors of b are matched by name, with the prefix text. in place of (none)" in (
        found.notes
    )
    assert [o.tensor.name for o in expressions(found)[NORM].operands] == [NORM, f"text.{NORM}"]


def test_the_base_of_a_copy_is_the_reference_only() -> None:
    recipe = "merge_method: passthrough\nbase_model: a\n"
    module = "modules:\n  text_decoder: {models: [{model: b}]}\n"
    found = sources(recipe + module, seeing("a"), llama("b"))
    assert found[EYE.format(0)] == ["a"] and found[EMBEDDING] == found[HEAD] == ["b"]
    inner = module.replace("{models", "{base_model: c, models")
    assert sources(recipe + inner, seeing("a"), llama("b"), llama("c")) == found
    whole = sources(recipe + "models: [{model: b}]\n", llama("a"), llama("b"))
    assert all(models == ["b"] for models in whole.values())
    told = problem(recipe + TWO, llama("a"), llama("b"))
    assert (told.what, told.found) == ("passthrough takes exactly 1 model", "2")
    assert told.expected == "exactly 1 (the base model not counted)"


# Experts


def experts(name: str, count: int = 3, *, missing: str = "", odd: str = "") -> Source:
    """Return a model whose layer has experts with matrices of their own."""
    every = [
        f"model.layers.0.mlp.experts.{n}.{p}_proj.weight"
        for n in range(count)
        for p in ("gate", "up", "down")
    ]
    shapes = {n: (4, 5) if n == odd else (4, 4) for n in every if n != missing}
    return llama(name, 1, others=[tensor(n, shape) for n, shape in shapes.items()])


TIES = "merge_method: ties\nbase_model: a\nparameters: {weight: 1, density: 0.5}\n" + TWO
TOGETHER = TIES + "experts: together\n"
GATED = "model.layers.0.mlp.experts.gate_up_proj"
DOWN = "model.layers.0.mlp.experts.down_proj"


def test_experts_are_computed_together_and_written_apart() -> None:
    found = plan(TOGETHER, experts("a"), experts("b"))
    packed = units(found)
    assert packed[GATED].shape == (3, 8, 4) and packed[DOWN].shape == (3, 4, 4)
    order = [f"experts.{n}.{p}_proj.weight" for n in range(3) for p in ("gate", "up")]
    assert [name.partition("mlp.")[2] for name in packed[GATED].tensors] == order
    assert set(packed[GATED].tensors.values()) == {(4, 4)}
    assert not any(".experts.0." in name for name in packed)
    assert found.sources[0].tensors.keys() == experts("a").tensors.keys(), "as on disk"
    first = expression(packed[GATED]).operands[0].tensor
    assert isinstance(first, Stacked) and first.nbytes == 6 * 64
    apart = plan(TIES, experts("a"), experts("b"))
    assert GATED not in units(apart) and len(apart.units) == len(packed) - 2 + 9


@pytest.mark.parametrize(
    ("missing", "odd", "packed"),
    [
        ("2.up", "", {DOWN}),
        ("1.down", "", {GATED}),
        ("", "1.up", {DOWN}),
        ("0.down", "2.gate", set()),
    ],
)
def test_experts_that_are_not_alike_stay_apart(missing: str, odd: str, packed: set[str]) -> None:
    names = [f"model.layers.0.mlp.experts.{n}_proj.weight" if n else "" for n in (missing, odd)]
    found = units(plan(TOGETHER, *(experts(m, missing=names[0], odd=names[1]) for m in "ab")))
    assert {name for name in found if name in (GATED, DOWN)} == packed


def test_experts_without_effect_are_noted() -> None:
    found = plan(TOGETHER, llama("a"), llama("b"))
    note = "experts has no effect: no layer has experts"
    assert note in found.notes
    whole = "merge_method: iso_c\nbase_model: a\nexperts: together\n" + TWO
    found = plan(whole, experts("a"), experts("b"))
    assert "experts has no effect: iso_c takes one matrix at a time" in found.notes
    assert GATED not in units(found)
    assert not any("experts has" in n for n in plan(TOGETHER, experts("a"), experts("b")).notes)


# What the ledger keeps of it


def test_an_expression_as_it_is_kept() -> None:
    x, y = replace(tensor("x", (4,)), source=1), tensor("y", (4,))
    operands, params = (Rounded.of(x, "BF16"), y), ({"weight": 2.0}, {})
    merged = Merged(
        name="z",
        dtype="F16",
        shape=(4,),
        method="ties",
        operands=operands,
        params={"lambda": 1.0},
        per_operand=params,
        base=1,
        seed=0,
        block_elements=4,
    )
    assert merged.as_json() == {
        "method": "ties",
        "params": {"lambda": 1.0},
        "base": 1,
        "dtype": "F16",
        "operands": [
            {
                "params": {"weight": 2.0},
                "of": {"rounded": "BF16", "operand": {"source": 1, "tensor": "x"}},
            },
            {"params": {}, "of": {"source": 0, "tensor": "y"}},
        ],
    }


def test_the_widest_input_counts() -> None:
    found = plan(LINEAR + TWO, llama("a", dtype="BF16"), llama("b"), seed=7)
    merged = units(found)[NORM].expression
    assert isinstance(merged, Merged)
    assert merged.context.bits == 32
    assert (merged.context.seed, merged.context.name) == (7, NORM)


def test_the_files_of_an_adapted_model_are_those_of_its_parts() -> None:
    a = llama("a")
    prefixed = {
        n: replace(t, file=f"{'adapter' if n == HEAD else 'base'}/m.safetensors")
        for n, t in a.tensors.items()
    }
    base, adapter = llama("a"), replace(llama("c"), kind="hub")
    files = {f"{p}/m.safetensors": a.files["m.safetensors"] for p in ("base", "adapter")}
    both = replace(a, kind="lora", tensors=prefixed, files=files, base=base, adapter=adapter)
    found = plan("merge_method: passthrough\nmodels: [{model: a}]\n", both)
    norm, head = (units(found)[name].expression for name in (NORM, HEAD))
    assert found.files_of(norm, "local") == {(0, "base/m.safetensors")}
    assert found.files_of(norm, "hub") == frozenset()
    assert found.files_of(head, "hub") == {(0, "adapter/m.safetensors")}
