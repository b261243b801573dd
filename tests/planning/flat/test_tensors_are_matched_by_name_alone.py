"""Promise: tensors of models without a config.json are matched by name alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from made_up_plans import expression, tensor

from resumerge.errors import InputError, Problem
from resumerge.planning import Plan, Unshared, make_plan
from resumerge.planning.fingerprint import fingerprint_parts
from resumerge.recipe import ModelRef, parse_recipe
from resumerge.sources.types import Source, SourceFile, numbered
from resumerge.tensors import Stored

LINEAR = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"
SLERP = "merge_method: slerp\nbase_model: a\nparameters: {t: 0.5}\nmodels: [{model: b}]\n"
TIES = (
    "merge_method: ties\nbase_model: a\nparameters: {weight: 1, density: 0.5}\n"
    "models: [{model: b}, {model: c}]\n"
)


def checkpoint(name: str, *tensors: Stored | str, single: bool = True) -> Source:
    found = [tensor(t, (4, 4)) if isinstance(t, str) else t for t in tensors]
    placed = {t.name: replace(t, offset=64 * number) for number, t in enumerate(found)}
    files = {"m.safetensors": SourceFile("m.safetensors", 64 * len(found), {"header": name})}
    ref = ModelRef(name, name)
    return Source(
        ref=ref,
        kind="local",
        folder=Path("/nowhere"),
        revision=None,
        config={},
        tensors=placed,
        files=files,
        single=single,
    )


def plan(
    recipe: str, *models: Source, unshared: Unshared = Unshared.REFUSED, shard_size: int = 1 << 30
) -> Plan:
    sources = {model.ref: model for model in models}
    read = parse_recipe(recipe)
    return make_plan(read, numbered(sources), seed=0, shard_size=shard_size, unshared=unshared)


def problems(recipe: str, *models: Source, unshared: Unshared = Unshared.REFUSED) -> list[Problem]:
    with pytest.raises(InputError) as error:
        plan(recipe, *models, unshared=unshared)
    return error.value.problems


def inputs(found: Plan) -> dict[str, list[str]]:
    """Return the models that each tensor of the output is computed from."""
    return {
        unit.name: [found.sources[o.source].ref.text for o in expression(unit).operands]
        for unit in found.units
    }


def test_experts_are_taken_together_where_a_recipe_says_so() -> None:
    names = [f"mlp.experts.{n}.{p}_proj.weight" for n in range(2) for p in ("gate", "up", "down")]
    models = [checkpoint(name, *names) for name in "abc"]
    together = plan(TIES + "experts: together\n", *models)
    assert {unit.name: set(unit.tensors) for unit in together.units} == {
        "mlp.experts.gate_up_proj": {name for name in names if "down" not in name},
        "mlp.experts.down_proj": {name for name in names if "down" in name},
    }
    assert [unit.name for unit in plan(TIES, *models).units] == names


def test_no_name_is_taken_for_another() -> None:
    """A prefix, a tied head or a buffer that transformers computes is a name like any other."""
    ours = checkpoint("a", "model.embed_tokens.weight", "lm_head.weight", "x.inv_freq")
    theirs = checkpoint("b", "embed_tokens.weight", "x.inv_freq")
    union = plan(LINEAR, ours, theirs, unshared=Unshared.UNION)
    assert inputs(union) == {
        "model.embed_tokens.weight": ["a"],
        "lm_head.weight": ["a"],
        "x.inv_freq": ["a", "b"],
        "embed_tokens.weight": ["b"],
    }
    shared = plan(LINEAR, ours, theirs, unshared=Unshared.INTERSECTION)
    assert inputs(shared) == {"x.inv_freq": ["a", "b"]}
    assert shared.notes[1].startswith("tensors that not all models have are left out: b lacks 2")


def test_union_copies_what_a_method_cannot_merge_alone() -> None:
    found = plan(
        SLERP, checkpoint("a", "w", "ours"), checkpoint("b", "w", "theirs"), unshared=Unshared.UNION
    )
    methods = {unit.name: expression(unit).method for unit in found.units}
    assert methods == {"w": "slerp", "ours": "copy", "theirs": "copy"}
    told = [note for note in found.notes if "copied from it" in note]
    assert [note.split(":")[0] for note in told] == [
        "a alone has 1 tensor",
        "b alone has 1 tensor",
    ]


def test_task_vectors_need_the_base() -> None:
    models = [checkpoint("a", "w", "base_only"), checkpoint("b", "w", "x"), checkpoint("c", "w")]
    found = plan(TIES, *models, unshared=Unshared.UNION)
    assert inputs(found) == {"w": ["b", "c", "a"], "base_only": ["a"], "x": ["b"]}
    models[2] = checkpoint("c", "w", "x")
    [problem] = problems(TIES, *models, unshared=Unshared.UNION)
    assert problem.what == "ties cannot merge tensors that only some models have"
    assert problem.found == "x" and "base model" in problem.expected


def test_other_shapes_are_a_problem() -> None:
    [problem] = problems(LINEAR, checkpoint("a", "w"), checkpoint("b", tensor("w", (2, 4))))
    assert (problem.what, problem.found) == (
        "Shapes do not match in tensor w",
        "F32 [2, 4] in b",
    )


@pytest.mark.parametrize("unshared", [Unshared.UNION, Unshared.INTERSECTION])
def test_models_with_a_layout_do_not_take_the_options(unshared: Unshared) -> None:
    configured = [replace(checkpoint(n, "w"), config={"model_type": "x"}) for n in "ab"]
    [problem] = problems(LINEAR, *configured, unshared=unshared)
    assert problem.what.startswith(f"--tensor-{unshared.value} is for checkpoints")


def test_one_file_makes_one_file_and_a_folder_as_many_as_it_needs() -> None:
    def names(*, single: bool) -> Iterable[str]:
        models = [checkpoint(n, "v", "w", single=single) for n in "ab"]
        return [shard.name for shard in plan(LINEAR, *models, shard_size=64).shards]

    assert names(single=True) == ["model.safetensors"]
    assert len(list(names(single=False))) == 2


def test_the_option_is_part_of_what_decides_the_bytes() -> None:
    models = [checkpoint("a", "w"), checkpoint("b", "w")]
    parts = [fingerprint_parts(plan(LINEAR, *models, unshared=mode)) for mode in Unshared]
    assert parts[0].keys() < parts[1].keys()
    assert parts[1] != parts[2]


def test_what_only_the_base_of_a_copy_has_is_kept_or_left_out() -> None:
    recipe = "merge_method: passthrough\nbase_model: a\nmodels: [{model: b}]\n"
    recipe += "parameters: {scale: 2}\n"
    a, b = checkpoint("a", "x", "y"), checkpoint("b", "y", "z")
    [told] = problems(recipe, a, b)
    assert (told.what, told.found) == ("Not all models have the same tensors", "b lacks 1: x")
    kept = plan(recipe, a, b, unshared=Unshared.UNION)
    assert inputs(kept) == {"x": ["a"], "y": ["b"], "z": ["b"]}
    methods = {unit.name: expression(unit).method for unit in kept.units}
    assert methods == {"x": "copy", "y": "passthrough", "z": "passthrough"}
    left = plan(recipe, a, b, unshared=Unshared.INTERSECTION)
    assert inputs(left) == {"y": ["b"], "z": ["b"]}


WEIGHTS = ("net.0.weight", "net.1.weight", "net.1.bias")


@pytest.mark.parametrize("unshared", Unshared)
@pytest.mark.parametrize("wrapped_first", [True, False])
def test_models_of_which_nothing_would_be_merged(
    *, unshared: Unshared, wrapped_first: bool
) -> None:
    """The names of one model are those of the other with a prefix: no option merges them."""
    bare = checkpoint("a", *WEIGHTS)
    wrapped = checkpoint("b", *(f"model.diffusion_model.{name}" for name in WEIGHTS), "vae.x")
    recipe = LINEAR.replace("{model: a}, {model: b}", "{model: b}, {model: a}")
    models = (wrapped, bare) if wrapped_first else (bare, wrapped)
    found = problems(recipe if wrapped_first else LINEAR, *models, unshared=unshared)
    assert {problem.what for problem in found} == {
        "No tensor of a would be merged with another model's",
        "No tensor of b would be merged with another model's",
    }
    for problem in found:
        assert problem.fix is not None and problem.fix.startswith(
            "The names in b are those in a with 'model.diffusion_model.' before them"
        )


@pytest.mark.parametrize("unshared", Unshared)
def test_one_model_of_three_has_no_part(unshared: Unshared) -> None:
    recipe = LINEAR.replace("{model: b}", "{model: b}, {model: c}")
    models = [checkpoint("a", "w"), checkpoint("b", "w"), checkpoint("c", "x")]
    found = problems(recipe, *models, unshared=unshared)
    alone = found if unshared is not Unshared.INTERSECTION else found[2:]
    assert [p.what for p in alone] == ["No tensor of c would be merged with another model's"]


@pytest.mark.parametrize("unshared", Unshared)
def test_whole_numbers_alone_are_no_part(unshared: Unshared) -> None:
    ids = tensor("position_ids", (4, 4), "I64")
    found = problems(LINEAR, checkpoint("a", ids), checkpoint("b", ids), unshared=unshared)
    assert len(found) == 2
