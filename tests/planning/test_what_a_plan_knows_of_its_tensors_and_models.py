"""Promise: a plan names the tensors of its output, the files that each is read from, the models it
is made of, and the versions that decide its bytes.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from made_up_plans import LINEAR, llama, plan, remote, staged, tensor, vectors

from resumerge.methods import METHODS
from resumerge.planning import NUMERICS, Plan, Unit, fingerprint_parts
from resumerge.planning import versions as versions_module
from resumerge.planning.fingerprint import methods_in
from resumerge.planning.plan import LayerMap, LayerOrigin
from resumerge.planning.versions import Versions
from resumerge.recipe import ModelRef, parse_recipe
from resumerge.tensors import Combined, Computed, Sliced, Stacked
from resumerge.tensors.target import BLOCK_ELEMENTS

TIES = LINEAR.replace("linear", "ties") + "base_model: a\n"


def unit(name: str, shape: tuple[int, ...], **more: Any) -> Unit:
    stored = tensor(name, shape, more.get("dtype", "F32"))
    facts = {"dtype": "F32", "shard": 0, "offset": 0, "nbytes": stored.nbytes, "number": 0}
    return Unit(
        **{**facts, "tensors": {name: shape}, **more},
        name=name,
        shape=shape,
        block_elements=BLOCK_ELEMENTS,
        expression=stored,
    )


def with_units(*made: Unit) -> Plan:
    whole = plan(LINEAR, llama("a"), llama("b"))
    return replace(whole, units=made)


def test_a_tensor_is_a_unit_a_part_of_one_or_several() -> None:
    alone = unit("alone", (4, 2))
    two = unit("two", (10,), tensors={"one": (2, 3), "other": (4,)})
    first, *rest = (
        unit(f"packed.{n}", (2, 2), tensors={"packed": (3, 2, 2)} if n == 0 else {})
        for n in range(3)
    )
    found = with_units(alone, first, *rest, two, unit("last", (1,))).tensors()
    assert [*found] == ["alone", "packed", "one", "other", "last"]
    assert {name: each.shape for name, each in found.items()} == {
        "alone": (4, 2),
        "packed": (3, 2, 2),
        "one": (2, 3),
        "other": (4,),
        "last": (1,),
    }
    packed = found["packed"]
    assert isinstance(packed, Stacked)
    assert packed.parts == tuple(each.expression for each in (first, *rest))
    for name, start in (("one", 0), ("other", 6)):
        part = found[name]
        assert isinstance(part, Sliced)
        [(leaf, begin, end)] = part.reads(0, part.numel)
        assert (leaf, begin, end) == (two.expression, start, start + part.numel)


def test_tensors_of_a_quantised_weight_are_bytes() -> None:
    codes, scales = (128, 4), (2, 1)
    written = unit(
        "w",
        (512 + 8,),
        dtype="U8",
        tensors={"w.codes": codes, "w.scales": scales},
        dtypes={"w.codes": "F8_E4M3", "w.scales": "F32"},
    )
    found = with_units(written).tensors()
    assert {name: (each.shape, each.dtype) for name, each in found.items()} == {
        "w.codes": ((512,), "U8"),
        "w.scales": ((8,), "U8"),
    }


def test_the_files_of_a_tensor_are_told_by_their_kind() -> None:
    whole = plan(LINEAR, vectors("a", 3), replace(remote("b", 3), kind="hub"))
    [merged] = (each.expression for each in whole.units)
    local, hub = {(0, "m.safetensors")}, {(1, "f0")}
    assert whole.files_of(merged, "local") == local
    assert whole.files_of(merged, "hub", "bucket") == hub
    assert whole.files_of(merged, "local", "hub") == local | hub
    assert whole.files_of(merged) == set()


THREE = (
    f"name: s\n{LINEAR}---\nmerge_method: linear\nparameters: {{weight: 1}}\n"
    "models: [{model: s}, {model: c}]\n"
)


def test_the_models_of_all_documents_are_the_plans() -> None:
    whole = staged(THREE, *(llama(name) for name in "abc"))
    assert [source.ref.name for source in whole.own_sources] == ["a", "b", "c"]
    assert whole.merged == "linear of 3 models in 2 stages"
    assert [source.ref.name for source in whole.stages[0].own_sources] == ["a", "b"]
    assert whole.stages[0].merged == "linear of 2 models"
    assert whole.model(0).ref.name == "a" and whole.model(3).ref.name == "s"
    assert whole.reference_model.ref.name == "s"
    two = replace(whole, stages=(), variants={"one": whole, "two": whole})
    assert two.merged == "linear of 3 models, 2 variants"
    last = replace(whole, recipe=replace(whole.recipe, stages=()))
    assert last.own_sources == whole.own_sources, "a variant's, of which a stage's models are too"
    assert plan(TIES, llama("a"), llama("b")).method == "ties"


def test_an_adapter_of_a_model_is_one_of_its_sources() -> None:
    recipe = parse_recipe("merge_method: passthrough\nmodels: [{model: a+x}]\n")
    whole = plan(LINEAR, llama("a"), llama("b"))
    [ref] = recipe.models
    adapter = replace(llama("x"), ref=ref.parts[1])
    sources = (replace(llama("a"), ref=ref), adapter, replace(llama("b"), ref=ModelRef("b", "b")))
    found = replace(whole, recipe=recipe, sources=sources)
    assert found.own_sources == sources[:2]


def test_reminders_are_notes_that_are_given_again() -> None:
    found = plan(LINEAR, llama("a"), llama("b")).with_reminders(["one"])
    more = found.with_reminders(each for each in ("two", "three"))
    assert more.reminders == ("one", "two", "three")
    assert more.notes == (*found.notes, "two", "three") and found.notes[-1] == "one"


def test_a_file_in_gguf_is_one() -> None:
    whole = plan(LINEAR, llama("a"), llama("b"))
    [shard] = whole.shards
    assert not whole.is_gguf
    assert replace(whole, shards=(replace(shard, name="out.gguf"),)).is_gguf
    assert replace(whole, shards=(replace(shard, name="out.gguf"), shard)).is_gguf


def test_an_adapter_is_undecided_until_its_ranks_are_chosen() -> None:
    whole = plan(LINEAR, llama("a"), llama("b"))
    for undecided in (True, False):
        adapter: Any = SimpleNamespace(is_undecided=undecided)
        assert replace(whole, adapter=adapter).is_undecided == undecided
    assert not whole.is_undecided


@pytest.mark.parametrize(
    ("layers", "expected"),
    [([(0,), (1,)], True), ([(1,), (1,)], False), ([(0,), (0,)], False), ([(0, 5), (1, 2)], True)],
)
def test_layers_keep_their_numbers_if_the_first_model_of_each_does(
    layers: list[tuple[int, ...]], *, expected: bool
) -> None:
    origins = tuple(LayerOrigin(tuple(enumerate(each))) for each in layers)
    assert LayerMap("model.layers", (), origins).keeps_numbers == expected


# Versions


def known(found: Plan) -> dict[str, Any]:
    return dict(Versions.of_plan(found).known)


def test_the_versions_of_what_a_plan_computes_with() -> None:
    always = {"resumerge", "numerics", "block"}
    models = [llama("a"), llama("b")]
    assert (
        known(plan("merge_method: passthrough\nmodels: [{model: a}]\n", models[0])).keys() == always
    )
    linear = known(plan(LINEAR, *models))
    assert linear.keys() == always | {"merge method linear"}
    assert linear["merge method linear"] == METHODS.identity("linear")
    assert (linear["numerics"], linear["block"]) == (NUMERICS, BLOCK_ELEMENTS)
    assert {*known(staged(THREE.replace(LINEAR, TIES), *models, llama("c")))} >= {
        "merge method linear",
        "merge method ties",
    }
    torch = known(plan("merge_method: iso_c\nbase_model: a\nmodels: [{model: b}]\n", *models))
    assert "torch" in torch
    adapter: Any = SimpleNamespace(is_undecided=False)
    assert "numpy" in known(replace(plan(LINEAR, *models), adapter=adapter))


def test_the_method_of_combined_adapters_counts() -> None:
    core: Any = SimpleNamespace(method="ties", uses_torch=False)
    node = object.__new__(Combined)
    object.__setattr__(node, "core", core)
    fake: Any = SimpleNamespace(nodes=lambda: iter([node]), adapter=None)
    assert "merge method ties" in Versions.of_plan(fake).known


def test_a_difference_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Versions.of_plan(plan(LINEAR, llama("a"), llama("b")))
    assert here.differences("there") == []
    identity = here.known["merge method linear"]
    other = {
        **here.known,
        "numerics": 1,
        "merge method linear": {**identity, "version": 99},
        "merge method of_mine": {"version": 1, "origin": "mine.py"},
        "no-such-library": "1.0",
    }
    assert Versions(other).differences("at the driver") == [
        f"numerics: 1 at the driver, {NUMERICS} here",
        f"merge method linear: version 99 from {identity['origin']} at the driver, "
        f"version {identity['version']} from {identity['origin']} here",
        "merge method of_mine: version 1 from mine.py at the driver, none here",
        "no-such-library: 1.0 at the driver, none here",
    ]
    monkeypatch.setattr(versions_module, "BLOCK_ELEMENTS", 1)
    assert here.differences("there") == [f"block: {BLOCK_ELEMENTS} there, 1 here"]


# What decides the bytes


def test_each_document_has_its_method_template_and_tokenizers() -> None:
    whole = staged(THREE.replace(LINEAR, TIES), *(llama(n) for n in "abc"))
    [stage] = whole.stages
    stage = replace(stage, chat_template="{{ s }}", tokenizers={"a": "digest"})
    whole = replace(whole, stages=(stage,), chat_template="{{ w }}", tokenizers={"c": "another"})
    parts = fingerprint_parts(whole)
    assert methods_in(parts) == {
        "method": METHODS.identity("linear"),
        "method of s": METHODS.identity("ties"),
    }
    said = {key: part for key, part in parts.items() if key.startswith(("chat", "tokenizer"))}
    assert said == {
        "chat template": "{{ w }}",
        "chat template of s": "{{ s }}",
        "tokenizer of a": "digest",
        "tokenizer of c": "another",
    }
    assert {key for key in parts if key.startswith("source ")} == {f"source {n}" for n in "abc"}
    one = fingerprint_parts(replace(whole, kept=("s", "r")))
    assert one["kept stages"] == ["r", "s"]


def test_libraries_of_steps_and_of_adapters_decide() -> None:
    whole = plan(LINEAR, llama("a"), llama("b"))
    assert "libraries" not in fingerprint_parts(whole)
    step: Any = Mock(libraries={"torch": "2"}, tensors=lambda part: ())
    gate = Computed.of("gate", (4,), step, 0)
    first, *others = whole.units
    found = replace(whole, units=(replace(first, expression=gate), *others))
    assert fingerprint_parts(found)["libraries"] == {"torch": "2"}
    adapter: Any = SimpleNamespace()
    part = fingerprint_parts(replace(whole, adapter=adapter))["method"]
    assert part.keys() == {*METHODS.identity("linear"), "name", "numpy"}
    assert part["name"] == "linear"
    mixture: Any = SimpleNamespace(architecture="mixtral")
    made = fingerprint_parts(replace(whole, mixture=mixture))["method"]
    assert made == {"name": "linear", "architecture": "mixtral"}
