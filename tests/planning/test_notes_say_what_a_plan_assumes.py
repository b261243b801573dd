"""Promise: what models say of themselves, and what a plan assumes of them, is in its notes, once;
several problems are reported together, in the order of the recipe.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from made_up_plans import LINEAR, llama, plan, tensor

from resumerge.errors import InputError
from resumerge.planning import Unshared, make_plan
from resumerge.planning.reference_files import notes_on_quantisation, reference_without_config
from resumerge.recipe import parse_recipe
from resumerge.sources.types import Source, numbered

HEAD = "lm_head.weight"
QUANTISED = {"quantization_config": {"quant_method": "gptq"}}


def notes(text: str, *models: Source) -> list[str]:
    found = plan(text, *models).notes
    assert len(set(found)) == len(found)
    return [*found]


def test_what_models_say_of_themselves_is_noted() -> None:
    said = replace(llama("a"), notes=("a note of a",)), replace(llama("b"), notes=("of b", "of b"))
    found = notes(LINEAR, *said)
    assert "a note of a" in found and "of b" in found
    assert not {"a note of a", "of b"} & {*notes(LINEAR, llama("a"), llama("b"))}


def test_what_the_recipe_says_in_vain_is_noted() -> None:
    assert not any("'density'" in note for note in notes(LINEAR, llama("a"), llama("b")))
    text = LINEAR.replace("weight: 1", "weight: 1, density: 1")
    assert any("'density'" in note for note in notes(text, llama("a"), llama("b")))
    assert any(
        "layer_order" in n for n in notes(LINEAR + "layer_order: x\n", llama("a"), llama("b"))
    )


def test_a_reference_that_says_it_is_quantised_and_is_not_is_noted() -> None:
    plain, says = llama("b"), llama("a", config=QUANTISED)
    [note] = [n for n in notes(LINEAR, says, plain) if "quantised" in n]
    assert note.startswith("the config.json of a says that its weights are quantised (gptq)")
    assert not any(
        "quantised" in n for n in notes(LINEAR, llama("a"), llama("b", config=QUANTISED))
    )


def test_so_is_each_component_of_a_pipeline(tmp_path: Path) -> None:
    for name in ("unet", "vae"):
        (tmp_path / name).mkdir()
    (tmp_path / "unet" / "config.json").write_text('{"quantization_config": {"quant_method": "x"}}')
    (tmp_path / "vae" / "config.json").write_text("{}")
    components = {"unet": "diffusion_pytorch_model", "vae": "", "text": ""}
    source = replace(llama("a", config={}), folder=tmp_path, components=components)
    [note] = notes_on_quantisation(source)
    assert note.startswith("the unet/config.json of a says that its weights are quantised (x)")


def test_problems_are_told_together_and_those_without_a_line_last() -> None:
    text = (
        "merge_method: linear\nmodels:\n  - {model: a, parameters: {weight: x}}\n"
        "  - {model: b, parameters: {weight: 1}}\nchat_template: chatmi\n"
    )
    odd = llama("b", others=[tensor(HEAD, (10, 5))])
    with pytest.raises(InputError) as refused:
        plan(text, llama("a"), odd)
    lines = [problem.line for problem in refused.value.problems]
    assert len(lines) == 3 and lines == sorted(lines, key=lambda n: (n is None, n or 0))
    with pytest.raises(InputError) as refused:
        plan(LINEAR, replace(llama("a"), tensors={}), replace(llama("b"), tensors={}))
    [nothing] = refused.value.problems
    assert nothing.what == "There are no tensors to merge"


def test_several_slices_that_lack_the_same_are_one_problem() -> None:
    text = (
        "merge_method: ties\nparameters: {weight: 1}\nslices:\n"
        "  - sources: [{model: a, layer_range: [0, 1]}]\n"
        "  - sources: [{model: a, layer_range: [1, 2]}]\n"
    )
    with pytest.raises(InputError) as refused:
        plan(text, llama("a"))
    assert [p.what for p in refused.value.problems] == ["ties needs a base model"]


@pytest.mark.parametrize("unshared", [Unshared.UNION, Unshared.INTERSECTION])
def test_an_option_of_checkpoints_is_refused_beside_configs(unshared: Unshared) -> None:
    recipe = parse_recipe(LINEAR)
    sources = numbered({ref: replace(llama(ref.name), ref=ref) for ref in recipe.models})
    with pytest.raises(InputError, match=f"--tensor-{unshared.value} is for checkpoints"):
        make_plan(recipe, sources, seed=0, shard_size=None, unshared=unshared)


def test_a_missing_config_of_the_reference_is_told_before_anything_is_planned() -> None:
    recipe = parse_recipe(LINEAR)
    having, lacking = llama("b"), replace(llama("a"), config={})
    by_name = {ref.name: ref for ref in recipe.models}
    a, b = by_name["a"], by_name["b"]
    [found] = reference_without_config(recipe, {a: lacking, b: having})
    assert (found.path, found.found) == ("models[0]", "none; b has one")
    assert reference_without_config(recipe, {a: llama("a"), b: having}) == []
    assert reference_without_config(recipe, {b: having}) == [], "it is not open yet"
    [alone] = reference_without_config(recipe, {a: lacking})
    assert alone.found == "none"
    based = parse_recipe(LINEAR + "base_model: b\n")
    assert reference_without_config(based, {a: lacking, b: having}) == []
    [found] = reference_without_config(based, {a: having, b: lacking})
    assert found.path == "base_model"


def test_one_file_is_not_reminded_of_a_config() -> None:
    bare = [replace(llama(name), config={}) for name in "ab"]
    assert any("no model has a config.json" in note for note in notes(LINEAR, *bare))
    single = [replace(source, single=True) for source in bare]
    found = notes(LINEAR, *single)
    assert not any("config.json" in note for note in found)
    assert "tensors are matched by name" in found
