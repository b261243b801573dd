"""peft loads a combined adapter, and the base model with it is the base with the combined changes.

The adapters are peft's own; what they change is added densely, in float64.
"""

from pathlib import Path
from typing import Any

import pytest
from merging import merge, tensors_of
from peft_adapters import (
    changes_of,
    loaded,
    logits,
    make_base,
    with_changes,
    write_lora,
)
from tuned_models import inputs_of

NEAR = 1e-6
"""The error that is allowed, as a share of the change, in float32."""

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
PACKED = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
LINEAR = "merge_method: linear\nparameters: {normalize: false}\n"

ODD: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "ranks 4 and 64": (
        "llama",
        [{"r": 4, "target_modules": ATTENTION}, {"r": 64, "target_modules": ATTENTION}],
    ),
    "patterns of ranks and alphas": (
        "llama",
        [
            {
                **{"r": 8, "lora_alpha": 4, "target_modules": ["q_proj", "up_proj"]},
                **{"rank_pattern": {"layers.0.self_attn.q_proj": 3}, "alpha_pattern": {"up": 9}},
            },
            {
                **{"r": 2, "lora_alpha": 16, "target_modules": ["q_proj", "up_proj"]},
                **{"rank_pattern": {"up_proj": 5}, "alpha_pattern": {r".*\.1\..*q_proj": 1}},
            },
        ],
    ),
    "rsLoRA with plain": (
        "qwen2",
        [
            {"r": 16, "lora_alpha": 8, "target_modules": ATTENTION, "use_rslora": True},
            {"r": 16, "lora_alpha": 8, "target_modules": ATTENTION},
        ],
    ),
    "disjoint modules": (
        "llama",
        [{"r": 4, "target_modules": ["q_proj"]}, {"r": 8, "target_modules": ["down_proj"]}],
    ),
    "disjoint layers": (
        "llama",
        [
            {"r": 4, "target_modules": ["q_proj"], "layers_to_transform": [0]},
            {"r": 4, "target_modules": ["q_proj"], "layers_to_transform": [1]},
        ],
    ),
    "an expression, and all linear layers": (
        "gemma2",
        [
            {"r": 4, "target_modules": r".*\.0\.self_attn\.[qv]_proj"},
            {"r": 4, "target_modules": "all-linear"},
        ],
    ),
    "embeddings and heads": (
        "llama",
        [
            {"r": 4, "target_modules": ["embed_tokens", "q_proj"]},
            {"r": 6, "target_modules": ["embed_tokens", "lm_head"], "lora_alpha": 2},
        ],
    ),
    "Conv1D": (
        "gpt2",
        [
            {"r": 4, "target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True},
            {"r": 8, "target_modules": ["c_attn", "c_fc"], "fan_in_fan_out": True},
        ],
    ),
    "convolutions": (
        "resnet",
        [
            {"r": 4, "target_modules": ["convolution"]},
            {"r": 2, "target_modules": r".*layer\.1\.convolution"},
        ],
    ),
    "packed experts": (
        "mixtral",
        [
            {"r": 4, "target_parameters": PACKED, "target_modules": ["q_proj"], "lora_alpha": 3},
            {"r": 2, "target_parameters": PACKED, "target_modules": ["v_proj"]},
        ],
    ),
    "packed experts, of one parameter in one adapter": (
        "qwen3_moe",
        [
            {"r": 4, "target_parameters": PACKED[1:], "target_modules": []},
            {"r": 2, "target_parameters": PACKED, "target_modules": ["o_proj"]},
        ],
    ),
    "an encoder and a decoder": (
        "whisper",
        [
            {"r": 4, "target_modules": ["q_proj", "fc1"]},
            {"r": 8, "target_modules": ["encoder_attn.q_proj", "fc2"], "use_rslora": True},
        ],
    ),
    "three, whose ranks exceed the width": (
        "llama",
        [{"r": r, "target_modules": ["q_proj", "k_proj"]} for r in (32, 24, 16)],
    ),
}


def write(folder: Path, kind: str, several: list[dict[str, Any]]) -> tuple[Any, list[Any]]:
    """Write the adapters `0`, `1`…, and return the base model and what each changes."""
    model = make_base(folder, kind)
    changes = [
        write_lora(model, folder / str(number), number, **options)
        for number, options in enumerate(several)
    ]
    return model, changes


def recipe(count: int, weights: list[float], more: str = "", head: str = LINEAR) -> str:
    entries = [
        f"  - {{model: '{number}', parameters: {{weight: {weights[number]}}}}}\n"
        for number in range(count)
    ]
    return head + more + "models:\n" + "".join(entries)


@pytest.mark.parametrize("more", ["", "rank: 500\n"], ids=["stacked", "compressed"])
@pytest.mark.parametrize("pair", ODD)
def test_odd_pairs(pair: str, more: str, tmp_path: Path) -> None:
    kind, several = ODD[pair]
    model, changes = write(tmp_path, kind, several)
    weights = [0.7, -0.4, 1.1][: len(several)]
    out = merge(tmp_path, recipe(len(several), weights, more), tmp_path / "out")
    wanted = with_changes(model, changes, weights)
    inputs = inputs_of(kind)
    before, after = logits(with_changes(model, [], []), inputs), logits(wanted, inputs)
    found = logits(loaded(model, out), inputs)
    assert (found - after).norm() <= 10 * NEAR * (after - before).norm()
    own = changes_of(model, out)
    for name, change in own.items():
        exact = sum(weight * each[name] for weight, each in zip(weights, changes))
        assert (change - exact).norm() <= NEAR * exact.norm(), name


@pytest.mark.parametrize("bias", ["none", "all"])
def test_an_average_of_what_is_saved_whole(bias: str, tmp_path: Path) -> None:
    options = {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"], "bias": bias}
    model, changes = write(tmp_path, "qwen2", [{"r": 4, **options}, {"r": 2, **options}])
    head = "merge_method: linear\n"
    out = merge(tmp_path, recipe(2, [3.0, 1.0], head=head), tmp_path / "out")
    inputs = inputs_of("qwen2")
    after = logits(with_changes(model, changes, [0.75, 0.25]), inputs)
    before = logits(with_changes(model, [], []), inputs)
    found = logits(loaded(model, out), inputs)
    assert (found - after).norm() <= 10 * NEAR * (after - before).norm()
    assert any("lm_head" in name for name in tensors_of(out))


def test_one_adapter_is_made_smaller(tmp_path: Path) -> None:
    """The result is the best approximation of its rank: the last singular values are lost."""
    model, [change] = write(tmp_path, "llama", [{"r": 8, "target_modules": ["q_proj"]}])
    head = "merge_method: passthrough\nrank: 3\n"
    out = merge(tmp_path, f"{head}models: [{{model: '0'}}]\n", tmp_path / "out")
    for name, own in changes_of(model, out).items():
        if "q_proj" in name:
            lost = change[name].svd().S[3:8].norm()
            assert abs((own - change[name]).norm() - lost) <= 1e-5 * lost
            assert all(3 in tensor.shape for tensor in tensors_of(out).values())


def test_the_names_of_modules_stay_short(tmp_path: Path) -> None:
    import json

    _, several = ODD["disjoint modules"]
    write(tmp_path, "llama", several)
    out = merge(tmp_path, recipe(2, [1.0, 1.0]), tmp_path / "out")
    config = json.loads((out / "adapter_config.json").read_text())
    assert config["target_modules"] == ["down_proj", "q_proj"]
    assert config["r"] == 8 and config["lora_alpha"] == 8
    assert set(config["rank_pattern"].values()) == {4}
