"""Promise: embedding and head are those of the slices that the docs say; what was tied is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from made_up_plans import llama, plan, tensor
from merging import merge, tensors_of

from resumerge.errors import InputError
from resumerge.output.config import output_config
from resumerge.sources.types import Source
from resumerge.tensors import Merged

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
STACK = (
    "merge_method: passthrough\nslices:\n"
    "  - sources: [{model: a, layer_range: [0, 2]}]\n"
    "  - sources: [{model: b, layer_range: [1, 3]}]\n"
)
LINEAR = (
    "merge_method: linear\n"
    "models: [{model: a, parameters: {weight: 0.5}}, {model: b, parameters: {weight: 0.5}}]\n"
)


def tied(name: str, **config: Any) -> Source:
    return llama(name, without=[HEAD], config={"tie_word_embeddings": True, **config})


def test_the_head_is_that_of_the_last_slice_also_where_it_is_tied() -> None:
    found = plan(STACK, tied("a"), tied("b"))
    made = {unit.name: unit.expression.as_json() for unit in found.units}
    assert made[EMBEDDING] == {"source": 0, "tensor": EMBEDDING}
    assert made[HEAD] == {"source": 1, "tensor": EMBEDDING}
    assert output_config(found)["tie_word_embeddings"] is False
    assert any("does not tie its head to its embedding" in note for note in found.notes)


@pytest.mark.parametrize(
    "recipe",
    [
        STACK.replace("model: b", "model: a"),
        STACK.replace("model: b", "model: a").replace(
            "[1, 3]}", "[1, 3], parameters: {scale: [{filter: q_proj, value: 0}, {value: 1}]}}"
        ),
        LINEAR,
    ],
    ids=["of one model", "scaled inside", "whole models"],
)
def test_what_can_stay_tied_does(recipe: str) -> None:
    models = [tied(name) for name in ("a", "b") if f"model: {name}" in recipe]
    found = plan(recipe, *models)
    assert HEAD not in {unit.name for unit in found.units}
    assert output_config(found)["tie_word_embeddings"] is True


def test_a_slice_with_more_models_has_a_head_of_all() -> None:
    recipe = (
        "merge_method: linear\nparameters: {weight: 0.5}\nslices:\n"
        "  - sources: [{model: a, layer_range: [0, 2]}]\n"
        "  - sources: [{model: a, layer_range: [2, 3]}, {model: b, layer_range: [2, 3]}]\n"
    )
    found = {unit.name: unit.expression for unit in plan(recipe, tied("a"), tied("b")).units}
    assert len(found[HEAD].children()) == 2


ONE = STACK.replace("model: b", "model: a")


@pytest.mark.parametrize(
    ("recipe", "head"),
    [
        (ONE + "    parameters: {scale: 2}\n", 2.0),
        (ONE.replace("[1, 3]}", "[1, 3], parameters: {scale: 2}}"), 2.0),
        (ONE + "parameters: {scale: 2}\n", None),
    ],
    ids=["of the slice", "of the model", "of both"],
)
def test_slices_of_other_values_have_a_head_of_their_own(recipe: str, head: float | None) -> None:
    found = {unit.name: unit.expression for unit in plan(recipe, tied("a")).units}
    assert (HEAD in found) == (head is not None)
    if head is not None:
        made = found[HEAD]
        assert isinstance(made, Merged)
        assert [values["scale"] for values in made.per_operand] == [head]


def test_slices_of_a_tower_untie_nothing() -> None:
    """The embedding, and the head that is tied to it, are of another part."""
    recipe = (
        "merge_method: linear\nparameters: {weight: 1}\nmodules:\n"
        "  text_decoder: {models: [{model: a}, {model: b}]}\n"
        "  vision_tower:\n    slices:\n"
        "      - sources: [{model: a, layer_range: [0, 1]}]\n"
        "      - sources: [{model: b, layer_range: [1, 2]}]\n"
    )
    tower = [tensor(f"visual.blocks.{n}.w.weight", (4, 4)) for n in range(2)]
    models = [
        llama(
            name,
            others=tower,
            without=[HEAD],
            config={"tie_word_embeddings": True, "vision_config": {"depth": 2}},
        )
        for name in "ab"
    ]
    assert HEAD not in {unit.name for unit in plan(recipe, *models).units}


def bart(folder: Path, seed: int, *, ties: bool) -> None:
    torch.manual_seed(seed)
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "vocab_size": 24}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    wide = {"encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "max_position_embeddings": 16}
    made = tf.BartConfig(**sizes, **heads, **wide, tie_word_embeddings=ties)
    tf.BartForConditionalGeneration(made).save_pretrained(folder)


def test_all_that_was_tied_is_written_where_another_model_has_a_head(tmp_path: Path) -> None:
    bart(tmp_path / "a", 1, ties=True)
    bart(tmp_path / "b", 2, ties=False)
    out = merge(tmp_path, LINEAR, tmp_path / "out")
    a, b, merged = (tensors_of(folder) for folder in (tmp_path / "a", tmp_path / "b", out))
    of_a = a["model.shared.weight"]
    for name in ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"):
        torch.testing.assert_close(merged[f"{name}.weight"], (of_a + b[f"{name}.weight"]) / 2)
    _, info = tf.BartForConditionalGeneration.from_pretrained(out, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert json.loads((out / "config.json").read_text())["tie_word_embeddings"] is False


def test_models_that_scale_their_outputs_and_that_do_not_are_refused() -> None:
    models = (tied("a", model_type="t5"), tied("b", model_type="t5", tie_word_embeddings=False))
    with pytest.raises(InputError) as refused:
        plan(LINEAR, *models)
    [found] = refused.value.problems
    assert found.what == "The heads of b and a do not mean the same"
    assert found.found.startswith("a: the decoder's output is scaled")
    kept = {"model_type": "t5", "tie_word_embeddings": True, "scale_decoder_outputs": False}
    assert plan(LINEAR, tied("a", **kept), models[1])
