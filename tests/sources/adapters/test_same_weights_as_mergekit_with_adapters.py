"""A recipe with ``model+adapter`` gives the weights that mergekit 0.1.5 gives."""

from pathlib import Path

import pytest
from adapters import write_adapter, write_base
from beside_mergekit import MERGEKIT, assert_same_weights, run_mergekit
from merging import merge, tensors_of

HEAD = ["q_proj", "v_proj", "down_proj", "lm_head"]
RECIPES = {
    "linear": "merge_method: linear\nmodels:\n"
    "  - {model: ./base+./math, parameters: {weight: 0.7}}\n"
    "  - {model: ./base+./code, parameters: {weight: 0.5}}\n",
    "task_arithmetic": "merge_method: task_arithmetic\nbase_model: ./base\nmodels:\n"
    "  - {model: ./base+./math, parameters: {weight: 0.7}}\n"
    "  - {model: ./base+./code, parameters: {weight: [0, 1]}}\n",
    "passthrough": "merge_method: passthrough\nslices:\n"
    "  - sources: [{model: ./base+./math, layer_range: [0, 2]}]\n"
    "  - sources: [{model: ./base+./code, layer_range: [1, 3]}]\n",
    "spelled_out": "merge_method: linear\nmodels:\n"
    "  - {model: {model: {path: ./base}, lora: {path: ./math}}, parameters: {weight: 1}}\n",
}


@pytest.mark.skipif(MERGEKIT is None, reason="mergekit is not installed")
def test_same_weights(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base", "llama")
    write_adapter(tmp_path / "math", base, "llama", seed=1, target_modules=HEAD, r=8)
    write_adapter(tmp_path / "code", base, "llama", seed=2, target_modules=HEAD, use_dora=True)
    run_mergekit(tmp_path, RECIPES, option="--lora-merge-cache=adapted")
    for name, text in RECIPES.items():
        ours = tensors_of(merge(tmp_path, text, tmp_path / name))
        assert_same_weights(ours, tensors_of(tmp_path / f"{name}.mergekit"))
