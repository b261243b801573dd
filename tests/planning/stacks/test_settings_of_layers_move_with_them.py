"""Promise: what config.json says of a layer, or leaves to its class, is the same after a stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from made_up_plans import llama, plan, tensor

from resumerge.errors import InputError, Problem
from resumerge.output.config import output_config
from resumerge.planning.stacks import implied
from resumerge.sources.types import Source

FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
STACK = ((0, 4), (1, 4))


def recipe(*ranges: tuple[int, int], names: str = "a") -> str:
    slices = [
        f"  - sources: [{{model: {name}, layer_range: [{first}, {stop}]}}]\n"
        for name, (first, stop) in zip(names * len(ranges), ranges)
    ]
    return "merge_method: passthrough\nslices:\n" + "".join(slices)


def model(layers: int = 4, name: str = "a", **config: Any) -> Source:
    return llama(name, layers, config=config)


def stacked(source: Source, *ranges: tuple[int, int]) -> dict[str, Any]:
    return output_config(plan(recipe(*ranges), source))


def refused(source: Source, *ranges: tuple[int, int]) -> Problem:
    with pytest.raises(InputError) as told:
        plan(recipe(*ranges), source)
    [problem] = told.value.problems
    return problem


# Patterns that a config leaves to its class


@pytest.mark.parametrize(
    ("config", "key", "expected"),
    [
        ({"model_type": "gemma2"}, "layer_types", [SLIDING, FULL] * 2 + [FULL, SLIDING, FULL]),
        (
            {"model_type": "gemma3_text", "sliding_window_pattern": 2},
            "layer_types",
            [SLIDING, FULL, SLIDING, FULL, FULL, SLIDING, FULL],
        ),
        ({"model_type": "cohere2"}, "layer_types", [SLIDING] * 3 + [FULL, SLIDING, SLIDING, FULL]),
        ({"model_type": "smollm3"}, "no_rope_layers", [1, 1, 1, 0, 1, 1, 0]),
        ({"model_type": "llama4_text", "interleave_moe_layer_step": 2}, "moe_layers", [1, 3, 4, 6]),
        ({"model_type": "qwen3_next"}, "layer_types", [LINEAR] * 3 + [FULL, LINEAR, LINEAR, FULL]),
        ({"model_type": "deepseek_v32", "first_k_dense_replace": 2}, "mlp_layer_types",
         ["dense", "dense", "sparse", "sparse", "dense", "sparse", "sparse"]),
        ({"model_type": "qwen2_moe", "decoder_sparse_step": 2}, "mlp_only_layers", [0, 2, 5]),
        (
            {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 2},
            "layer_types",
            [FULL, FULL, SLIDING, SLIDING, FULL, SLIDING, SLIDING],
        ),
    ],
)  # fmt: skip
def test_a_pattern_of_the_class_is_written_where_layers_move(
    config: Mapping[str, Any], key: str, expected: list[Any]
) -> None:
    assert stacked(model(**config), *STACK)[key] == expected


def test_nothing_is_written_where_the_class_derives_the_same() -> None:
    for config in (
        {"model_type": "gemma2"},
        {"model_type": "qwen2_moe", "decoder_sparse_step": 2},
        {"model_type": "qwen3_moe", "mlp_only_layers": [0, 1]},
        {"model_type": "mistral_large4_text", "kv_source_layers": [0, 1, 2, 3]},
        {"model_type": "deepseek_v3", "first_k_dense_replace": 1},
        {"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": True},
    ):
        source = model(**config)
        assert stacked(source, (0, 4)) == source.config | {"torch_dtype": "float32"}
        pruned = stacked(source, (0, 2))
        cut = {"kv_source_layers": [0, 1]} if "kv_source_layers" in source.config else {}
        assert pruned == source.config | cut | {"torch_dtype": "float32", "num_hidden_layers": 2}
    uniform = model(model_type="qwen2", use_sliding_window=False)
    assert "layer_types" not in stacked(uniform, *STACK)


def test_a_list_that_is_there_gets_the_length_of_the_output() -> None:
    """The list stays if its class derives the same: a class reads no list of another length."""
    for kind in ("gemma2", "gemma4_text"):
        source = model(model_type=kind, layer_types=[SLIDING, FULL] * 2)
        assert stacked(source, (0, 2))["layer_types"] == [SLIDING, FULL]
        assert stacked(source, (0, 4), (0, 2))["layer_types"] == [SLIDING, FULL] * 3
    repeated = model(model_type="recurrent_gemma", block_types=["recurrent", "attention"])
    assert stacked(repeated, (0, 4), (2, 4))["block_types"] == ["recurrent", "attention"]


def test_each_layer_has_the_pattern_of_its_own_model() -> None:
    a = model(model_type="gemma3_text", sliding_window_pattern=2)
    b = model(name="b", model_type="gemma3_text", sliding_window_pattern=4)
    found = output_config(plan(recipe((0, 3), (1, 4), names="ab"), a, b))
    assert found["layer_types"] == [SLIDING, FULL, SLIDING, SLIDING, SLIDING, FULL]


def test_a_nested_config_without_a_model_type_has_the_rules_of_its_own_class() -> None:
    text = {"num_hidden_layers": 4, "sliding_window_pattern": 2}
    source = model(model_type="gemma3", num_hidden_layers=None, text_config=text)
    found = stacked(source, *STACK)
    assert found["text_config"]["layer_types"] == [
        SLIDING,
        FULL,
        SLIDING,
        FULL,
        FULL,
        SLIDING,
        FULL,
    ]
    assert "layer_types" not in found


# Numbers in place of lists


def test_a_number_of_first_layers_follows_them() -> None:
    source = model(model_type="deepseek_v3", first_k_dense_replace=2)
    assert stacked(source, (0, 2), (1, 4))["first_k_dense_replace"] == 3
    assert stacked(source, (1, 4))["first_k_dense_replace"] == 1
    assert stacked(source, (2, 4))["first_k_dense_replace"] == 0
    ernie = model(model_type="ernie4_5_moe", moe_layer_start_index=1, moe_layer_end_index=2)
    found = stacked(ernie, (0, 2), (1, 4))
    assert (found["moe_layer_start_index"], found["moe_layer_end_index"]) == (1, 3)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"model_type": "deepseek_v3", "first_k_dense_replace": 2}, "first_k_dense_replace: 2"),
        ({"model_type": "afmoe", "num_dense_layers": 2}, "num_dense_layers: 2"),
        ({"model_type": "ernie4_5_moe", "moe_layer_start_index": 2}, "moe_layer_start_index: 2"),
        ({"model_type": "jamba", "attn_layer_period": 2, "attn_layer_offset": 1},
         "attn_layer_period: 2"),
        ({"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": True},
         "scale_attn_by_inverse_layer_idx: True"),
        ({"model_type": "diffllama"}, "lambda_init"),
        ({"model_type": "gemma4_text", "layer_types": [FULL, SLIDING, SLIDING, FULL],
          "num_kv_shared_layers": 2}, "num_kv_shared_layers: 2"),
    ],
)  # fmt: skip
def test_what_no_key_can_state_is_refused_with_the_key_that_it_follows_from(
    config: Mapping[str, Any], told: str
) -> None:
    problem = refused(model(**config), *STACK)
    assert problem.what == "config.json expects a different kind of layer at this position"
    assert told in str(problem.expected)
    assert problem.path.endswith(".sources[0].layer_range")


def test_a_layer_that_reads_another_ones_keys_reads_the_same_ones() -> None:
    source = model(model_type="mistral_large4_text", kv_source_layers=[0, 0, 2, 2])
    assert stacked(source, *STACK)["kv_source_layers"] == [0, 0, 2, 2, 0, 5, 5]
    assert "kv_source_layers" in str(refused(source, (1, 4)).expected)


def test_layers_that_share_keys_stay_the_last_ones() -> None:
    source = model(model_type="gemma4_text", layer_types=[FULL] * 4, num_kv_shared_layers=2)
    assert stacked(source, (0, 4), (3, 4))["num_kv_shared_layers"] == 3
    assert stacked(source, (0, 3))["num_kv_shared_layers"] == 1
    assert "num_kv_shared_layers" in str(refused(source, (0, 3), (0, 4)).expected)


# Lists, letters and mappings


def test_lists_with_an_entry_for_each_layer_are_cut_whatever_their_key() -> None:
    found = stacked(
        model(
            intermediate_size=[8, 8, 16, 16],
            num_key_value_heads=[1, 2, 1, 2],
            swiglu_limits=[None, 1.0, None, 2.0],
            mlp_only_layers=[0, 1, 2, 3],
            eos_token_id=[1, 2, 3, 0],
            per_layer_config={"01": {"head_dim": 8}, "03": {"head_dim": 4}},
        ),
        *STACK,
    )
    assert found["intermediate_size"] == [8, 8, 16, 16, 8, 16, 16]
    assert found["num_key_value_heads"] == [1, 2, 1, 2, 2, 1, 2]
    assert found["swiglu_limits"] == [None, 1.0, None, 2.0, 1.0, None, 2.0]
    assert found["mlp_only_layers"] == [0, 1, 2, 3, 4, 5, 6]
    assert found["eos_token_id"] == [1, 2, 3, 0]
    wide, narrow = {"head_dim": 8}, {"head_dim": 4}
    assert found["per_layer_config"] == {"1": wide, "3": narrow, "4": wide, "6": narrow}


def test_blocks_are_counted_by_their_list_where_no_number_counts_them() -> None:
    for key, value in {
        "layers_block_type": [LINEAR, "mlp", LINEAR, FULL],
        "hybrid_override_pattern": "M-M*",
    }.items():
        source = model(model_type="nemotron_h", num_hidden_layers=None, **{key: value})
        found = stacked(source, *STACK)
        assert list(found[key]) == [value[n] for n in (0, 1, 2, 3, 1, 2, 3)]
        assert found["num_hidden_layers"] is None
    counted = model(model_type="nemotron_h", hybrid_override_pattern="M-M*")
    found = stacked(counted, (0, 4), (0, 1))
    assert (found["hybrid_override_pattern"], found["num_hidden_layers"]) == ("M-M*M", 5)


def test_a_config_that_does_not_count_its_layers_is_refused_where_their_number_changes() -> None:
    source = model(num_hidden_layers=None)
    assert "does not count the layers model.layers.*" in refused(source, *STACK).what
    plan(recipe((0, 2), (2, 4)), source)


def test_layers_whose_outputs_are_read_elsewhere_stay_as_many() -> None:
    source = model(deepstack_visual_indexes=[1, 3])
    assert "deepstack_visual_indexes: [1, 3]" in str(refused(source, *STACK).expected)
    assert stacked(source, (1, 4))["deepstack_visual_indexes"] == [0, 2]
    stages = ["stem", "stage1", "stage2", "stage3", "stage4"]
    last = model(stage_names=stages, out_features=["stage4"], out_indices=[4])
    found = stacked(last, (0, 2))
    assert found["stage_names"] == ["stem", "stage1", "stage2"]
    assert (found["out_features"], found["out_indices"]) == (["stage2"], [2])
    some = model(stage_names=stages, out_features=["stage2", "stage4"], out_indices=[2, 4])
    assert "out_features" in str(refused(some, (0, 3)).expected)


def test_defaults_of_lists_move_too() -> None:
    vision = model(32, model_type="qwen2_5_vl_vision")
    assert stacked(vision, (0, 8), (6, 8))["fullatt_block_indexes"] == [7, 9]
    deep = model(27, model_type="qwen3_vl_vision")
    assert "deepstack_visual_indexes" in str(refused(deep, (0, 10), (8, 27)).expected)
    assert stacked(deep, (2, 27))["deepstack_visual_indexes"] == [6, 14, 22]


def test_widths_that_no_setting_tells_apart_stay_in_their_order() -> None:
    def wide(**config: Any) -> Source:
        others = [tensor(f"model.layers.{n}.mlp.up_proj.weight", (8, 4)) for n in (1, 3)]
        return llama("a", 4, others=others, config=config)

    assert "ABAB" in str(refused(wide(), *STACK).expected)
    assert stacked(wide(), (0, 4), (2, 4))["num_hidden_layers"] == 6
    found = stacked(wide(intermediate_size=[4, 8, 4, 8]), *STACK)
    assert found["intermediate_size"] == [4, 8, 4, 8, 8, 4, 8]


# The planned tensors, and what config.json implies


def mixed_widths() -> Source:
    others = [tensor(f"model.layers.{n}.mlp.up_proj.weight", (8, 4)) for n in (1, 3)]
    return llama("a", 4, others=others, config={"intermediate_size": [4, 8, 4, 8]})


def test_a_planned_output_is_compared_with_its_config(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong config, as a fault in the other checks would write it, is found."""
    source = mixed_widths()
    good = plan(recipe(*STACK), source)
    assert output_config(good)["intermediate_size"] == [4, 8, 4, 8, 8, 4, 8]

    for wrong, expected in (
        ({}, "7 layers model.layers.*"),
        ({"num_hidden_layers": 7, "intermediate_size": [4, 8, 4, 8, 4, 8, 4]}, "model.layers.4."),
        # No layer of the model is said to be as wide as the first one: of it nothing is known.
        ({"num_hidden_layers": 7, "intermediate_size": [9, 8, 4, 8, 4, 8, 4]}, "model.layers.4."),
    ):
        config = {**source.config, **wrong}
        monkeypatch.setattr(implied, "moved_config", lambda *_, config=config: config)
        problem = refused(source, *STACK)
        assert problem.what.startswith("The output would not have the tensors")
        assert expected in str(problem.expected)


def test_a_layer_of_an_encoder_whose_output_is_read_keeps_its_number() -> None:
    def llava(layer: Any) -> Source:
        vision = [tensor(f"vision_tower.layers.{n}.w.weight", (4, 4)) for n in range(3)]
        config = {"vision_config": {"num_hidden_layers": 3}, "vision_feature_layer": layer}
        return llama("a", 4, others=vision, config=config)

    part = "merge_method: passthrough\nmodules:\n  vision_tower:\n    slices:\n"
    moved = part + "      - sources: [{model: a, layer_range: [1, 3]}]\n"
    kept = part + "      - sources: [{model: a, layer_range: [0, 2]}]\n"
    plan(moved, llava(-2))
    plan(kept, llava(1))
    plan(kept, llava(2))  # what comes out of the second layer, which is the last
    for part_of, layer in ((moved, [-1, 1]), (kept, 3)):
        with pytest.raises(InputError) as told:
            plan(part_of, llava(layer))
        [problem] = told.value.problems
        assert f"vision_feature_layer: {layer}" in str(problem.found)
    plan(recipe(*STACK), llava(1))


def test_numbers_that_a_class_of_somebody_else_may_read_are_told() -> None:
    def notes(**config: Any) -> list[str]:
        found = plan(recipe(*STACK), model(model_type="of_somebody", **config))
        return [note for note in found.notes if "by their number" in note]

    [note] = notes(max_window_layers=2, use_sliding_window=True)
    assert note.startswith("config.json's max_window_layers: 2")
    assert len(notes(first_k_dense_replace=2, dense_attention_every_n_layers=2)) == 2
    assert notes(max_window_layers=2, use_sliding_window=False) == []


# Tensors outside the layers


def test_tensors_with_a_part_for_each_layer_are_refused() -> None:
    def told(name: str, *shape: int, **config: Any) -> str:
        others = [tensor(name, shape)]
        problem = refused(llama("a", 4, others=others, config=config), *STACK)
        assert "tensors outside them have a part for each layer" in problem.what
        return str(problem.found)

    wide = "model.embed_tokens_per_layer.weight"
    found = told(wide, 10, 32, model_type="gemma4_text", hidden_size_per_layer_input=8)
    assert wide in found and "hidden_size_per_layer_input: 8" in found
    assert "model.layer_weights" in told("model.layer_weights", 5)
    assert "model.resid_lambdas" in told("model.resid_lambdas", 4)
    assert "model.layer_gaps" in told("model.layer_gaps", 3), "one between each two"
    crossed = [tensor(f"model.gated_cross_attn_layers.{n}.weight", (4, 4)) for n in range(2)]
    source = llama("a", 4, others=crossed, config={"cross_layer_interval": 2})
    assert "cross_layer_interval: 2" in str(refused(source, *STACK).found)
    plan(recipe((0, 4)), source)


def test_other_layers_that_the_same_key_counts_are_refused() -> None:
    both = [tensor(f"model.side.layers.{n}.w.weight", (4, 4)) for n in range(4)]
    source = llama("a", 4, others=both)
    problem = refused(source, *STACK)
    assert problem.what == "num_hidden_layers in config.json counts two lists of layers"
    assert problem.expected == "7 layers model.side.layers.*, as many as model.layers.*"


# Layers of different kinds that are merged


def test_layers_of_different_kinds_that_are_merged_are_named() -> None:
    """Layers of several kinds have the same tensors, and config.json can name only one kind."""
    a = model(model_type="gemma3_text", sliding_window_pattern=2)
    b = model(name="b", model_type="gemma3_text", sliding_window_pattern=4)
    both = "[{{model: a, layer_range: [0, 4]}}, {{model: b, layer_range: [{}, {}]}}]"
    sliced = "merge_method: slerp\nbase_model: a\nparameters: {t: 0.5}\nslices:\n  - sources: "
    whole = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"

    def told(recipe: str, *models: Source) -> list[str]:
        return [note for note in plan(recipe, *models).notes if "different kinds" in note]

    [note] = told(sliced + both.format(0, 4) + "\n", a, b)
    assert "(layer_types)" in note and note.endswith(
        "first model of each slice says; in model.layers.*: 1"
    )
    [note] = told(whole, a, b)
    assert note.endswith("what a says; in model.layers.*: 1")
    other = replace(a, ref=b.ref)
    assert told(whole, a, other) == told(sliced + both.format(0, 4) + "\n", a, other) == []
    [note] = told(
        sliced + "[{model: a, layer_range: [0, 3]}, {model: b, layer_range: [1, 4]}]\n", a, other
    )
    assert note.endswith("0, 1, 2")
