"""The recipes that docs/coming-from-mergekit.md gives for mergekit's small tools have the results
of these tools.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from beside_mergekit import MERGEKIT, assert_same_weights, run_beside_mergekit, run_mergekit
from merging import merge, tensors_of
from safetensors.torch import save_file
from tiny_models import LLAMA, llama_shapes, random_tensors, write_family, write_model

DOCUMENT = Path(__file__).parents[2] / "docs" / "coming-from-mergekit.md"
VLM: dict[str, Any] = {
    "architectures": ["LlavaForConditionalGeneration"],
    "model_type": "llava",
    "text_config": LLAMA,
    "vision_config": {"model_type": "clip_vision_model", "num_hidden_layers": 2},
    "dtype": "float32",
}
LEGACY = {
    "slerp": "--method slerp --base-model ./base --merge ./math --weight 0.3",
    "plain": "--method task_arithmetic --base-model ./base --merge ./math --merge ./code "
    "--weight 0.6 --no-normalize --int8-mask --naive-count",
}
"""Arguments of mergekit-legacy, besides those in the document."""

TOOLS = """
import functools, json, random, runpy, sys
from click.testing import CliRunner
from mergekit.architecture.base import ModelArchitecture
from mergekit.config import OutputSliceDefinition
from mergekit.scripts import bakllama, fill_missing_params, layershuffle, legacy

words = json.loads(sys.argv[1])
options = ["--no-write-model-card", "--no-copy-tokenizer"]

def run(tool, *words):
    return CliRunner().invoke(tool.main, words)

shuffle = ["-m", "./math", "-m", "./code", "--print-yaml"]
narrow = [*shuffle, "-w", "0.6", "-w", "0.4"]
broken = [
    run(layershuffle, "broken", *narrow, "--dry-run").exception,
    run(bakllama, "bakllama.yaml", "broken").exception,
]
try:
    name = "mergekit.scripts.fill_missing_params"
    sys.modules.pop(name)
    sys.argv = [name, "./vlm", "./math"]
    runpy.run_module(name, run_name="__main__")
except BaseException as error:
    broken.append(error)
told = {"broken": [type(error).__name__ for error in broken]}

for out, arguments in words.items():
    done = run(legacy, out, *arguments, "--print-yaml", *options)
    assert done.exit_code == 0, done.output
    told[out] = done.stdout

# what stops the tools is mended from here on
ModelArchitecture.num_layers = lambda self, config: config.num_hidden_layers
random.seed(1)
done = run(layershuffle, "shuffled.mergekit", *narrow, *options)
assert done.exit_code == 0, done.output
told["shuffled"] = done.stdout
random.seed(1)
seeded = run(layershuffle, "out", *narrow, "--dry-run", "--random-seed", "7")
told["seeded"] = seeded.stdout
wide = ["-w", "0.75", "-w", "0.5", "--full-random", "--dry-run"]
told["wide"] = run(layershuffle, "out", *shuffle, *wide).stdout

one = bakllama.InputSliceDefinition
bakllama.InputSliceDefinition = lambda **given: OutputSliceDefinition(sources=[one(**given)])
bakllama.MergeOptions = functools.partial(
    bakllama.MergeOptions, write_model_card=False, copy_tokenizer=False
)
done = run(bakllama, "bakllama.yaml", "bakllama.mergekit")
assert done.exit_code == 0, done.output

for whole, part in ("vlm", "math"), ("vlm", "ties.mergekit"), ("whole", "part"):
    out = f"{whole}-{part}.filled"
    fill_missing_params.copy_and_fill_missing_params(f"./{whole}", f"./{part}", output_dir=out)
print(json.dumps(told))
"""

pytestmark = pytest.mark.skipif(MERGEKIT is None, reason="mergekit is not installed")


def blocks(section: str) -> list[str]:
    """Return the blocks of code below a heading of the document."""
    text = DOCUMENT.read_text().split(f"\n### {section}\n")[1].split("\n##")[0]
    return re.findall(r"```\w+\n(.*?)```", text, re.DOTALL)


TIES = yaml.safe_load(blocks("fill_missing_params")[1])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the models that the document names."""
    folder = write_family(tmp_path_factory.mktemp("models"))
    text = random_tensors(llama_shapes(LLAMA), seed=3)
    eyes = {f"vision_tower.encoder.layers.{n}.mlp.fc1.weight": (16, 16) for n in range(2)}
    rest = random_tensors({**eyes, "multi_modal_projector.linear_1.weight": (16, 16)}, seed=4)
    vlm = {f"language_model.{name}": tensor for name, tensor in text.items()}
    write_model(folder / "vlm", vlm | rest, VLM)
    whole = random_tensors(dict.fromkeys(("a", "b.weight", "c"), (4, 8)), seed=5)
    part = random_tensors({"b.weight": (4, 8)}, seed=6)
    for name, tensors in ("whole", whole), ("part", part):
        (folder / name).mkdir()
        for file in (folder / name / "model.safetensors", folder / f"{name}.safetensors"):
            save_file(tensors, file, metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def told(models: Path) -> dict[str, Any]:
    """Run mergekit's tools, which write beside the models; return what they print."""
    (models / "bakllama.yaml").write_text(blocks("bakllama")[0])
    inner = TIES["modules"]["text_decoder"]
    del (flat := dict(TIES))["modules"]
    run_mergekit(models, {"ties": yaml.safe_dump(flat | inner)})
    program, out, *arguments = shlex.split(blocks("mergekit-legacy")[0].replace("\\\n", ""))
    assert (program, out) == ("mergekit-legacy", "out")
    legacy = {"legacy": arguments} | {name: words.split() for name, words in LEGACY.items()}
    found: dict[str, Any] = json.loads(run_beside_mergekit(models, TOOLS, json.dumps(legacy)))
    return found


def assert_makes(models: Path, recipe: str, theirs: str, out: Path, **options: Any) -> None:
    """Merge, and compare the weights with those of a folder beside the models."""
    assert_same_weights(
        tensors_of(merge(models, recipe, out, **options)), tensors_of(models / theirs)
    )


def test_three_tools_of_mergekit_stop_with_an_exception(told: dict[str, Any]) -> None:
    assert told["broken"] == ["AttributeError", "ValidationError", "NameError"]


def test_arguments_of_mergekit_legacy(models: Path, told: dict[str, Any], tmp_path: Path) -> None:
    assert_makes(models, blocks("mergekit-legacy")[1], "legacy", tmp_path / "out")


@pytest.mark.parametrize("name", ["legacy", *LEGACY])
def test_what_mergekit_legacy_prints_runs_unchanged(
    name: str, models: Path, told: dict[str, Any], tmp_path: Path
) -> None:
    assert_makes(models, told[name], name, tmp_path / "out")


def test_what_becomes_of_each_argument(models: Path, told: dict[str, Any], tmp_path: Path) -> None:
    two = "models: [{model: ./math}, {model: ./code}]\n"
    slerp = "merge_method: slerp\nbase_model: ./base\nmodels: [{model: ./math}]\n"
    arithmetic = f"merge_method: task_arithmetic\nbase_model: ./base\n{two}"
    assert_makes(models, slerp + "parameters: {t: 0.3}\n", "slerp", tmp_path / "a")
    assert_makes(models, arithmetic + "parameters: {weight: 0.6}\n", "plain", tmp_path / "b")


def printed(program: str, folder: Path) -> str:
    """Return what a program prints, and check that it prints the same twice."""
    (folder / "shuffle.py").write_text(program)
    outputs = {
        subprocess.check_output([sys.executable, "shuffle.py"], cwd=folder, text=True)
        for _ in range(2)
    }
    [text] = outputs
    return text


def test_layers_drawn_at_random(models: Path, told: dict[str, Any], tmp_path: Path) -> None:
    recipe = printed(blocks("mergekit-layershuffle")[0], tmp_path)
    assert {s["sources"][0]["model"] for s in yaml.safe_load(recipe)["slices"]} == {
        "./math",
        "./code",
    }
    assert_makes(models, recipe, "shuffled.mergekit", tmp_path / "out")
    assert told["seeded"] == told["shuffled"], "--random-seed has no effect"


def layers_of(recipe: str) -> dict[str, list[int]]:
    """Return the layers of each model, one of each slice, in the output's order."""
    found: dict[str, list[int]] = {}
    for entry in yaml.safe_load(recipe)["slices"]:
        [source] = entry["sources"]
        start, stop = source["layer_range"]
        assert stop == start + 1
        found.setdefault(source["model"], []).append(start)
    return found


def test_layers_in_any_order(models: Path, told: dict[str, Any], tmp_path: Path) -> None:
    program, _, full, *_ = blocks("mergekit-layershuffle")
    program = program.replace("[0.6, 0.4]", "[0.75, 0.5]")
    recipe = printed(re.sub(r"chosen = .*\n", full, program, count=1), tmp_path)
    for text in recipe, told["wide"]:
        found = layers_of(text)
        assert {model: len(layers) for model, layers in found.items()} == {"./math": 3, "./code": 2}
        assert all(n < len(layers) for layers in found.values() for n in layers)
    ours = tensors_of(merge(models, recipe, tmp_path / "out"))
    [first] = yaml.safe_load(recipe)["slices"][0]["sources"]
    name = "model.layers.{}.mlp.up_proj.weight"
    source = tensors_of(models / first["model"])
    assert torch.equal(ours[name.format(0)], source[name.format(first["layer_range"][0])])


def test_slices_of_bakllama(models: Path, told: dict[str, Any], tmp_path: Path) -> None:
    assert_makes(models, blocks("bakllama")[1], "bakllama.mergekit", tmp_path / "out")


def test_what_a_recipe_does_not_name_is_kept(
    models: Path, told: dict[str, Any], tmp_path: Path
) -> None:
    copied, merged, flat = blocks("fill_missing_params")
    assert_makes(models, copied, "vlm-math.filled", tmp_path / "a")
    assert_makes(models, merged, "vlm-ties.mergekit.filled", tmp_path / "b")
    assert json.loads((tmp_path / "b" / "config.json").read_text()).items() >= VLM.items()
    assert_makes(models, flat, "whole-part.filled", tmp_path / "c", tensor_union=True)
