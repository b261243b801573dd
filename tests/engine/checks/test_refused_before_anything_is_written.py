"""Promise: faulty input exits with code 2, and is named with a remedy; nothing is written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from merging import working_in
from safetensors.torch import load_file
from tiny_models import LLAMA, llama_shapes, random_tensors, write_family, write_model

from resumerge.cli.main import main
from resumerge.sources.index import INDEX_FILE

LINEAR = """merge_method: linear
models:
  - model: math
    parameters: {weight: 1}
  - model: code
    parameters: {weight: 1}
"""


@dataclass(frozen=True)
class Case:
    """A fault in the input.

    Args:
        recipe: the text of recipe.yaml.
        says: words of the message, in this order.
        line: the line of recipe.yaml that the message names; None if it names none.
        path: the key of recipe.yaml that the message names after the line.
        spoil: a function that makes the fault in the models' folder.
        options: the options of the command.
        free: the bytes that the disk appears to have free; None for the disk's own number.
        where: the place that the message names.
    """

    recipe: str
    says: str
    line: int | None = None
    path: str = ""
    spoil: Callable[[Path], object] = lambda folder: None
    options: tuple[str, ...] = ()
    free: int | None = None
    where: str = "recipe.yaml"


def with_shape(folder: Path) -> None:
    """Give the head of one model four more rows."""
    path = folder / "code" / "model.safetensors"
    tensors = load_file(path)
    tensors["lm_head.weight"] = torch.zeros(52, 16)
    write_model(folder / "code", tensors)


def without_tensor(folder: Path) -> None:
    path = folder / "code" / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.layers.2.mlp.up_proj.weight"]
    write_model(folder / "code", tensors)


def of_another_architecture(folder: Path) -> None:
    tensors = {
        name.replace("model.", "transformer.").replace("layers", "h"): tensor
        for name, tensor in random_tensors(llama_shapes(LLAMA), seed=5).items()
    }
    write_model(folder / "code", tensors, {**LLAMA, "model_type": "other"})


def deeper(folder: Path) -> None:
    config = {**LLAMA, "num_hidden_layers": 6}
    write_model(folder / "math", random_tensors(llama_shapes(config), seed=5), config)


def truncated(folder: Path) -> None:
    path = folder / "code" / "model.safetensors"
    os.truncate(path, path.stat().st_size - 100)


def lying(folder: Path) -> None:
    path = folder / "code" / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"shape":[48,16]', b'"shape":[49,16]', 1))


def with_index_alone(folder: Path, file: str) -> None:
    """Write an index that names a file, and delete the single file, which has precedence."""
    (folder / "code/model.safetensors").unlink()
    index = {"weight_map": {"lm_head.weight": file}}
    (folder / "code" / INDEX_FILE).write_text(json.dumps(index))


def index_outside(folder: Path) -> None:
    with_index_alone(folder, "../math/model.safetensors")


def index_to_missing(folder: Path) -> None:
    with_index_alone(folder, "model-00002-of-00002.safetensors")


def emptied(folder: Path) -> None:
    write_model(folder / "math", {})
    write_model(folder / "code", {})


CASES = {
    "empty_yaml": Case("", "The recipe is empty … only comments or blank lines"),
    "malformed_yaml": Case("merge_method: [linear\nmodels: 1", "is not valid YAML", line=2),
    "unknown_key": Case(
        LINEAR.replace("merge_method", "merge_metod"),
        "Unknown key … merge_metod … Did you mean 'merge_method'?",
        line=1,
        path="merge_metod",
    ),
    "unknown_parameter": Case(
        LINEAR.replace("weight", "wieght", 1),
        "Unknown parameter 'wieght' … wieght … Write 'weight'",
        line=4,
        path="models[0].parameters.wieght",
    ),
    "unknown_method": Case(
        LINEAR.replace("linear", "liner"),
        "Unknown merge method 'liner' … linear, model_stock … liner … Did you mean 'linear'?",
        line=1,
        path="merge_method",
    ),
    "missing_parameter": Case(
        LINEAR.replace("    parameters: {weight: 1}\n", "", 1),
        "'weight' of linear is missing for math … Add `weight:` under parameters",
        line=3,
        path="models[0].parameters",
    ),
    "weights_that_sum_to_zero": Case(
        LINEAR.replace("weight: 1", "weight: -1", 1),
        "weights that do not sum to zero, or normalize: false … Change these values",
    ),
    "density_outside": Case(
        "merge_method: ties\nbase_model: base\nmodels:\n"
        "  - {model: math, parameters: {weight: 1, density: -0.5}}\n",
        "'density' has an invalid value … from 0 to 1 … -0.5",
        line=4,
        path="models[0].parameters.density",
    ),
    "layer_range_past_the_end": Case(
        "merge_method: passthrough\nslices:\n  - sources:\n"
        "      - model: math\n        layer_range: [2, 8]\n",
        "past the end of math … it has 4 layers … [2, 8] … ends at 4",
        line=5,
        path="slices[0].sources[0].layer_range",
    ),
    "unequal_layer_counts_in_a_slice": Case(
        "merge_method: linear\nparameters: {weight: 1}\nslices:\n  - sources:\n"
        "      - {model: math, layer_range: [0, 2]}\n"
        "      - {model: code, layer_range: [0, 3]}\n",
        "different numbers of layers … math [0, 2] has 2, code [0, 3] has 3",
        line=6,
        path="slices[0].sources[1].layer_range",
    ),
    "unequal_layer_counts_of_models": Case(
        LINEAR,
        "code and math have different numbers of layers … 6 layers … 4 in code … merged … "
        "- model: math … layer_range: [0, 4] … - model: code … layer_range: [0, 4] … stacked … "
        "- model: math … layer_range: [0, 6] … - model: code … layer_range: [0, 4]",
        line=5,
        path="models[1]",
        spoil=deeper,
    ),
    "shapes_that_do_not_match": Case(
        LINEAR,
        "Shapes do not match in tensor lm_head.weight … [48, 16], as in math … [52, 16] in code",
        line=5,
        path="models[1]",
        spoil=with_shape,
    ),
    "missing_tensor": Case(
        LINEAR,
        "A tensor is missing from code … model.layers.2.mlp.up_proj.weight … no such tensor",
        line=5,
        path="models[1]",
        spoil=without_tensor,
    ),
    "another_architecture": Case(
        LINEAR,
        "38 tensors are missing from code … model.layers.{0-3}.mlp.down_proj.weight … as in math … "
        "code has 38 that math lacks: … transformer.h.{0-3}.mlp.down_proj.weight … "
        "Merge models of the same architecture",
        line=5,
        path="models[1]",
        spoil=of_another_architecture,
    ),
    "truncated_safetensors": Case(
        LINEAR,
        "file is damaged … truncated … download or save this file again",
        spoil=truncated,
        where="code/model.safetensors",
    ),
    "lying_safetensors_header": Case(
        LINEAR,
        "file is damaged … bytes for F32 [49, 16] … download or save this file again",
        spoil=lying,
        where="code/model.safetensors",
    ),
    "index_outside_its_folder": Case(
        LINEAR,
        "outside the model's folder … ../math/model.safetensors … do not use this model",
        spoil=index_outside,
        where=f"code/{INDEX_FILE}",
    ),
    "index_naming_missing_files": Case(
        LINEAR,
        "names files that do not exist … model-00002-of-00002.safetensors … copy or download",
        spoil=index_to_missing,
        where=f"code/{INDEX_FILE}",
    ),
    "models_without_tensors": Case(LINEAR, "no tensors to merge … none in math", spoil=emptied),
    "missing_base_model": Case(
        LINEAR.replace("linear", "ties"),
        "ties needs a base model … base_model: org/name … Add `base_model:`",
        line=1,
        path="merge_method",
    ),
    "too_few_models": Case(
        "merge_method: slerp\nbase_model: base\nmodels: [{model: base}]\nparameters: {t: 0.5}\n",
        "slerp takes exactly 2 models … 1 … Add or remove models",
    ),
    "no_such_folder": Case(
        LINEAR.replace("code", "./cod"),
        "folder does not exist … no such folder … check the path",
        where="./cod",
    ),
    "a_folder_without_a_model": Case(
        LINEAR,
        "weights of a model are missing … model.safetensors … config.json … save_pretrained",
        spoil=lambda folder: (folder / "code" / "model.safetensors").unlink(),
        where="code",
    ),
    "disk_too_small": Case(
        LINEAR,
        "disk is too small … MB free … 1 kB free … free ",
        free=1000,
        where="out",
    ),
    "memory_too_small": Case(
        LINEAR,
        "memory budget is too small … at least … 20MB … raise --memory to",
        options=("--memory", "20MB"),
        where="",
    ),
    "output_is_a_file": Case(
        LINEAR,
        "output is a file … name another output folder",
        spoil=lambda folder: (folder / "out").write_text("mine"),
        where="out",
    ),
    "output_holds_something_else": Case(
        LINEAR,
        "contains other files … new or empty … notes.txt … name another output folder",
        spoil=lambda folder: [(folder / "out").mkdir(), (folder / "out/notes.txt").write_text("")],
        where="out",
    ),
}


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("family"))


def prepared(case: Case, family: Path, folder: Path) -> dict[str, int]:
    """Make a case's models and recipe, and return the content of the folder."""
    shutil.copytree(family, folder, dirs_exist_ok=True)
    (folder / "recipe.yaml").write_text(case.recipe)
    case.spoil(folder)
    return everything_in(folder)


def check_said(case: Case, said: str) -> None:
    assert "Traceback" not in said
    rest = said
    for words in case.says.split(" … "):
        assert words in rest, f"{words!r} is not, or not in its place, in:\n{said}"
        rest = rest[rest.index(words) + len(words) :]
    assert case.where in said
    if case.line is not None:
        place = f"recipe.yaml, line {case.line}" + (f", at {case.path}" if case.path else "")
        assert place in said
    assert "  found:" in said
    assert "  do:" in said


@pytest.mark.parametrize("name", CASES)
def test_case(
    name: str,
    family: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    case = CASES[name]
    before = prepared(case, family, tmp_path)
    words = ["resumerge", "run", "recipe.yaml", "out", "--no-supervise", *case.options]
    monkeypatch.setattr(sys, "argv", words)
    if case.free is not None:
        usage = SimpleNamespace(total=10**9, used=10**9, free=case.free)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with working_in(tmp_path), pytest.raises(SystemExit) as ended:
        main()
    out, said = capsys.readouterr()
    assert (ended.value.code, out) == (2, ""), said
    check_said(case, said)
    assert everything_in(tmp_path) == before


@pytest.mark.parametrize("name", ["unknown_key", "truncated_safetensors"])
def test_a_worker_that_refuses_says_so_through_its_supervisor(
    name: str, family: Path, tmp_path: Path
) -> None:
    case = CASES[name]
    before = prepared(case, family, tmp_path)
    words = [sys.executable, "-m", "resumerge", "run", "recipe.yaml", "out", *case.options]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    check_said(case, done.stderr)
    assert everything_in(tmp_path) == before


def everything_in(folder: Path) -> dict[str, int]:
    """Return the modification time of every path below a folder."""
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    write_family(tmp_path)
    with_shape(tmp_path)
    (tmp_path / "recipe.yaml").write_text(LINEAR.replace("    parameters: {weight: 1}\n", ""))
    done = subprocess.run(
        [sys.executable, "-m", "resumerge", "plan", "recipe.yaml", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert len(json.loads(done.stdout)["problems"]) == 3


def test_a_resumed_run_whose_source_changed_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    write_family(tmp_path)
    (tmp_path / "recipe.yaml").write_text(LINEAR)
    command = [sys.executable, "-m", "resumerge"]
    subprocess.run([*command, "run", "recipe.yaml", "out"], cwd=tmp_path, check=True)
    written = everything_in(tmp_path / "out")
    with_shape(tmp_path)
    done = subprocess.run([*command, "resume"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "  do:" in done.stderr
    assert everything_in(tmp_path / "out") == written
