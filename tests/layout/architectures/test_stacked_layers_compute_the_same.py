"""Promise: a layer of a stack computes what it computes in its own model, whatever its number."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from merging import merge

from resumerge.errors import InputError

SMALL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 96,
    "sliding_window": 4,
}
LEFT_TO_THE_CLASS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", {"head_dim": 8}),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", {"head_dim": 8}),
    "cohere2": ("Cohere2ForCausalLM", "Cohere2Config", {}),
}
PATTERNS = ("layer_types", "sliding_window_pattern", "_sliding_window_pattern")
ORDER = [*range(5), *range(4, 8)]


def made(folder: Path, cls: str, config: Any, *without: str, **instead: Any) -> Any:
    """Write a model of random weights whose config.json lacks some keys, and load it."""
    torch.manual_seed(1)
    model = getattr(transformers, cls)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(1.0 if parameter.dim() == 1 else 0.0, 0.3)
    model.save_pretrained(folder)
    file = folder / "config.json"
    stated = json.loads(file.read_text())
    kept = {key: value for key, value in stated.items() if key not in without} | instead
    file.write_text(json.dumps(kept))
    return getattr(transformers, cls).from_pretrained(folder).eval()


def sliced(*ranges: tuple[int, int]) -> str:
    sources = [f"  - sources: [{{model: base, layer_range: [{a}, {b}]}}]" for a, b in ranges]
    return "\n".join(["merge_method: passthrough", "slices:", *sources])


@pytest.mark.parametrize("name", LEFT_TO_THE_CLASS)
def test_attention_that_the_class_decides_moves_with_its_layer(name: str, tmp_path: Path) -> None:
    cls, config_cls, more = LEFT_TO_THE_CLASS[name]
    config = getattr(transformers, config_cls)(**SMALL, **more, num_hidden_layers=8)
    base = made(tmp_path / "base", cls, config, *PATTERNS)
    kinds = [base.config.layer_types[n] for n in ORDER]
    assert kinds != getattr(transformers, config_cls)(num_hidden_layers=9).layer_types
    given = {**base.config.to_dict(), "num_hidden_layers": 9, "layer_types": kinds}
    wanted = getattr(transformers, cls)(type(base.config)(**given)).eval()
    wanted.load_state_dict(
        {
            key: base.state_dict()[key.replace(f".layers.{n}.", f".layers.{ORDER[n]}.")]
            for key in wanted.state_dict()
            for n in [int(key.split(".layers.")[1].split(".")[0]) if ".layers." in key else 0]
        }
    )
    out = merge(tmp_path, sliced((0, 5), (4, 8)), tmp_path / "out")
    got = getattr(transformers, cls).from_pretrained(out).eval()
    tokens = torch.arange(30)[None]
    with torch.no_grad():
        torch.testing.assert_close(got(tokens).logits, wanted(tokens).logits)


def nemotron(folder: Path, *without: str, **instead: Any) -> Any:
    options = {key: SMALL[key] for key in SMALL if key != "sliding_window"}
    mamba = {"mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 8, "n_groups": 1}
    letters = {"hybrid_override_pattern": "M-M*M-M*", "head_dim": 8, "chunk_size": 8}
    config = transformers.NemotronHConfig(**options, **mamba, **letters)
    return made(folder, "NemotronHForCausalLM", config, *without, **instead)


@pytest.mark.parametrize("ranges", [[(0, 4), (0, 8)], [(0, 4)], [(1, 4), (2, 3)]])
@pytest.mark.parametrize("stated", ["listed", "letters"])
def test_blocks_of_nemotron_h_follow_their_list_or_letters(
    stated: str, ranges: list[tuple[int, int]], tmp_path: Path
) -> None:
    if stated == "listed":
        nemotron(tmp_path / "base")
    else:
        letters = {"hybrid_override_pattern": "M-M*M-M*", "num_hidden_layers": 8}
        nemotron(tmp_path / "base", "layers_block_type", **letters)
    out = merge(tmp_path, sliced(*ranges), tmp_path / "out")
    model, info = transformers.NemotronHForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not any(info.values())
    assert model.config.num_hidden_layers == sum(b - a for a, b in ranges)


def _gemma3n(**options: Any) -> Any:
    more = {"laurel_rank": 4, "altup_num_inputs": 2, "activation_sparsity_pattern": [0.0] * 6}
    return transformers.Gemma3nTextConfig(**options, **more)


@pytest.mark.parametrize(
    ("cls", "config"),
    [("Gemma3nForCausalLM", _gemma3n), ("Gemma4ForCausalLM", transformers.Gemma4TextConfig)],
)
@pytest.mark.parametrize("ranges", [[(0, 6), (5, 6)], [(0, 5)]])
def test_embeddings_with_columns_for_each_layer_are_refused_by_name(
    ranges: list[tuple[int, int]], cls: str, config: Callable[..., Any], tmp_path: Path
) -> None:
    per_layer = {"vocab_size_per_layer_input": 96, "hidden_size_per_layer_input": 8}
    types = ["sliding_attention", "sliding_attention", "full_attention"] * 2
    options = {**SMALL, **per_layer, "head_dim": 8, "num_hidden_layers": 6, "layer_types": types}
    made(tmp_path / "base", cls, config(**options, num_kv_shared_layers=2))
    with pytest.raises(InputError) as told:
        merge(tmp_path, sliced(*ranges), tmp_path / "out")
    assert "hidden_size_per_layer_input: 8" in str(told.value)
    assert "embed_tokens_per_layer.weight" in str(told.value)
    assert not (tmp_path / "out").exists()
