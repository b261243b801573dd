"""Promise: models that are single files are merged into one file, in a folder of the user's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from ledger_rows import query
from merging import merge, tensors_of, working_in
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tiny_models import TWO_LAYERS, write_family

import resumerge
from resumerge.engine.lifecycle.old_runs import old_runs, remove_run
from resumerge.engine.lifecycle.session import Session
from resumerge.engine.reporter import Reporter
from resumerge.errors import InputError, Resumable
from resumerge.ledger import LEDGER_FILE
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.storage import Storage

RECIPE = (
    "merge_method: linear\nmodels:\n"
    "  - {model: a.safetensors, parameters: {weight: SHARE}}\n"
    "  - {model: b.ckpt, parameters: {weight: 0.5}}\n"
)
ADAPTER = '{"peft_type": "LORA", "r": 1, "lora_alpha": 2, "target_modules": ["blocks.3"]}'
FILE, SIDES = "adapter_model.safetensors", {"A": (1, 30), "B": (40, 1)}
HALF, THIRD = RECIPE.replace("SHARE", "0.5"), RECIPE.replace("SHARE", "0.25")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write two weight files, and three models in folders."""
    folder = write_family(tmp_path_factory.mktemp("models"), TWO_LAYERS)
    draw = torch.Generator().manual_seed(0)
    a, b = (
        {f"blocks.{k}.weight": torch.randn(40, 30, generator=draw) for k in range(8)}
        for _ in range(2)
    )
    save_file(a, folder / "a.safetensors")
    torch.save({"state_dict": b}, folder / "b.ckpt")
    return folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Return a path of an output, in a folder with another model of the user's."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "theirs.safetensors").write_bytes(b"theirs")
    return folder / "merged.safetensors"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


class Failing(Storage):
    """A disk that fails for good, before a complete file gets its name."""

    def rename(self, source: Path, target: Path) -> None:
        if target.suffix == ".safetensors":
            raise OSError(5, "Input/output error")
        super().rename(source, target)


def interrupted(models: Path, out: Path, state: Path, recipe: str = HALF) -> None:
    """Start a run, and stop it before its file gets its name."""
    config = state.with_name("recipe.yaml")
    config.write_text(recipe)
    with working_in(models), pytest.raises(Resumable):
        Session(Options(state_dir=state), Reporter(), Failing()).run(config, out)
    assert inside(out) == ["merged.safetensors.partial", "theirs.safetensors"]


def inside(out: Path) -> list[str]:
    return sorted(path.name for path in out.parent.iterdir())


def problems(models: Path, recipe: str, out: Path, **options: Any) -> list[str]:
    with pytest.raises(InputError) as refused:
        merge(models, recipe, out, **options)
    return [problem.what for problem in refused.value.problems]


def test_its_bytes_are_those_in_a_folder_and_nothing_else_is_written(
    models: Path, out: Path, state: Path, tmp_path: Path
) -> None:
    merge(models, HALF, out, state_dir=state)
    (out.parent / "merged.safetensors.yaml").unlink()  # the recipe of this test
    assert inside(out) == ["merged.safetensors", "theirs.safetensors"]
    folder = merge(models, HALF, tmp_path / "folder")
    assert out.read_bytes() == (folder / "model.safetensors").read_bytes()
    with safe_open(out, "pt") as file:
        assert file.metadata() == {"format": "pt"}
    assert resumerge.verify(out, state_dir=state).intact
    [run] = resumerge.status(out, state_dir=state)["runs"]
    assert run["state"] == "done" and run["output"] == str(out)
    assert run["id"].startswith("merged-2")


def test_it_is_one_file_whatever_its_size_and_a_note_says_so(
    models: Path, out: Path, state: Path, tmp_path: Path
) -> None:
    config = tmp_path / "recipe.yaml"
    config.write_text(HALF)
    with working_in(models):
        shown = resumerge.plan(config, out, state_dir=state, shard_size="10kB")
        silent = resumerge.plan(config, out, state_dir=state)
        Session(Options(state_dir=state, shard_size=10_000)).run(config, out)
    assert inside(out) == ["merged.safetensors", "theirs.safetensors"]
    note = "shard_size is ignored: the output is one file, as a.safetensors is"
    assert note in shown["notes"] and note not in silent["notes"]
    assert (shown["shards"], shown["problems"]) == (1, [])


def test_it_may_come_from_an_adapted_file_or_a_stage(
    models: Path, out: Path, state: Path, tmp_path: Path
) -> None:
    factors = {f"blocks.3.lora_{k}.weight": torch.ones(n) for k, n in SIDES.items()}
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text(ADAPTER)
    save_file({f"base_model.model.{k}": t for k, t in factors.items()}, tmp_path / "adapter" / FILE)
    adapted = HALF.replace("a.safetensors", f"a.safetensors+{tmp_path / 'adapter'}")
    recipe = f"name: first\n{adapted}---\n{THIRD.replace('a.safetensors', 'first')}"
    merge(models, recipe, out, state_dir=state)
    a, b = tensors_of(models)["blocks.3.weight"], torch.load(models / "b.ckpt")["state_dict"]
    first = (a + 2 + b["blocks.3.weight"]) / 2
    expected = (first * 0.25 + b["blocks.3.weight"] * 0.5) / 0.75
    torch.testing.assert_close(load_file(out)["blocks.3.weight"], expected)


@pytest.mark.parametrize(
    ("name", "recipe", "what"),
    [
        ("x.ckpt", HALF, "Weights are written as safetensors"),
        (
            "x.safetensors",
            "merge_method: linear\nparameters: {weight: 1}\n"
            "models: [{model: math}, {model: code}]\n",
            "The output is a folder, and this is the name of a weight file",
        ),
    ],
    ids=["another format", "models in folders"],
)
def test_what_cannot_be_one_file_is_refused(
    models: Path, tmp_path: Path, name: str, recipe: str, what: str
) -> None:
    assert problems(models, recipe, tmp_path / name) == [what]
    assert not (tmp_path / name).exists()


def test_a_file_of_the_users_is_never_overwritten(models: Path, out: Path, state: Path) -> None:
    """A file that exists before is refused; one that appears later gets a backup name."""
    out.write_bytes(b"mine")
    assert problems(models, HALF, out, state_dir=state) == ["The output exists already"]
    assert problems(models, HALF, out, state_dir=state, restart=True) == [
        "The output exists already"
    ]
    assert out.read_bytes() == b"mine"
    out.unlink()
    (out.parent / "merged.safetensors.yaml").unlink()
    interrupted(models, out, state)
    out.write_bytes(b"mine")
    with working_in(models):
        Session(Options(state_dir=state)).resume(str(out))
    assert inside(out) == ["merged.safetensors", "merged.safetensors.kept", "theirs.safetensors"]
    assert (out.parent / "merged.safetensors.kept").read_bytes() == b"mine"
    assert resumerge.verify(out, state_dir=state).intact


def test_what_another_state_folder_knows_of_is_refused(
    models: Path, out: Path, state: Path, tmp_path: Path
) -> None:
    interrupted(models, out, state)
    with pytest.raises(InputError, match="--state-dir"):
        merge(models, HALF, out, state_dir=tmp_path / "another")
    (out.parent / "merged.safetensors.yaml").unlink()
    assert inside(out) == ["merged.safetensors.partial", "theirs.safetensors"]


def test_damage_is_found_and_mended(models: Path, out: Path, state: Path) -> None:
    merge(models, HALF, out, state_dir=state)
    whole = out.read_bytes()
    out.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    found = resumerge.verify(out, state_dir=state)
    assert list(found.damaged.values()) == ["block 0 differs in merged.safetensors"]
    with working_in(models):
        Session(Options(state_dir=state)).resume()
    assert out.read_bytes() == whole
    out.unlink()
    with working_in(models):
        Session(Options(state_dir=state)).resume()
    assert out.read_bytes() == whole


def test_starting_over_replaces_what_the_run_wrote_and_not_what_was_edited(
    models: Path, out: Path, state: Path
) -> None:
    interrupted(models, out, state)
    merge(models, THIRD, out, state_dir=state, restart=True)
    third = out.read_bytes()
    merge(models, HALF, out, state_dir=state, restart=True)
    assert out.read_bytes() != third
    assert len(RunStore(state).runs()) == 1
    out.write_bytes(b"mine")
    assert problems(models, THIRD, out, state_dir=state, restart=True) == [
        "The output exists already"
    ]
    assert out.read_bytes() == b"mine"


def test_cleaning_removes_an_unfinished_file_alone(models: Path, out: Path, state: Path) -> None:
    interrupted(models, out, state)
    [run] = old_runs(RunStore(state), [str(out)])
    assert run.unfinished == {"merged.safetensors.partial"}
    remove_run(run, Storage())
    assert inside(out) == ["theirs.safetensors"]
    merge(models, HALF, out, state_dir=state)
    [run] = old_runs(RunStore(state), [str(out)])
    remove_run(run, Storage())
    assert out.is_file() and not RunStore(state).runs()


def test_a_run_whose_file_another_state_folder_s_run_finished_leaves_it(
    models: Path, out: Path, state: Path, tmp_path: Path
) -> None:
    interrupted(models, out, state)
    (out.parent / "merged.safetensors.partial").unlink()
    merge(models, HALF, out, state_dir=tmp_path / "another")
    [run] = old_runs(RunStore(state), [str(out)])
    assert run.unfinished == set()
    remove_run(run, Storage())
    assert out.is_file()


def test_runs_write_to_several_files_of_one_folder_at_the_same_time(
    models: Path, out: Path, tmp_path: Path
) -> None:
    """Four runs at once, with ledgers in two state folders, do not disturb each other."""
    shares = ("0.1", "0.2", "0.3", "0.4")
    started = []
    for number, share in enumerate(shares):
        recipe = tmp_path / f"{share}.yaml"
        recipe.write_text(RECIPE.replace("SHARE", share))
        words = ["run", str(recipe), str(out.with_name(f"{share}.safetensors"))]
        command = [sys.executable, "-m", "resumerge", *words, "--threads", "1"]
        env = {**os.environ, "RESUMERGE_STATE_DIR": str(tmp_path / f"state-{number % 2}")}
        started.append(subprocess.Popen(command, cwd=models, env=env, stderr=subprocess.PIPE))
    for process in started:
        _, err = process.communicate()
        assert process.returncode == 0, err.decode()
    names = [f"{share}.safetensors" for share in shares]
    assert inside(out) == [*names, "theirs.safetensors"]
    for share, name in zip(shares, names):
        alone = merge(models, RECIPE.replace("SHARE", share), tmp_path / f"alone-{share}")
        assert (out.parent / name).read_bytes() == (alone / "model.safetensors").read_bytes()
    runs = [run for k in range(2) for run in RunStore(tmp_path / f"state-{k}").runs()]
    events = [row for run in runs for row in query(run / LEDGER_FILE, "SELECT kind FROM events")]
    assert {"kind": "file_set_aside"} not in events
