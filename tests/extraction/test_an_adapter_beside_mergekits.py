"""Names, shapes and config of mergekit-extract-lora's adapter; and where it makes none.

mergekit 0.1.5 saves what the base model has alike, too, so that every tensor changes here.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from beside_mergekit import MERGEKIT, run_beside_mergekit
from merging import tensors_of, working_in
from torch import Tensor
from tuned_models import config_of, write_pair

import resumerge

pytestmark = pytest.mark.skipif(MERGEKIT is None, reason="needs mergekit")

EXTRACT = """
import sys
from mergekit.scripts import extract_lora
extract_lora.generate_card_lora = lambda *words, **more: ""  # it asks the Hub for the models
extract_lora.main(sys.argv[1:], standalone_mode=False)
"""

COMPARED = ("peft_type", "use_rslora", "r", "lora_alpha", "fan_in_fan_out", "rank_pattern")


def both(folder: Path, *words: str, **options: Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    places = ["--model", "tuned", "--base-model", "base", "--out-path", "theirs"]
    run_beside_mergekit(folder, EXTRACT, *places, *words, imports=["mergekit.scripts.extract_lora"])
    with working_in(folder):
        resumerge.extract_lora("tuned", "base", "ours", progress="none", **options)
    return tensors_of(folder / "ours"), tensors_of(folder / "theirs")


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["--max-rank", "4"], {"max_rank": 4}),
        (["--max-rank", "8", "--sv-epsilon", "0.2"], {"max_rank": 8, "sv_epsilon": 0.2}),
        (["--max-rank", "64", "--embed-lora"], {"max_rank": 64, "embed_lora": True}),
        (
            ["--max-rank", "4", "--no-distribute-scale", "--skip-undecomposable"],
            {"max_rank": 4, "distribute_scale": False, "skip_undecomposable": True},
        ),
        (
            ["--max-rank", "4", "-e", "q_proj", "-i", "proj"],
            {"max_rank": 4, "exclude": ["q_proj"], "include": ["proj"]},
        ),
    ],
    ids=["plain", "epsilon", "embeddings", "options", "chosen"],
)
def test_the_same_tensors_and_config(
    words: list[str], options: dict[str, Any], tmp_path: Path
) -> None:
    write_pair(tmp_path, "llama", tables=True)
    ours, theirs = both(tmp_path, *words, **options)
    assert {k: t.shape for k, t in ours.items()} == {k: t.shape for k, t in theirs.items()}
    own, other = config_of(tmp_path / "ours"), config_of(tmp_path / "theirs")
    assert {key: own[key] for key in COMPARED} == {key: other[key] for key in COMPARED}
    for key in ("target_modules", "modules_to_save"):
        assert set(own[key] or ()) == set(other[key] or ()), key
    for name in ours:
        if name.endswith("lora_A.weight"):
            pair = (name, name.replace("lora_A", "lora_B"))
            product, expected = (t[pair[1]] @ t[pair[0]] for t in (ours, theirs))
            error = torch.linalg.norm(product - expected)
            assert error <= 1e-4 * torch.linalg.norm(expected), name
            lengths = [torch.linalg.norm(t[name], dim=1) for t in (ours, theirs)]
            torch.testing.assert_close(*lengths, rtol=1e-3, atol=1e-3)


FAILING = {
    "mixtral": "experts",
    "qwen3_moe": "experts",
    "gpt2": "Conv1D",
    "gemma3": "architecture",
    "bert": "no embeddings as such",
    "whisper": "convolutions",
    "resnet": "no embeddings",
}
"""What mergekit cannot extract, or not all of it."""


@pytest.mark.parametrize("kind", FAILING)
def test_mergekit_makes_none_or_leaves_changes_out(kind: str, tmp_path: Path, soak: bool) -> None:
    """The documentation names these failures of mergekit; a better version would end them."""
    if kind not in ("mixtral", "gpt2") and not soak:
        pytest.skip("mergekit's version is pinned: with --soak")
    write_pair(tmp_path, kind, tables=True)
    try:
        ours, theirs = both(tmp_path, "--max-rank", "4", max_rank=4)
    except subprocess.CalledProcessError as error:
        assert "Traceback" in str(error.stderr)
        return
    config = json.loads((tmp_path / "theirs/adapter_config.json").read_text())
    assert ours.keys() - theirs.keys() or not config["target_modules"], kind
