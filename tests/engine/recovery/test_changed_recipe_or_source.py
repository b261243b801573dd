"""Promise: a run never continues with another recipe or other models; it names the change."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from crashing import RECIPE, Bench, Merge
from safetensors.torch import load_file, save_file


@pytest.fixture
def halfway(bench: Bench, operations: int) -> Merge:
    """Start a merge with models of its own, and kill it in the middle."""
    merge = bench.merge()
    shutil.copytree(merge.models, merge.folder / "models")
    merge.models = merge.folder / "models"
    merge.run(operations // 2)
    return merge


@pytest.mark.parametrize("command", ["run", "resume"])
def test_a_changed_recipe_is_refused_by_what_changed(
    bench: Bench, halfway: Merge, command: str
) -> None:
    before = halfway.files()
    halfway.config.write_text(RECIPE.replace("density: 0.5", "density: 0.7"))
    refused = halfway.run() if command == "run" else halfway.resume()
    assert refused.code == 2
    assert "density" in refused.stderr
    assert "0.5" in refused.stderr
    assert "0.7" in refused.stderr
    assert "--restart" in refused.stderr
    assert halfway.files() == before
    assert not refused.written


def test_a_comment_is_no_change(halfway: Merge, reference: dict[str, bytes]) -> None:
    halfway.config.write_text("# the same\n" + RECIPE)
    assert halfway.resume().code == 0
    weights = {n: data for n, data in reference.items() if n.endswith(".safetensors")}
    assert weights.items() <= halfway.files().items()


@pytest.mark.parametrize("done", [False, True])
def test_another_recipe_takes_the_place_of_a_run_that_has_no_file_left(
    bench: Bench, halfway: Merge, done: bool
) -> None:
    """A run without files has nothing to lose; one with a single file has."""
    if done:
        assert halfway.resume().code == 0
    other = RECIPE.replace("density: 0.5", "density: 0.7")
    halfway.config.write_text(other)
    files = sorted(path for path in halfway.out.rglob("*") if path.is_file())
    left = next(file for file in files if done or file.suffix == ".partial")
    for file in files:
        if file != left:
            file.unlink()
    assert halfway.run().code == 2
    assert left.exists()
    shutil.rmtree(halfway.out)
    assert halfway.resume().code == 2, "who goes on expects what was begun"
    assert halfway.run().code == 0
    _, expected = bench.calm(other)
    for name in expected:
        if name.endswith(".safetensors"):
            assert halfway.files()[name] == expected[name]
    assert len(halfway.runs()) == 1


def test_restart_starts_over(bench: Bench, halfway: Merge) -> None:
    other = RECIPE.replace("density: 0.5", "density: 0.7")
    halfway.config.write_text(other)
    assert halfway.run(restart=True).code == 0
    _, expected = bench.calm(other)
    weights = [name for name in expected if name.endswith(".safetensors")]
    assert weights
    for name in weights:
        assert halfway.files()[name] == expected[name]
    assert len(halfway.runs()) == 1


@pytest.mark.parametrize("option, value", [("seed", 7), ("shard_size", 9000)])
def test_changed_options_that_decide_bytes_are_refused(
    halfway: Merge, option: str, value: int
) -> None:
    halfway.options = {**halfway.options, option: value}
    refused = halfway.run()
    assert refused.code == 2
    assert option.replace("_", " ") in refused.stderr


def retrained(model: Path) -> None:
    """Change the numbers of a model, but neither its size nor its header."""
    tensors = load_file(model)
    stamp = model.stat().st_mtime_ns
    save_file({name: t + 0.01 for name, t in tensors.items()}, model, {"format": "pt"})
    os.utime(model, ns=(0, stamp + 10**9))


def grown(model: Path) -> None:
    stamp = model.stat().st_mtime_ns
    data = model.read_bytes()
    size = int.from_bytes(data[:8], "little")
    head = data[8 : 8 + size] + b" " * 8
    model.write_bytes((size + 8).to_bytes(8, "little") + head + data[8 + size :])
    os.utime(model, ns=(0, stamp))


def renamed_inside(model: Path) -> None:
    """Change the header of a model, but neither its size nor its time."""
    stamp = model.stat().st_mtime_ns
    data = model.read_bytes()
    model.write_bytes(data.replace(b'"format":"pt"', b'"format":"tp"'))
    os.utime(model, ns=(0, stamp))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (retrained, "different contents"),
        (grown, "bytes instead of"),
        (renamed_inside, "a different header"),
    ],
)
def test_a_changed_source_is_refused(
    halfway: Merge, change: Callable[[Path], None], says: str
) -> None:
    before = halfway.files()
    change(halfway.models / "math" / "model.safetensors")
    refused = halfway.resume()
    assert refused.code == 2
    assert "A source has changed since the run was created" in refused.stderr
    assert re.search(rf"math/model.safetensors has (\d+ )?{says}", refused.stderr)
    assert "restore the file as it was" in refused.stderr
    assert halfway.files() == before
    assert halfway.resume(restart=True).code == 0


@pytest.mark.parametrize("model", ["base", "code"])
@pytest.mark.parametrize("key", ["tie_word_embeddings", "vocab_size", "of somebody else"])
def test_a_changed_config_is_refused(halfway: Merge, model: str, key: str) -> None:
    """A config.json decides which tensors a model has, and the output's is made from it."""
    before = halfway.files()
    config = halfway.models / model / "config.json"
    text = config.read_text()
    config.write_text(json.dumps({**json.loads(text), key: 161}))
    refused = halfway.resume()
    assert refused.code == 2
    assert f"{model}/config.json has different contents" in refused.stderr
    assert halfway.files() == before
    config.write_text(json.dumps(json.loads(text), indent=8))
    assert halfway.resume().code == 0


def test_a_source_that_was_touched_or_downloaded_again_is_no_other(
    halfway: Merge, reference: dict[str, bytes]
) -> None:
    for name in ("base", "math"):
        model = halfway.models / name / "model.safetensors"
        data = model.read_bytes()
        model.unlink()
        model.write_bytes(data)
        os.utime(model, ns=(0, 0))
    ended = halfway.finish()
    halfway.assert_done(reference)
    assert "2 model files: the modification time changed" in ended.stderr
    assert "source_touched" in halfway.events()


@pytest.mark.parametrize("spoiled", [b"merge_method: \xff", b"merge_method: [", b""])
def test_a_recipe_that_became_unreadable_is_refused_and_the_runs_own_goes_on(
    halfway: Merge, reference: dict[str, bytes], spoiled: bytes
) -> None:
    before = halfway.files()
    halfway.config.write_bytes(spoiled)
    refused = halfway.resume()
    assert refused.code == 2, refused.stderr
    assert "Traceback" not in refused.stderr
    assert halfway.files() == before
    [command] = re.findall("`(resumerge run .*)`", refused.stderr)
    halfway.config = Path(shlex.split(command)[2])
    assert halfway.run().code == 0
    assert halfway.verify().code == 0
    assert halfway.files() == reference


def test_a_recipe_that_cannot_be_read_is_not_needed(
    halfway: Merge, reference: dict[str, bytes]
) -> None:
    halfway.config.unlink()
    halfway.config.mkdir()
    ended = halfway.finish()
    assert "using the run's own copy of the recipe" in ended.stderr
    halfway.assert_done(reference)


def test_a_source_that_is_gone_is_refused_and_welcome_back(
    halfway: Merge, reference: dict[str, bytes]
) -> None:
    model = halfway.models / "code" / "model.safetensors"
    aside = model.with_suffix(".aside")
    model.rename(aside)
    refused = halfway.resume()
    assert refused.code in (2, 75)
    assert "code" in refused.stderr
    aside.rename(model)
    halfway.finish()
    weights = {n: data for n, data in reference.items() if n.endswith(".safetensors")}
    assert weights.items() <= halfway.files().items()


def test_a_source_that_becomes_shorter_while_it_is_read(
    bench: Bench, halfway: Merge, reference: dict[str, bytes]
) -> None:
    model = halfway.models / "code" / "model.safetensors"
    data = model.read_bytes()
    stamp = model.stat()
    paused = halfway.start("resume", 5)
    model.write_bytes(data[: len(data) // 3])
    ended = paused.go_on()
    assert ended.code == 75, ended.stderr
    assert str(model) in ended.stderr
    model.write_bytes(data)
    os.utime(model, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    halfway.finish()
    weights = {n: data for n, data in reference.items() if n.endswith(".safetensors")}
    assert weights.items() <= halfway.files().items()
