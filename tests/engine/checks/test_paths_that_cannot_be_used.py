"""Promise: a path that cannot be used is refused with exit code 2; nothing is written."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from privileges import unprivileged
from tiny_models import write_family

LINEAR = """merge_method: linear
parameters: {weight: 1}
models: [{model: math}, {model: code}]
"""


@dataclass(frozen=True)
class Case:
    """A path that cannot be used.

    Args:
        says: words of the message, in this order.
        out: the output folder.
        state: the state folder.
        config: the recipe's path.
        make: a function that creates what is at the path.
    """

    says: str
    out: str | bytes = "out"
    state: str | bytes = "state"
    config: str | bytes = "recipe.yaml"
    make: Callable[[Path], object] = lambda folder: None


def in_a_folder_that_is_not_utf8(folder: Path) -> None:
    os.mkdir(os.fsencode(folder) + b"/\xff")  # noqa: PTH102
    (folder / "recipe.yaml").rename(os.fsdecode(b"%s/\xff/recipe.yaml" % os.fsencode(folder)))


def model_in_a_folder_that_is_not_utf8(folder: Path) -> None:
    target = folder / os.fsdecode(b"\xff")
    (folder / "math").rename(target)
    (folder / "math").symlink_to(target)


def weights_of_nobody(folder: Path) -> None:
    (folder / "math" / "model.safetensors").chmod(0)


CASES = {
    "out_not_utf8": Case("output cannot be used … not UTF-8 … do:", b"out-\xff"),
    "out_of_300_characters": Case("output cannot be used … 300 bytes", "o" * 300),
    "out_of_300_characters_below": Case("cannot be used … 300 bytes", "new/" + "o" * 300 + "/x"),
    "out_of_5000_characters": Case("cannot be used … a path of", "new/" * 1250),
    "out_a_dangling_link": Case(
        "output cannot be used … broken link to gone",
        make=lambda folder: (folder / "out").symlink_to("gone"),
    ),
    "out_a_loop_of_links": Case(
        "output cannot be used … do:",
        make=lambda folder: (folder / "out").symlink_to("out"),
    ),
    "out_below_a_file": Case("output cannot be used … is a file", "recipe.yaml/out"),
    "out_the_root": Case("contains other files … found", "/"),
    "out_read_only": Case(
        "output cannot be written to … read-only … permissions",
        make=lambda folder: (folder / "out").mkdir(mode=0o500),
    ),
    "out_in_a_read_only_folder": Case(
        "output cannot be written to … read-only … permissions",
        "there/out",
        make=lambda folder: (folder / "there").mkdir(mode=0o500),
    ),
    "out_named_like_a_file": Case(
        "output is a folder … because … is one … merged.safetensors … name the folder merged",
        "merged.safetensors",
    ),
    "out_a_file_below_a_file": Case(
        "output cannot be used … new file … is a file", "recipe.yaml/merged.safetensors"
    ),
    "out_inside_a_source": Case("is inside a source model … math … outside of", "math/merged"),
    "state_a_file": Case("state folder … do:", state="recipe.yaml"),
    "state_below_a_file": Case("state folder … do:", state="recipe.yaml/state"),
    "state_a_dangling_link": Case(
        "state folder cannot be used … broken link to gone",
        make=lambda folder: (folder / "state").symlink_to("gone"),
    ),
    "state_is_the_output": Case("state folder is inside the output … --state-dir", state="out"),
    "state_in_the_output": Case("state folder is inside the output", state="out/state"),
    "state_not_utf8": Case("state folder cannot be used … not UTF-8", state=b"state-\xff"),
    "state_of_300_characters": Case("state folder cannot be used … 300", state="s" * 300),
    "state_read_only": Case(
        "state folder cannot be written to … permissions",
        make=lambda folder: (folder / "state").mkdir(mode=0o500),
    ),
    "state_unreadable": Case(
        "--state-dir … is not readable",
        make=lambda folder: (folder / "state").mkdir(mode=0o300),
    ),
    "recipe_not_utf8": Case(
        "recipe's folder cannot be used … not UTF-8",
        config=b"\xff/recipe.yaml",
        make=in_a_folder_that_is_not_utf8,
    ),
    "recipe_unreadable": Case(
        "CONFIG … is not readable",
        make=lambda folder: (folder / "recipe.yaml").chmod(0),
    ),
    "recipe_of_300_characters": Case("recipe cannot be read … too long", config="r" * 300),
    "model_not_utf8": Case(
        "name that is not UTF-8 … rename it", make=model_in_a_folder_that_is_not_utf8
    ),
    "model_unreadable": Case(
        "model cannot be read … math/model.safetensors: Permission denied",
        make=weights_of_nobody,
    ),
    "model_folder_unreadable": Case(
        "model cannot be read: math … recipe.yaml … Permission denied … do:",
        make=lambda folder: (folder / "math").chmod(0),
    ),
    "config_json_unreadable": Case(
        "model cannot be read … config.json: Permission denied",
        make=lambda folder: (folder / "math/config.json").chmod(0),
    ),
    "model_a_loop_of_links": Case(
        "weights of a model are missing",
        make=lambda folder: [
            (folder / "math/model.safetensors").unlink(),
            (folder / "math/model.safetensors").symlink_to("model.safetensors"),
        ],
    ),
}


def refused(words: list[str | bytes], folder: Path) -> str:
    """Return the message of a command without root's privileges, which must exit with code 2."""
    code, text = unprivileged(words, folder)
    assert code == 2, text
    assert "Traceback" not in text
    return text


@pytest.mark.parametrize("name", CASES)
def test_refused(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    write_family(tmp_path)
    (tmp_path / "recipe.yaml").write_text(LINEAR)
    case.make(tmp_path)
    before = sorted(os.walk(os.fsencode(tmp_path)))
    says = refused(["run", case.config, case.out, "--state-dir", case.state], tmp_path)
    rest = says
    for part in case.says.split(" … "):
        assert part in rest, f"{part!r} is not, or not in its place, in:\n{says}"
        rest = rest[rest.index(part) + len(part) :]
    assert sorted(os.walk(os.fsencode(tmp_path))) == before


@pytest.mark.parametrize("command", ["status", "resume", "verify"])
@pytest.mark.parametrize("state", ["recipe.yaml", "s" * 300], ids=["a file", "300 characters"])
def test_a_state_folder_that_is_none(command: str, state: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(LINEAR)
    says = refused([command, "--state-dir", state], tmp_path)
    assert "state folder cannot be read" in says
