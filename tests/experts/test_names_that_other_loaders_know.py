"""Tensors of the separate layout have names that llama.cpp's converter knows, from its package."""

from __future__ import annotations

import re
from pathlib import Path

import gguf
import pytest
from dense_models import CONFIGS, PROMPTED, SHARED, SIZES, mixture, write_dense
from merging import working_in

from resumerge.engine.lifecycle.session import Session
from resumerge.options import Options
from resumerge.recipe import parse_recipe

MADE = [
    ("llama", "mixtral", "", gguf.MODEL_ARCH.LLAMA),
    ("mistral", "deepseek", SHARED, gguf.MODEL_ARCH.DEEPSEEK),
    ("qwen2", "qwen", PROMPTED, gguf.MODEL_ARCH.QWEN2MOE),
    ("qwen3", "qwen3", "", gguf.MODEL_ARCH.QWEN3MOE),
]


@pytest.mark.parametrize("family, architecture, shared, known_as", MADE)
def test_every_tensor_is_known(
    tmp_path: Path, family: str, architecture: str, shared: str, known_as: gguf.MODEL_ARCH
) -> None:
    models = write_dense(tmp_path, CONFIGS[family])
    with working_in(models):
        plan = Session(Options()).plan(parse_recipe(mixture("random", architecture, shared)))
    known = gguf.get_tensor_name_map(known_as, SIZES["num_hidden_layers"])
    named = {unit.name: known.get_name(_stacked(unit.name), _ENDS) for unit in plan.units}
    assert not [name for name, found in named.items() if found is None]
    experts = {found for name, found in named.items() if ".experts." in name}
    assert experts == {
        f"blk.{n}.ffn_{m}_exps.weight" for n in (0, 1) for m in ("gate", "up", "down")
    }


_ENDS = (".weight", ".bias")


def _stacked(name: str) -> str:
    """Return a name without the expert's number: the converter makes one tensor of all experts."""
    return re.sub(r"\.experts\.\d+\.", ".experts.", name)
