"""A stack of layers is a numbered list as long as a count in config.json that speaks of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from resumerge.layout import find_parts, infer_layers, step_position
from resumerge.layout.counts import layer_counts


def named(**stacks: int) -> list[str]:
    """Return the names of two tensors for each layer of each stack; ``__`` stands for a point."""
    return [
        f"{stack.replace('__', '.')}.{i}.{end}"
        for stack, count in stacks.items()
        for i in range(count)
        for end in ("attn.weight", "mlp.experts.0.weight")
    ]


TEXT = {"text_config": {"num_hidden_layers": 4}, "vision_config": {"depth": 4}}

CASES: dict[str, tuple[list[str], dict[str, Any], str | None, dict[str, list[str]]]] = {
    "a decoder": (
        named(model__layers=4),
        {"num_hidden_layers": 4, "max_window_layers": 4},
        "model.layers",
        {"model.layers": ["num_hidden_layers"]},
    ),
    "other lists": (
        [*named(model__layers=4), *(f"extractor.conv_layers.{i}.conv" for i in range(4))],
        {"num_hidden_layers": 4, "num_feat_extract_layers": 4},
        "model.layers",
        {"model.layers": ["num_hidden_layers"], "extractor.conv_layers": ["num_hidden_layers"]},
    ),
    "both counted alike": (
        named(model__layers=4, visual__blocks=4),
        TEXT,
        "model.layers",
        {
            "model.layers": ["text_config.num_hidden_layers"],
            "visual.blocks": ["vision_config.depth"],
        },
    ),
    "a flat config beside a vision config": (
        named(model__layers=4, visual__blocks=4),
        {"num_hidden_layers": 4, "vision_config": {"depth": 4}},
        "model.layers",
        {"model.layers": ["num_hidden_layers"], "visual.blocks": ["vision_config.depth"]},
    ),
    "an encoder alone": (
        named(encoder__layers=4),
        {"encoder_layers": 4},
        "encoder.layers",
        {"encoder.layers": ["encoder_layers"]},
    ),
    "a key with a word more": (
        named(model__layers=4, vision__blocks=4),
        {"num_hidden_layers": 4, "vision_config": {"siglip_depth": 4}},
        "model.layers",
        {"model.layers": ["num_hidden_layers"], "vision.blocks": ["vision_config.siglip_depth"]},
    ),
    "an encoder and a decoder": (
        named(encoder__block=4, decoder__block=4),
        {"num_layers": 4, "num_decoder_layers": 4},
        None,
        {"encoder.block": ["num_layers"], "decoder.block": ["num_decoder_layers"]},
    ),
    "a second name of the encoder's count": (
        named(model__encoder__layers=4, model__decoder__layers=4),
        {"encoder_layers": 4, "decoder_layers": 4, "num_hidden_layers": 4},
        None,
        {
            "model.encoder.layers": ["encoder_layers", "num_hidden_layers"],
            "model.decoder.layers": ["decoder_layers"],
        },
    ),
    "a thinker and a talker": (
        named(thinker__model__layers=4, talker__model__layers=4),
        {
            "thinker_config": {"text_config": {"num_hidden_layers": 4}},
            "talker_config": {"num_hidden_layers": 4},
        },
        "thinker.model.layers",
        {
            "thinker.model.layers": ["thinker_config.text_config.num_hidden_layers"],
            "talker.model.layers": ["talker_config.num_hidden_layers"],
        },
    ),
    "layers that predict further tokens": (
        named(model__layers=5),
        {"num_hidden_layers": 4, "num_nextn_predict_layers": 1},
        "model.layers",
        {"model.layers": ["num_hidden_layers"]},
    ),
    "no count": (named(h=3, k=2), {}, "h", {}),
    "no count, and stacks alike": (named(h=3, k=3), {"num_heads": 3}, "k", {}),
    "a count of nothing": (named(h=3, k=2), {"num_nextn_predict_layers": 0}, "h", {}),
    "a truth": (named(h=1), {"use_layer_norm": True}, "h", {}),
    "a word that no stack has": (named(h=3), {"num_window_layers": 3}, None, {}),
    "a list that begins later": (
        [n.replace("h.0.", "h.9.") for n in named(h=4)],
        {"num_layers": 4},
        None,
        {},
    ),
    "the larger of two that one key counts": (
        [*(f"a.{i}.weight" for i in range(4)), *named(b=4)],
        {"num_hidden_layers": 4},
        "b",
        {"a": ["num_hidden_layers"], "b": ["num_hidden_layers"]},
    ),
    "layers that predict further tokens, in another key": (
        named(model__layers=6),
        {"num_hidden_layers": 4, "mtp_num_layers": 2},
        "model.layers",
        {"model.layers": ["num_hidden_layers"]},
    ),
    "another list that is longer by as much": (
        named(model__layers=4, visual__blocks=5),
        {"num_hidden_layers": 4, "vision_config": {"depth": 5}, "num_nextn_predict_layers": 1},
        "model.layers",
        {"model.layers": ["num_hidden_layers"], "visual.blocks": ["vision_config.depth"]},
    ),
    "two texts": (
        named(a__text__layers=4, b__text__layers=3),
        {"a_text_layers": 4, "b_text_layers": 3},
        None,
        {"a.text.layers": ["a_text_layers"], "b.text.layers": ["b_text_layers"]},
    ),
    "a gap": ([n for n in named(model__layers=4) if ".1." not in n], {}, None, {}),
    "no layers": (["a.weight"], {"num_hidden_layers": 4}, None, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_main_stack_and_the_keys_that_count(case: str) -> None:
    names, config, main, keys = CASES[case]
    layers = infer_layers(names, config)
    assert layers.main == main
    assert {stack: sorted(found) for stack, found in layers.keys.items()} == keys


def test_what_counts_layers() -> None:
    config = {
        "num_layers": 0, "layer_norm": True, "num_heads": 8, "n_block": 2,
        "vision": {"depth": 3, "layer_scale": 0.5},
    }  # fmt: skip
    assert list(layer_counts(config)) == [("n_block", 2), ("vision.depth", 3)]


def test_the_position_of_a_layer() -> None:
    layers = infer_layers(named(h=3), {"num_layers": 3})
    places = [layers.position(f"h.{n}.attn.weight") for n in range(4)]
    assert places == [0.0, 0.5, 1.0, 0.0], "behind the last is outside"
    assert step_position(0, 1) == 1.0, "the only one"
    assert layers.position("lm_head.weight") == 0.0
    assert layers.locate("h.2.attn.weight") and layers.locate("h.3.attn.weight") is None


def test_what_predicts_further_tokens_is_no_layer() -> None:
    names, config, *_ = CASES["layers that predict further tokens"]
    layers = infer_layers(names, config)
    assert layers.count == 4
    assert layers.locate("model.layers.4.attn.weight") is None


VISION = [
    *named(model__language_model__layers=4, model__visual__blocks=4),
    "model.language_model.embed_tokens.weight",
    "model.language_model.norm.weight",
    "model.visual.patch_embed.weight",
    "model.visual.merger.ln_q.weight",
    "lm_head.weight",
]


def parts(names: list[str], config: dict[str, Any]) -> Iterator[tuple[str, frozenset[str], str]]:
    for part in find_parts(names, infer_layers(names, config)):
        yield part.name, part.names, " ".join(n for n in part.tensors if n not in counted)


counted = frozenset(
    n for n in named(model__language_model__layers=4, model__visual__blocks=4, e=4, d=4)
)


def test_every_tensor_belongs_to_one_part() -> None:
    found = {name: (names, rest) for name, names, rest in parts(VISION, TEXT)}
    assert found.keys() == {"text_decoder", "vision_tower", "multi_modal_projector"}
    assert found["text_decoder"][1] == (
        "model.language_model.embed_tokens.weight model.language_model.norm.weight lm_head.weight"
    )
    assert found["text_decoder"][0] >= {"language_model", "model.language_model"}
    assert found["vision_tower"][1] == "model.visual.patch_embed.weight"
    assert found["vision_tower"][0] >= {"visual", "vision_model"}
    assert found["multi_modal_projector"][1] == "model.visual.merger.ln_q.weight"
    every = [n for part in find_parts(VISION, infer_layers(VISION, TEXT)) for n in part.tensors]
    assert sorted(every) == sorted(VISION)


def test_parts_under_one_prefix_are_told_apart_beside_a_third() -> None:
    names = [*VISION, *named(audio__layers=3), "audio.norm.weight"]
    config = {**TEXT, "audio_config": {"num_layers": 3}}
    found = {name: rest for name, _, rest in parts(names, config)}
    assert "model.visual.patch_embed.weight" in found["vision_tower"]
    assert "model.language_model.embed_tokens.weight" in found["text_decoder"]
    assert "audio.norm.weight" in found["audio_tower"]


def test_what_encoder_and_decoder_share_is_a_part() -> None:
    names = [*named(encoder__block=2, decoder__block=2), "shared.weight", "decoder.norm.weight"]
    config = {"num_layers": 2, "num_decoder_layers": 2}
    found = {part.name: part.tensors for part in find_parts(names, infer_layers(names, config))}
    assert found.keys() == {"encoder", "decoder", "shared"}
    assert found["shared"] == ("shared.weight",)
    assert "decoder.norm.weight" in found["decoder"]


def test_a_model_with_one_stack_is_one_part() -> None:
    names = [*named(model__layers=2), "lm_head.weight"]
    [part] = find_parts(names, infer_layers(names, {"num_hidden_layers": 2}))
    assert part.tensors == tuple(names)
    assert part.names >= {"default", "text_decoder", "model.layers"}


def test_a_part_within_a_part_owns_what_is_deepest_under_it() -> None:
    names = [*named(model__layers=2, model__layers_of_vision=3, audio__layers=4)]
    names += ["audio.norm.weight", "model.norm.weight", "norm.weight"]
    config = {"num_layers": 2, "vision_layers": 3, "audio_config": {"num_layers": 4}}
    found = {part.stack: part for part in find_parts(names, infer_layers(names, config))}
    assert "audio.norm.weight" in found["audio.layers"].tensors
    assert {"norm.weight", "model.norm.weight"} <= set(found["model.layers"].tensors)
    assert found.keys() == {"model.layers", "model.layers_of_vision", "audio.layers"}
    assert "audio_tower" in found["audio.layers"].names


def test_a_list_inside_the_prefix_of_another_has_what_is_under_its_own() -> None:
    names = [*named(model=2, model__layers=3), "model.layers.norm.weight", "model.norm.weight"]
    layers = infer_layers(names, {"num_hidden_layers": 3, "depth": 2})
    found = {part.stack: part.tensors for part in find_parts(names, layers)}
    assert "model.layers.norm.weight" in found["model.layers"]
    assert "model.norm.weight" in found["model"]


def test_a_bridge_inside_a_stack_is_the_stacks() -> None:
    names = [*named(model__layers=2, visual__blocks=3), "visual.blocks.0.mm_proj.weight"]
    config = {"num_hidden_layers": 2, "vision_config": {"depth": 3}}
    found = {part.name: part.tensors for part in find_parts(names, infer_layers(names, config))}
    assert found.keys() == {"text_decoder", "vision_tower"}
    assert "visual.blocks.0.mm_proj.weight" in found["vision_tower"]


def test_an_encoder_that_sees_is_not_called_the_encoder() -> None:
    names = named(model__layers=2, vision__encoder__layers=3)
    config = {"num_hidden_layers": 2, "vision_config": {"depth": 3}}
    called = {part.stack: part.names for part in find_parts(names, infer_layers(names, config))}
    assert "encoder" not in called["vision.encoder.layers"]
    assert "vision_tower" in called["vision.encoder.layers"]
