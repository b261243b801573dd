"""A stack of layers is a numbered list as long as a count in config.json that speaks of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from resumerge.layout import find_parts, infer_layers


def named(**stacks: int) -> list[str]:
    """Two tensors for each layer of each stack; ``__`` stands for a point."""
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
    "a gap": ([n for n in named(model__layers=4) if ".1." not in n], {}, None, {}),
    "no layers": (["a.weight"], {"num_hidden_layers": 4}, None, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_main_stack_and_the_keys_that_count(case: str) -> None:
    names, config, main, keys = CASES[case]
    layers = infer_layers(names, config)
    assert layers.main == main
    assert {stack: sorted(found) for stack, found in layers.keys.items()} == keys


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
