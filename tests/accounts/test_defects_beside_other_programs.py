"""mergekit 0.1.5 and PEFT report those of the same defects that docs/benchmarks.md counts.

A defect is reported if the program fails, or if a warning names it; mergekit passes on PEFT's.
"""

from __future__ import annotations

import json
import subprocess
import warnings
from pathlib import Path

import pytest
from beside_mergekit import MERGEKIT, RUN_ALL, run_beside_mergekit
from defects import ACCOUNTED, HARMLESS, REFUSED, WORRYING, Defect

pytestmark = [
    pytest.mark.needs("torch"),
    pytest.mark.skipif(MERGEKIT is None, reason="mergekit is not installed"),
]

DEFECTS: dict[str, Defect] = {**REFUSED, **ACCOUNTED, **HARMLESS, **WORRYING}
OF_ADAPTERS = [name for name in DEFECTS if "adapter" in name]
TOLD_BY_PEFT = {
    "an adapter is of a wider model",
    "an adapter is of a deeper model",
    "an adapter matches nothing",
    "half of an adapter is missing",
}
TOLD_BY_MERGEKIT = TOLD_BY_PEFT | {
    "a norm has another name",
    "a layer is missing",
    "matrices of an expert are missing",
    "a file is cut off",
    "a matrix is that of a wider model",
    "scales of float8 weights are missing",
    "a base that the method does not read",
    "the index says the wrong file",
}
ONE_STREAM = "import os\nos.dup2(1, 2)\n"


def build(name: str, folder: Path) -> None:
    """Write the models and the recipe; an adapter's config names its modules, as trainers do."""
    make, _ = DEFECTS[name]
    (folder / "recipe.yaml").write_text(make(folder))
    if (config := folder / "l" / "adapter_config.json").exists():
        settings = json.loads(config.read_text())
        settings |= {"base_model_name_or_path": str(folder / "a"), "target_modules": ["up_proj"]}
        config.write_text(json.dumps({**settings, "layers_to_transform": [0]}))


def warned(text: str) -> bool:
    return "missing adapter keys" in text


@pytest.mark.parametrize("name", DEFECTS)
def test_what_mergekit_says(name: str, tmp_path: Path) -> None:
    build(name, tmp_path)
    words = ["recipe.yaml", "out", "--no-copy-tokenizer", "--lora-merge-cache", "cache"]
    try:
        said = run_beside_mergekit(tmp_path, ONE_STREAM + RUN_ALL, MERGEKIT, json.dumps([words]))
    except subprocess.CalledProcessError:
        assert name in TOLD_BY_MERGEKIT
        return
    assert (tmp_path / "out" / "config.json").exists()
    assert warned(said) == (name in TOLD_BY_MERGEKIT), said


@pytest.mark.parametrize("name", OF_ADAPTERS)
def test_what_peft_says(name: str, tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    build(name, tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "a")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            PeftModel.from_pretrained(model, tmp_path / "l").merge_and_unload()
        except RuntimeError as error:
            assert name in TOLD_BY_PEFT and "size mismatch" in str(error)
            return
    said = " ".join(str(warning.message) for warning in caught)
    assert warned(said) == (name in TOLD_BY_PEFT), said
