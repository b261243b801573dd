"""Promise: an option about a mirror is never ignored; `plan` says where a mirror would be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import resumerge

ALONE = [
    "--mirror-then-delete",
    "--mirror-rate 1MB",
    "--mirror-wait 5",
    "--mirror-wait 0",
    "--take-over",
    "--bring-back",
]


@pytest.mark.parametrize("command", ["run linear.yaml new", "resume half"])
@pytest.mark.parametrize("options", ALONE)
def test_without_a_mirror_it_is_refused(options: str, command: str, place: Path) -> None:
    runs = sorted((place / "state").glob("*"))
    refused = resumerge(*command.split(), *options.split(), cwd=place)
    assert refused.returncode == 2, refused.stderr
    assert "A mirror is needed, but none is given" in refused.stderr
    assert options.split()[0] in refused.stderr
    assert sorted((place / "state").glob("*")) == runs
    assert not (place / "new").exists()


def test_where_nothing_is_deleted_anyway_it_says_nothing(place: Path) -> None:
    done = resumerge("plan", "linear.yaml", "new", "--no-mirror-then-delete", cwd=place)
    assert done.returncode == 0, done.stderr


def planned(place: Path, *options: str) -> dict[str, Any]:
    done = resumerge("plan", "linear.yaml", "new", *options, "--json", cwd=place)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return {choice["what"]: choice["chosen"] for choice in document["choices"]}


def test_a_plan_names_the_mirror_and_writes_nothing(place: Path) -> None:
    assert planned(place, "--mirror", "far")["mirror"] == "far"
    assert "mirror" not in planned(place)
    assert not (place / "far").exists()
    assert not (place / "new").exists()


def test_a_plan_refuses_what_cannot_be_a_mirror(place: Path) -> None:
    refused = resumerge("plan", "linear.yaml", "new", "--mirror", "new/far", cwd=place)
    assert refused.returncode == 2
    assert "contains the output" in refused.stderr


@pytest.mark.parametrize("style", ["bar", "lines", "none"])
def test_a_plan_says_how_progress_would_be_shown(style: str, place: Path) -> None:
    done = resumerge("plan", "linear.yaml", "--progress", style, cwd=place)
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stdout.splitlines() if line.startswith("progress ")]
    assert line.split()[1] == f"{style}:"


@pytest.mark.parametrize("words", ["--progress loud", "--json --progress bar"])
def test_a_plan_refuses_what_cannot_be_shown(words: str, place: Path) -> None:
    refused = resumerge("plan", "linear.yaml", *words.split(), cwd=place)
    assert refused.returncode == 2
    assert bool(refused.stdout) == ("--json" in words), "JSON, or nothing"
