"""Promise: merging models in GGUF is merging what they are dequantised to, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gguf_models import FAMILIES, numbers_of, write_gguf
from killed_at_a_shard import merge_until_killed
from merging import merge, shards_of, tensors_of, working_in
from small_batches import use_small_batches
from tiny_models import write_model

from resumerge.engine.lifecycle.session import Session
from resumerge.options import Options
from resumerge.recipe.references import read_reference
from resumerge.sources import open_source

SCHEMES = {"base": "Q4_0", "math": "Q6_K", "code": "Q8_0"}
RECIPES = {
    "linear": "merge_method: linear\nparameters: {weight: 0.5}\n",
    "ties": "merge_method: ties\nbase_model: ./base%s\nparameters: {density: 0.5, weight: 0.7}\n",
}


def recipe(method: str, suffix: str) -> str:
    text = RECIPES[method].replace("%s", suffix)
    models = ", ".join(f"{{model: ./{name}{suffix}}}" for name in ("math", "code"))
    return f"{text}out_dtype: float32\nmodels: [{models}]\n"


@pytest.fixture(scope="module", params=["llama", "gemma2", "qwen2moe", "mixtral"])
def models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a base and two fine-tunes in GGUF, and the models that they are dequantised to."""
    folder, made = tmp_path_factory.mktemp("models"), FAMILIES[request.param]
    base = made.tensors(0)
    for seed, (name, scheme) in enumerate(SCHEMES.items()):
        change = made.tensors(seed)
        tensors = {key: base[key] + 0.1 * seed * change[key] for key in base}
        tensors = {key: values.astype("float32") for key, values in tensors.items()}
        file = folder / f"{name}.gguf"
        write_gguf(file, made, tensors, scheme if made.wide % 256 == 0 else "Q5_1")
        source = open_source(read_reference(str(file)))
        arrays = {key: torch.from_numpy(v.copy()) for key, v in numbers_of(source).items()}
        write_model(folder / name, arrays, {**source.config, "dtype": "float32"})
    return folder


@pytest.mark.parametrize("method", RECIPES)
def test_it_is_the_merge_of_the_dequantised_copies(
    method: str, models: Path, tmp_path: Path
) -> None:
    ours = tensors_of(merge(models, recipe(method, ".gguf"), tmp_path / "coded"))
    theirs = tensors_of(merge(models, recipe(method, ""), tmp_path / "plain"))
    assert ours.keys() == theirs.keys()  # in the order of the files that are read
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype == torch.float32
        assert torch.equal(ours[name].view(torch.int32), tensor.view(torch.int32)), name
    assert (tmp_path / "coded" / "config.json").exists()


@pytest.mark.parametrize("models", ["llama"], indirect=True)
def test_killed_and_resumed_it_is_the_same(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_batches(monkeypatch, 100_000)
    size = 400_000
    whole = merge(models, recipe("ties", ".gguf"), tmp_path / "whole", shard_size=size)
    assert len(shards_of(whole)) > 3
    config, out = tmp_path / "killed.yaml", tmp_path / "killed"
    config.write_text(recipe("ties", ".gguf"))
    options = Options(state_dir=tmp_path / "state", shard_size=size)
    with working_in(models):
        merge_until_killed(options, config, out)
        assert 0 < len(shards_of(out)) < len(shards_of(whole))
        Session(options).run(config, out)
    assert shards_of(out) == shards_of(whole)
