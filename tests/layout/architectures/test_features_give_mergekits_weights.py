"""Recipes that use each feature as mergekit's documentation does, on several architectures, give
the weights that mergekit 0.1.5 writes, within 1e-5 of them, in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from beside_mergekit import MERGEKIT, assert_same_weights, run_mergekit
from merging import merge, tensors_of

pytestmark = pytest.mark.skipif(MERGEKIT is None, reason="mergekit-yaml is not installed")

LINEAR = """
models:
  - model: {name}/math
    parameters: {{weight: 1.0}}
  - model: {name}/code
    parameters: {{weight: [0.3, 0.9, 0.1]}}
merge_method: linear
dtype: float32
"""
TIES = """
models:
  - model: {name}/math
    parameters:
      density: [1, 0.7, 0.1] # density gradient
      weight: 1.0
  - model: {name}/code
    parameters:
      density: 0.33
      weight:
        - filter: {filter}
          value: 0.5
        - value: 0.2
merge_method: ties
base_model: {name}/base
parameters:
  normalize: true
  int8_mask: true
dtype: float32
"""
GRADIENT_SLERP = """
slices:
  - sources:
      - model: {name}/math
        layer_range: [0, 4]
      - model: {name}/code
        layer_range: [0, 4]
merge_method: slerp
base_model: {name}/math
parameters:
  t:
    - filter: {filter}
      value: [0, 0.5, 0.3, 0.7, 1]
    - filter: mlp
      value: [1, 0.5, 0.7, 0.3, 0]
    - value: 0.5 # fallback for rest of tensors
dtype: float32
"""
BIO = """
models:
  - model: {name}/math
    parameters:
      density: 0.5
      weight: 0.5
  - model: {name}/code
    parameters:
      density: 0.5
      weight: 0.5
merge_method: ties
base_model: {name}/base
parameters:
  normalize: false
  int8_mask: true
dtype: float32
"""
FUSION = """
models:
  - model: {name}/math
  - model: {name}/code
merge_method: arcee_fusion
base_model: {name}/math
dtype: float32
"""
STACK = """
slices:
  - sources:
    - model: {name}/math
      layer_range: [0, 3]
  - sources:
    - model: {name}/code
      layer_range: [1, 4]
merge_method: passthrough
dtype: float32
"""
LEVELS = """
slices:
  - sources:
      - model: {name}/math
        layer_range: [0, 2]
        parameters: {{weight: 0.7}}
      - model: {{model: {{path: {name}/code}}}}
        layer_range: [2, 4]
    residual_weight: 0.5
    parameters: {{weight: [{{filter: {filter}, value: [0.2, 0.4]}}]}}
  - sources:
      - {{model: {name}/code, layer_range: [1, 3]}}
      - {{model: {name}/base, layer_range: [2, 4]}}
    base_model: {name}/base
merge_method: linear
base_model: {name}/math
parameters: {{weight: [1, 1.5, 3], normalize: false}}
dtype: float32
out_dtype: float32
"""
MODULES = """
modules:
  {text}:
    slices:
      - sources: [{{model: {name}/math, layer_range: [0, 3]}}]
        parameters: {{scale: [0.5, 1.5]}}
      - sources: [{{model: {name}/code, layer_range: [1, 4]}}]
  {other}:
    models: [{{model: {name}/code}}]
    parameters: {{scale: 2}}
  {rest}:
    models: [{{model: {name}/math}}]
merge_method: passthrough
dtype: float32
"""

WHERE = {
    "llama": "self_attn",
    "qwen2": "self_attn",
    "gemma2": "self_attn",
    "phi3": "self_attn",
    "olmo2": "self_attn",
    "mamba": "mixer",
    "gpt2": "attn",
    "bert_classifier": "attention",
}
CASES = {f"{name}-ties": TIES.format(name=name, filter=f) for name, f in WHERE.items()}
CASES |= {
    f"{name}-stack": STACK.format(name=name)
    for name in ("llama", "phi3", "olmo2", "mamba", "gpt2", "bert_classifier")
}
CASES |= {
    f"{name}-{kind}": recipe.format(name=name, filter=WHERE[name])
    for name in ("llama", "bert_classifier")
    for kind, recipe in (("gradient-slerp", GRADIENT_SLERP), ("levels", LEVELS))
}
CASES |= {
    "llama-bio": BIO.format(name="llama"),
    "llama-fusion": FUSION.format(name="llama"),
    "t5-linear": LINEAR.format(name="t5"),
    "t5-modules": MODULES.format(name="t5", text="decoder", other="encoder", rest="shared"),
    "qwen2_5_vl-bio": BIO.format(name="qwen2_5_vl"),
    "qwen2_5_vl-modules": MODULES.format(
        name="qwen2_5_vl",
        text="text_decoder",
        other="vision_tower",
        rest="multi_modal_projector",
    ),
}
"""mergekit supports 10 of the architectures here, or can be brought to."""

TIED = {
    "mamba-stack": "backbone.embeddings.weight",
    "gpt2-stack": "transformer.wte.weight",
}
"""The stacks whose models tie the head to an embedding: the head is the last slice's."""


@pytest.fixture(scope="module")
def theirs(family: Callable[[str], Path]) -> Path:
    """Run mergekit on every case; return the folder of all models and its outputs."""
    for name in {case.partition("-")[0] for case in CASES}:
        root = family(name).parent
    run_mergekit(root, CASES)
    return root


@pytest.mark.parametrize("case", CASES)
def test_case(case: str, theirs: Path, tmp_path: Path) -> None:
    ours = tensors_of(merge(theirs, CASES[case], tmp_path / "out"))
    if case in TIED:  # mergekit leaves the head tied to the embedding of the first slice
        head = ours.pop("lm_head.weight")
        name = case.partition("-")[0]
        assert torch.equal(head, tensors_of(theirs / name / "code")[TIED[case]])
    assert_same_weights(ours, tensors_of(theirs / f"{case}.mergekit"))
