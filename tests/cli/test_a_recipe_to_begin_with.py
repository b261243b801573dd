"""Promise: `init` writes a recipe that runs as it is, with every other setting as a comment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from commands import resumerge
from safetensors.torch import load_file, save_file
from small_disks import fill, mounted
from terminals import ended, in_a_terminal

import resumerge as package
from resumerge.documents.new_recipe import Kind, new_recipe, new_recipe_of
from resumerge.errors import InputError
from resumerge.methods import METHODS
from resumerge.planning.check_recipe import check_recipe
from resumerge.recipe.load import parse_recipe


def made(method: str) -> str:
    """Return a recipe with as few models as the method needs."""
    needs_base = METHODS[method].base == "required"
    fewest = max(1, METHODS[method].fewest - needs_base)
    models = [f"org/model-{n}" for n in range(fewest)]
    return new_recipe(method, models, "org/base" if needs_base else None, "bfloat16")


@pytest.mark.parametrize("method", METHODS.built_in)
def test_every_method_has_one_that_nothing_is_wrong_with(method: str) -> None:
    recipe = parse_recipe(made(method))
    assert recipe.merge_method == method
    assert check_recipe(recipe) == []
    assert recipe.notes == ()


@pytest.mark.parametrize("method", METHODS.built_in)
def test_what_is_commented_out_is_the_default(method: str) -> None:
    text = made(method)
    whole = re.sub(r"^( *)# (?=[a-z])", r"\1", text, flags=re.MULTILINE)
    recipe = parse_recipe(whole)
    assert check_recipe(recipe) == []
    values = dict(re.findall(r"# ([a-z_0-9]+): (\S+)  +#", text))
    for parameter in METHODS[method].parameters:
        if not parameter.required:
            assert type(parameter.default)(eval(values[parameter.name].title())) == (
                parameter.default
            )


@pytest.mark.parametrize(
    ("method", "models", "base", "problem"),
    [
        ("tise", ["a/b"], None, "Did you mean 'ties'"),
        ("ties", ["a/b"], None, "needs a base model"),
        ("slerp", ["a/b", "a/c", "a/d"], "a/e", "takes exactly 2 models"),
    ],
)
def test_what_cannot_be_merged_is_not_written(
    method: str, models: list[str], base: str | None, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=problem):
        package.init(tmp_path / "merge.yaml", method=method, models=models, base=base)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a: b", "#x", "- y", "{z}", "null", "1e3", "ä b", "it's", '"'])
def test_odd_names_of_models_stay_as_they_are(name: str) -> None:
    recipe = parse_recipe(new_recipe("linear", [f"./{name}", "org/b"], None, "float16"))
    assert str(recipe.modules[0].slices[0].inputs[0].model) == f"./{name}"


def test_what_it_writes_is_merged(place: Path, tmp_path: Path) -> None:
    models = f"{place / 'math'},{place / 'code'}"
    words = ("init", "new.yaml", "--method", "ties", "--models", models)
    done = resumerge(*words, "--base", place / "base", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "resumerge run new.yaml merged"
    merged = resumerge("run", "new.yaml", "merged", cwd=tmp_path)
    assert merged.returncode == 0, merged.stderr


@pytest.mark.parametrize("adapters", [["org/x"], ["org/x", "org/y"]])
def test_a_model_with_adapters(adapters: list[str]) -> None:
    recipe = parse_recipe(new_recipe_of(Kind.LORA, None, adapters, "org/base", "bfloat16"))
    adapted = [str(m) for m in recipe.merged_models if m != recipe.base_model]
    assert adapted == [f"org/base+{a}" for a in adapters]
    assert recipe.merge_method == ("passthrough" if len(adapters) == 1 else "task_arithmetic")


def test_a_mixture_of_experts_has_a_prompt_for_each_to_write() -> None:
    text = new_recipe_of(Kind.MIXTURE, None, ["org/x", "org/y"], "org/base", "bfloat16")
    recipe = parse_recipe(text)
    assert recipe.mixture is not None
    assert [str(e.model) for e in recipe.mixture.experts] == ["org/x", "org/y"]
    assert text.count("Write here what") == 2


def test_a_merge_in_stages_is_run(place: Path, tmp_path: Path) -> None:
    models = ",".join(str(place / name) for name in ("math", "code", "base"))
    done = resumerge("init", "--kind", "stages", "--models", models, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "merge.yaml").read_text()
    assert [stage.name for stage in parse_recipe(text).stages] == ["first"]
    planned = resumerge("plan", "merge.yaml", cwd=tmp_path)
    assert planned.returncode == 0, planned.stderr


@pytest.mark.parametrize(
    ("kind", "models", "problem"),
    [
        ("stages", ["a", "b"], "needs more models"),
        ("lora", ["a"], "needs a base model"),
        ("mixture", ["a"], "needs a base model"),
        ("banana", ["a"], "Unknown kind of recipe"),
    ],
)
def test_a_kind_that_lacks_models_is_not_written(
    kind: str, models: list[str], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=problem):
        package.init(tmp_path / "merge.yaml", models=models, kind=kind)
    assert not list(tmp_path.iterdir())


def test_what_it_writes_for_weight_files_is_merged(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_file({"w": torch.full((2, 3), float(ord(name)))}, tmp_path / f"{name}.safetensors")
    words = ("init", "--method", "linear", "--dtype", "float32", "--models")
    done = resumerge(*words, "a.safetensors,b.safetensors", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    merged = resumerge("run", "merge.yaml", "merged", cwd=tmp_path)
    assert merged.returncode == 0, merged.stderr
    assert load_file(tmp_path / "merged/model.safetensors")["w"].tolist() == [[97.5] * 3] * 2


def test_a_second_model_after_a_space_is_not_taken_for_the_recipe(tmp_path: Path) -> None:
    """The message advises no removal of an existing second model; an absent one is not written."""
    (tmp_path / "b.safetensors").write_bytes(b"weights")
    for second in ("b.safetensors", "c.ckpt"):
        words = ("init", "--method", "linear", "--models", "a.safetensors", second)
        done = resumerge(*words, cwd=tmp_path)
        assert (done.returncode, "remove" in done.stderr) == (2, False)
        assert f"--models other.safetensors,{second}" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["b.safetensors"]


def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    (tmp_path / "merge.yaml").write_text("mine")
    done = resumerge("init", "--method", "linear", "--models", "a/b", cwd=tmp_path)
    assert done.returncode == 2
    assert "File exists" in done.stderr
    assert (tmp_path / "merge.yaml").read_text() == "mine"


def test_a_file_that_is_there_is_told_before_anybody_is_asked(tmp_path: Path) -> None:
    (tmp_path / "merge.yaml").write_text("mine")
    code, said = ended(*in_a_terminal([sys.executable, "-m", "resumerge", "init"], tmp_path))
    assert code == 2
    assert "File exists" in said and "Method" not in said


def test_nothing_is_left_on_a_full_disk(tmp_path: Path) -> None:
    with mounted(tmp_path, 1 << 16) as small:
        fill(small / "full")
        words = ("init", "--method", "linear", "--models", "a/b")
        full = resumerge(*words, cwd=small)
        assert (full.returncode, "No space left" in full.stderr) == (2, True)
        (small / "full").unlink()
        again = resumerge(*words, cwd=small)
        assert again.returncode == 0, again.stderr


def test_the_commands_that_it_names_can_be_copied(place: Path, tmp_path: Path) -> None:
    models = f"{place / 'math'},{place / 'code'}"
    for name in ("-a.yaml", "b\nc d.yaml"):
        done = resumerge("init", "--method", "linear", "--models", models, "--", name, cwd=tmp_path)
        assert len(done.stderr.splitlines()) == 3, done.stderr
        script = f"resumerge() {{ printf '%s\\0' \"$@\"; }}\n{done.stderr.splitlines()[1]}"
        words = subprocess.run(["bash", "-c", script], capture_output=True, text=True).stdout
        planned = resumerge(*words.split("\0")[:-1], cwd=tmp_path)
        assert planned.returncode == 0, planned.stderr


def test_a_dtype_is_a_value_and_models_are_a_list(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="dtype"):
        new_recipe("linear", ["a/b"], None, "float32\nout_dtype: float16")
    with pytest.raises(InputError, match="list of names"):
        package.init(tmp_path / "merge.yaml", method="linear", models="a/b")


def test_where_nobody_can_be_asked_the_options_are_named(tmp_path: Path) -> None:
    done = resumerge("init", "--method", "linear", cwd=tmp_path)
    assert done.returncode == 2
    assert "--models" in done.stderr
    assert not list(tmp_path.iterdir())


def test_three_questions_in_a_terminal(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "resumerge", "init"]
    pid, terminal = in_a_terminal(command, tmp_path)
    os.write(terminal, b"ties\norg/base\norg/a, org/b\n")
    code, said = ended(pid, terminal)
    assert code == 0, said
    lines = said.splitlines()
    assert len(lines) <= 24, "it is all on the screen"
    assert "Methods:" in said
    written = (tmp_path / "merge.yaml").read_text()
    assert written == new_recipe("ties", ["org/a", "org/b"], "org/base", "bfloat16")


def waits(pid: int) -> bool:
    """Return whether a process sleeps until an event."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_ctrl_c_in_a_question(tmp_path: Path) -> None:
    pid, terminal = in_a_terminal([sys.executable, "-m", "resumerge", "init"], tmp_path)
    said = b""
    while not said.endswith(b"Method [linear]: "):
        said += os.read(terminal, 65536)
    while not waits(pid):  # before, readline takes no notice of a signal
        time.sleep(0.05)
    os.write(terminal, b"\x03")
    code, rest = ended(pid, terminal)
    assert (code, rest.splitlines()[-1]) == (130, "Stopped.")
    assert not list(tmp_path.iterdir())
