"""Promise: a merge of weight files, into a folder or one file, is continued by another machine that
has the mirror and its own copies of these files, like any other merge.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from machines import SLOW, Machine, files_of, held, in_mirror, kill
from safetensors.torch import save_file
from waiting import wait_until

LAYERS = 12
OF_FILES = "merge_method: slowly\nmodels: [{model: a/a.safetensors}, {model: b/last.ckpt}]\n"
OF_FOLDERS = "merge_method: slowly\nmodels: [{model: a}, {model: b}]\n"


@pytest.fixture(scope="module")
def weights(store: Path) -> Path:
    """Make a weight file and a trainer's checkpoint, in a folder each."""
    folder = store / "weights"
    draw = torch.Generator().manual_seed(0)

    def tensors() -> dict[str, torch.Tensor]:
        names = [f"blocks.{k}.weight" for k in range(LAYERS)]
        return {name: torch.randn(30, 20, generator=draw) for name in names}

    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
    save_file({**tensors(), "steps": torch.tensor(1)}, folder / "a" / "a.safetensors")
    trained = {f"module.{name}": t for name, t in tensors().items()}
    state = {"state_dict": {**trained, "module.steps": torch.tensor(2)}, "epoch": 3}
    torch.save(state, folder / "b" / "last.ckpt")
    return folder


@pytest.fixture(scope="module")
def of_files(store: Path, weights: Path) -> dict[str, bytes]:
    """Return the model of a merge without a mirror, which nothing interrupts."""
    return merged(Machine(store / "calm", weights, OF_FILES))


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    return tmp_path / "mirror"


@pytest.fixture
def new(tmp_path: Path, weights: Path) -> Callable[[str, str], Machine]:
    return lambda name, recipe: Machine(tmp_path / name, weights, recipe)


@pytest.fixture(scope="module")
def died(store: Path, weights: Path) -> tuple[Machine, Path]:
    """Return a machine that merged some tensors of two files and is gone, and its mirror."""
    machine, mirror = Machine(store / "first", weights, OF_FILES), store / "its mirror"
    machine.hold(LAYERS - 2)
    process = machine.begin(mirror, **SLOW)
    wait_until(lambda: held(mirror).snapshot and committed(machine) > 2, process)
    kill(process)
    machine.wipe()
    return machine, mirror


@pytest.fixture
def half(died: tuple[Machine, Path], mirror: Path) -> Iterator[Machine]:
    """Copy the mirror of `died`, and yield its machine."""
    machine, its = died
    shutil.copytree(its, mirror)
    yield machine
    shutil.rmtree(machine.folder, ignore_errors=True)


def committed(machine: Machine) -> int:
    return sum(row["n"] for row in machine.rows("SELECT units_committed AS n FROM attempts"))


def merged(machine: Machine) -> dict[str, bytes]:
    """Return the model that a machine merges without a mirror and without an interruption."""
    machine.call("run", "recipe.yaml", "merged", "--shard-size", "8kB")
    return files_of(machine.out)


def test_one_shard_is_computed_again(
    new: Callable[[str, str], Machine], half: Machine, mirror: Path, of_files: dict[str, bytes]
) -> None:
    second = new("second", OF_FILES)
    second.call("resume", mirror)
    assert files_of(mirror) == of_files
    assert [row["n"] for row in second.rows("SELECT n FROM attempts")] == [1, 2]
    second.call("verify")


def test_shards_of_folders_without_config_are_kept(
    new: Callable[[str, str], Machine], mirror: Path
) -> None:
    first = new("first", OF_FOLDERS)
    first.hold(LAYERS - 1)
    process = first.begin(mirror, **SLOW)
    wait_until(lambda: len(in_mirror(mirror).sealed) >= 2, process)
    kill(process)
    before = in_mirror(mirror)
    first.wipe()
    second = new("second", OF_FOLDERS)
    second.call("resume", mirror)
    assert files_of(mirror) == merged(new("calm", OF_FOLDERS))
    rows = {row["number"]: row for row in second.rows("SELECT number, attempt, batch FROM units")}
    assert {n: (rows[n]["attempt"], rows[n]["batch"]) for n in before.units} == before.units


def test_a_kept_stage_is_continued_with_the_rest(
    new: Callable[[str, str], Machine], mirror: Path
) -> None:
    recipe = f"name: first\n{OF_FOLDERS}---\n{OF_FOLDERS.replace('model: a', 'model: first')}"
    first = new("first", recipe)
    first.hold(2 * LAYERS - 3)
    process = first.begin(mirror, "--keep", "first", **SLOW)
    wait_until(lambda: len(in_mirror(mirror).sealed) >= 3, process)
    kill(process)
    first.wipe()
    second = new("second", recipe)
    second.call("resume", mirror)
    calm = new("calm", recipe)
    calm.call("run", "recipe.yaml", "merged", "--shard-size", "8kB", "--keep", "first")
    assert files_of(mirror) == files_of(calm.out)
    assert (mirror / "stages" / "first" / "model.safetensors.index.json").is_file()


def test_a_file_is_found_by_its_name_though_its_old_folder_exists_here(
    new: Callable[[str, str], Machine], half: Machine, mirror: Path, of_files: dict[str, bytes]
) -> None:
    """The old folder contains another model here."""
    folder = half.work / "a"
    folder.mkdir(parents=True)
    save_file({"other": torch.zeros(4)}, folder / "other.safetensors")
    second = new("second", OF_FILES)
    second.call("resume", mirror)
    assert files_of(mirror) == of_files
    folders = [row["folder"] for row in second.rows("SELECT folder FROM sources ORDER BY number")]
    assert folders == [str(second.work / name) for name in "ab"], "from any folder from now on"


def test_a_file_that_is_nowhere_is_named(
    new: Callable[[str, str], Machine], half: Machine, mirror: Path
) -> None:
    """The file is not looked up on the Hub, though its name could be that of a repo."""
    second = new("second", OF_FILES)
    (second.work / "a" / "a.safetensors").unlink()
    _, err = second.call("resume", mirror, expect=75)
    assert "The model's file does not exist: a/a.safetensors" in err, err
    assert f"expected: {half.work}/a/a.safetensors" in err, err


# An output that is one file

FILE = "out/merged.safetensors"
BESIDE = {"README.md", "mergekit_config.yml"}
"""What the mirror has beside the weights, and the folder of one file has not."""


@pytest.fixture(scope="module")
def one_file(store: Path, weights: Path) -> bytes:
    """Return the weight file of a merge without a mirror, which nothing interrupts."""
    calm = Machine(store / "calm of one file", weights, OF_FILES)
    calm.call("run", "recipe.yaml", FILE)
    assert files_of(calm.work / "out").keys() == {"merged.safetensors"}
    return (calm.work / FILE).read_bytes()


@pytest.fixture(scope="module")
def died_at_one_file(store: Path, weights: Path) -> Path:
    """Return the mirror of a machine that merged some tensors into one file and is gone."""
    first, mirror = Machine(store / "of one file", weights, OF_FILES), store / "mirror of one file"
    first.hold(LAYERS - 2)
    process = first.start(
        *("run", "recipe.yaml", FILE, "--mirror", mirror, "--threads", "1"), **SLOW
    )
    wait_until(lambda: held(mirror).snapshot and committed(first) > 2, process)
    kill(process)
    left = {path.name for path in (first.work / "out").iterdir()}
    assert left == {"merged.safetensors.partial", ".merged.safetensors.lock"}
    first.wipe()
    return mirror


@pytest.fixture
def half_of_one_file(died_at_one_file: Path, mirror: Path) -> None:
    """Copy the mirror of `died_at_one_file` to the test's own."""
    shutil.copytree(died_at_one_file, mirror)


@pytest.mark.usefixtures("half_of_one_file")
def test_one_file_is_resumed_under_its_name(
    new: Callable[[str, str], Machine], mirror: Path, one_file: bytes
) -> None:
    second = new("second", OF_FILES)
    _, err = second.call("resume", mirror, "--output", "here/other.safetensors", expect=2)
    assert "a file named merged.safetensors" in err and "here/merged.safetensors" in err, err
    _, err = second.call("run", "recipe.yaml", "folder", "--mirror", mirror, expect=2)
    assert "The run in the mirror has another output" in err, err
    second.call("resume", mirror, "--output", "here/merged.safetensors")
    assert files_of(second.work / "here").keys() == {"merged.safetensors"}
    assert (second.work / "here/merged.safetensors").read_bytes() == one_file
    there = files_of(mirror)
    assert there.keys() == {"merged.safetensors", *BESIDE}
    assert there["merged.safetensors"] == one_file
    assert "# merged\n" in there["README.md"].decode()
    second.call("verify", "here/merged.safetensors")
    second.call("verify", mirror)


@pytest.mark.usefixtures("half_of_one_file")
def test_one_file_that_is_only_in_the_mirror_is_brought_back_alone(
    new: Callable[[str, str], Machine], mirror: Path, one_file: bytes
) -> None:
    second = new("second", OF_FILES)
    _, said = second.call("resume", mirror, "--mirror-then-delete")
    assert not list(second.work.glob("merged*"))
    assert f"{mirror} (only there; --bring-back" in said, said
    third = new("third", OF_FILES)
    _, err = third.call("resume", mirror, "--bring-back", "--output", "folder", expect=2)
    assert "a file named merged.safetensors" in err, err
    third.call("run", "recipe.yaml", FILE, "--mirror", mirror, "--bring-back")
    assert files_of(third.work / "out").keys() == {"merged.safetensors"}
    assert (third.work / FILE).read_bytes() == one_file


def test_starting_over_replaces_one_file_in_the_mirror(
    new: Callable[[str, str], Machine], mirror: Path
) -> None:
    first = new("first", OF_FILES)
    first.call("run", "recipe.yaml", FILE, "--mirror", mirror)
    before = files_of(mirror)
    first.call("run", "recipe.yaml", FILE, "--mirror", mirror, "--restart")
    assert files_of(mirror) == before
    assert files_of(first.work / "out").keys() == {"merged.safetensors"}
