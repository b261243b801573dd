"""Adapters of PEFT: adapter_config.json, and the headers of their weights."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from fuzz import tiny_files
from fuzz.changes.files import put_something
from fuzz.changes.trees import changed_json
from fuzz.kinds.base import Commands, Kind, continues, merges
from fuzz.kinds.models import changed_safetensors
from fuzz.runs import HALF, make_unfinished

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
RANK = 2
_RECIPE = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: ./base+./adapter}]\n"


class Adapters(Kind):
    """A model, and a LoRA with everything that is supported."""

    def make(self, work: Path) -> None:
        tiny_files.write(work / "base", tiny_files.model_files(0))
        tiny_files.write(work / "adapter", _adapter())
        (work / "recipe.yaml").write_text(_RECIPE)
        make_unfinished("recipe.yaml")

    def change(self, draw: Random, work: Path) -> Path:
        path = work / "adapter" / draw.choice((CONFIG, WEIGHTS))

        def changed() -> bytes:
            data = path.read_bytes()
            if path.name == WEIGHTS:
                return changed_safetensors(draw, data)
            return changed_json(draw, json.loads(data))

        put_something(draw, path, changed)
        return path

    def commands(self, draw: Random) -> Commands:
        if draw.random() < 0.2:
            return continues(draw, HALF)
        return merges(draw, "recipe.yaml")


def _adapter() -> dict[str, bytes]:
    hidden = tiny_files.HIDDEN
    tensors: dict[str, tuple[int, ...]] = {}
    for part in ("self_attn.q_proj", "mlp.up_proj"):
        at = f"base_model.model.model.layers.0.{part}"
        tensors[f"{at}.lora_A.weight"] = (RANK, hidden)
        tensors[f"{at}.lora_B.weight"] = (hidden, RANK)
        tensors[f"{at}.lora_magnitude_vector"] = (hidden,)
    tensors["base_model.model.lm_head.weight"] = (tiny_files.ROWS, hidden)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "base",
        "r": RANK,
        "lora_alpha": 4,
        "alpha_pattern": {"q_proj": 8, "layers.[0-9].mlp": 2.5},
        "rank_pattern": {"q_proj": RANK},
        "target_modules": ["q_proj", "up_proj"],
        "modules_to_save": ["lm_head"],
        "bias": "none",
        "use_dora": True,
        "use_rslora": True,
        "fan_in_fan_out": False,
        "init_lora_weights": True,
        "layers_to_transform": None,
    }
    return {CONFIG: json.dumps(config).encode(), WEIGHTS: tiny_files.weights(tensors, 5)}
