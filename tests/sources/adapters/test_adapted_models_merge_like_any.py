"""Promise: a model with an adapter is an input like any other, in every method and after a kill."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from adapters import write_adapter, write_base
from memory_growth import measure_growth
from merging import merge, shards_of, tensors_of, working_in
from reading import evaluation, read
from safetensors.torch import load_file, save_file
from tiny_models import LLAMA, finetuned, llama_shapes, random_tensors, write_model

from resumerge.documents.plan_report import describe_plan
from resumerge.methods import METHODS
from resumerge.options import Options
from resumerge.recipe.references import read_reference
from resumerge.sources import open_source
from resumerge.sources.reader import SourceReader

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write `base`, the adapters `math`, `code` and `chat` (DoRA), and each merged (`…-whole`)."""
    folder = tmp_path_factory.mktemp("models")
    base = write_base(folder / "base", "llama")
    write_adapter(folder / "math", base, "llama", seed=1, target_modules=ALL, r=8)
    write_adapter(folder / "code", base, "llama", seed=2, target_modules=["q_proj", "lm_head"])
    write_adapter(folder / "chat", base, "llama", seed=3, target_modules=ALL, use_dora=True)
    for name in ("math", "code", "chat"):
        copy = f"merge_method: passthrough\nmodels: [{{model: base+{name}}}]\n"
        merge(folder, copy, folder / f"{name}-whole")
    return folder


def recipe(method: str, names: list[str], **settings: str) -> str:
    """Return a recipe for a method that gives every required parameter."""
    found = METHODS[method]
    per_model = {p.name: 0.5 for p in found.parameters if p.per_model and p.required}
    shared = {p.name: 0.5 for p in found.parameters if not p.per_model and p.required}
    inputs = names[: (found.most or 3) - (found.base == "required")] if found.most else names
    document = {
        "merge_method": method,
        "models": [{"model": name, "parameters": per_model} for name in inputs],
        "parameters": shared,
        **({"base_model": "base"} if found.base != "none" else {}),
        **settings,
    }
    return json.dumps(document)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_the_bytes_that_the_merged_adapters_give(
    method: str, models: Path, tmp_path: Path
) -> None:
    laid = recipe(method, ["base+math", "base+code", "base+chat"])
    whole = recipe(method, ["math-whole", "code-whole", "chat-whole"])
    assert shards_of(merge(models, laid, tmp_path / "laid", seed=1)) == (
        shards_of(merge(models, whole, tmp_path / "whole", seed=1))
    )


def test_layers_of_adapted_models_are_stacked(models: Path, tmp_path: Path) -> None:
    text = (
        "merge_method: passthrough\nslices:\n"
        "  - sources: [{{model: {}, layer_range: [0, 2]}}]\n"
        "  - sources: [{{model: {}, layer_range: [1, 3]}}]\n"
    )
    laid = merge(models, text.format("base+math", "base+chat"), tmp_path / "laid")
    whole = merge(models, text.format("math-whole", "chat-whole"), tmp_path / "whole")
    assert shards_of(laid) == shards_of(whole)


def test_rounding_to_a_dtype_is_as_for_any_model(models: Path, tmp_path: Path) -> None:
    laid = recipe("linear", ["base+math", "base"], dtype="bfloat16").replace("{}", '{"weight": 1}')
    whole = laid.replace("base+math", "math-whole")
    assert shards_of(merge(models, laid, tmp_path / "laid")) == (
        shards_of(merge(models, whole, tmp_path / "whole"))
    )


WIDE = {**LLAMA, "hidden_size": 640, "intermediate_size": 1700, "num_hidden_layers": 2}
WIDE |= {"num_attention_heads": 10, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 900}


def write_wide(folder: Path, dora: bool = True, layers: int = 2) -> Path:
    """Write a model with tensors of many blocks, a fine-tune of it, and an adapter of every module.

    The adapter is made without peft.
    """
    config = {**WIDE, "num_hidden_layers": layers}
    shapes = llama_shapes(config)
    write_model(folder / "base", random_tensors(shapes, 0, "bfloat16"), config)
    write_model(folder / "tune", finetuned(random_tensors(shapes, 0, "bfloat16"), 1), config)
    tensors = {}
    generator = torch.Generator().manual_seed(4)
    for name, shape in shapes.items():
        if len(shape) == 2 and "proj" in name:
            key = "base_model.model." + name.removesuffix(".weight")
            tensors[f"{key}.lora_A.weight"] = torch.randn(16, shape[1], generator=generator)
            tensors[f"{key}.lora_B.weight"] = torch.randn(shape[0], 16, generator=generator) * 0.01
            if dora:
                size = torch.rand(shape[0], generator=generator) + 0.5
                tensors[f"{key}.lora_magnitude_vector"] = size
    (folder / "adapter").mkdir()
    save_file(tensors, folder / "adapter" / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "lora_alpha": 32, "r": 16, "use_dora": dora}
    (folder / "adapter" / "adapter_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = write_wide(tmp_path_factory.mktemp("wide"))
    yield folder
    shutil.rmtree(folder)


def test_an_element_has_the_same_bits_in_whatever_range_it_is_read(wide: Path, soak: bool) -> None:
    with working_in(wide):
        source = open_source(read_reference("base+adapter"))
    reader = SourceReader([source])
    chosen = random.Random(0)
    for name in ("model.layers.0.mlp.down_proj.weight", "model.layers.1.self_attn.k_proj.weight"):
        info = source.tensors[name]
        whole = read(evaluation(reader), info)
        for number in range(30 if soak else 6):
            start, stop = sorted(chosen.choices(range(info.numel + 1), k=2))
            start = max(start, stop - [1, 100, 300_000][number % 3])
            again = SourceReader([source]) if number % 5 == 4 else reader
            assert read(evaluation(again), info, start, stop) == whole[2 * start : 2 * stop]
    reader.close()


def test_bits_do_not_depend_on_threads_or_torchs_own(wide: Path, tmp_path: Path) -> None:
    text = recipe("ties", ["base+adapter", "tune"]).replace('"parameters": {}', '"parameters": {}')
    text = text.replace('"parameters": {}}', '"parameters": {"weight": 0.5, "density": 0.5}}')
    results = []
    for number, threads in enumerate((1, 2, 5)):
        out = merge(wide, text, tmp_path / f"{number}", threads=threads)
        results.append(shards_of(out))
        torch.set_num_threads(threads)
    assert results[0] == results[1] == results[2]


def test_memory_holds_the_matrices_and_no_product_of_them(tmp_path: Path) -> None:
    """The largest tensor is 200 MB, in float32; the merge takes far less."""
    for name, shape in (("small", (200, 50)), ("large", (10_000, 5000))):
        write_model(tmp_path / name, {"w.weight": torch.zeros(shape)}, {})
        adapter = {"w.lora_A.weight": torch.ones(8, shape[1])}
        adapter["w.lora_B.weight"] = torch.ones(shape[0], 8)
        (tmp_path / f"{name}-adapter").mkdir()
        save_file(adapter, tmp_path / f"{name}-adapter" / "adapter_model.safetensors")
        config = {"peft_type": "LORA", "lora_alpha": 8}
        (tmp_path / f"{name}-adapter" / "adapter_config.json").write_text(json.dumps(config))
    recipe = "merge_method: passthrough\nmodels: [{model: ./X+./X-adapter}]\n"
    growth = measure_growth(tmp_path, *(recipe.replace("X", name) for name in ("small", "large")))
    assert growth.measured <= growth.predicted < 130_000_000
    assert torch.equal(
        tensors_of(tmp_path / "large.out")["w.weight"][:1], torch.full((1, 5000), 8.0)
    )


KILLED = """
import os, signal, sys
from resumerge.storage import Storage
whole, left = Storage.write, int(sys.argv.pop(1))
def write(self, fd, data, offset):
    global left
    whole(self, fd, data, offset)
    left -= memoryview(data).nbytes
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
Storage.write = write
from resumerge.cli.main import main
main()
"""
"""The command line, in a process that is killed after so many bytes."""


def test_killed_twice_and_resumed_it_has_the_bytes_of_a_calm_run(tmp_path: Path) -> None:
    folder = write_wide(tmp_path, layers=6)
    (folder / "recipe.yaml").write_text(
        "merge_method: linear\nmodels:\n"
        "  - {model: base+adapter, parameters: {weight: 0.5}}\n"
        "  - {model: tune, parameters: {weight: 0.5}}\n"
    )
    calm = merge(folder, (folder / "recipe.yaml").read_text(), tmp_path / "calm")
    words = ["run", "recipe.yaml", "out", "--shard-size", "20MB", "--state-dir", "state"]
    for nbytes in ("25000000", "10000000", "100000000"):
        command = [sys.executable, "-c", KILLED, nbytes, *words, "--no-supervise"]
        ended = subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL)
        assert ended.returncode == (0 if nbytes == "100000000" else -signal.SIGKILL)
    found, expected = tensors_of(folder / "out"), tensors_of(calm)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_changed_adapter_is_told_when_a_run_goes_on(models: Path, tmp_path: Path) -> None:
    shutil.copytree(models / "base", tmp_path / "base")
    shutil.copytree(models / "math", tmp_path / "math")
    before = describe(tmp_path)
    os.utime(tmp_path / "math" / "adapter_model.safetensors")
    changed = tmp_path / "math" / "adapter_config.json"
    with working_in(tmp_path):
        first = open_source(read_reference("base+math")).identity()
        changed.write_text(changed.read_text().replace('"lora_alpha": 8', '"lora_alpha": 9'))
        second = open_source(read_reference("base+math")).identity()
    assert first != second
    assert before["sources"][0]["kind"] == "lora"
    assert before["problems"] == []


def describe(folder: Path) -> dict:
    config = folder / "recipe.yaml"
    config.write_text("merge_method: passthrough\nmodels: [{model: base+math}]\n")
    with working_in(folder):
        return describe_plan(config, None, Options())


def test_the_plan_counts_what_is_read_of_both(models: Path, tmp_path: Path) -> None:
    shutil.copytree(models / "base", tmp_path / "base")
    shutil.copytree(models / "math", tmp_path / "math")
    [source] = describe(tmp_path)["sources"]
    expected = sum(
        tensor.nbytes
        for file in ("base/model.safetensors", "math/adapter_model.safetensors")
        for tensor in load_file(tmp_path / file).values()
    )
    assert source == {
        "model": "base+math",
        "kind": "lora",
        "revision": None,
        "bytes_needed": expected,
        "streamed_bytes": 0,
    }
