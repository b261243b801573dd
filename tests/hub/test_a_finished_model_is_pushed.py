"""Promise: a finished model gets to the Hub as a whole, and no byte of it twice."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hub_models import shard
from loopback_hub import Hub
from merges import COPIES, Place, layered
from safetensors.torch import save_file
from waiting import wait_until

import resumerge
from resumerge.errors import InputError

REPO = "org/pushed"


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a folder with a run that is done: `out`, in four shards, and `state`."""
    folder = tmp_path_factory.mktemp("merged")
    server = Hub(folder / "home")
    server.start()
    for seed, name in enumerate(("org/math", "org/code")):
        server.commit(name, layered(seed))
    place = Place(server, folder / "place", COPIES)
    place.call("run", "merge.yaml", "out", "--shard-size", "1.7MB")
    server.stop()
    yield place.folder


@pytest.fixture
def place(hub: Hub, merged: Path, tmp_path: Path) -> Iterator[Place]:
    """Yield a place that reaches the Hub; restore the merged folder after the test."""
    for name in ("out", "state"):
        shutil.copytree(merged / name, tmp_path / name)
    yield Place(hub, tmp_path / "place", COPIES)
    for name in ("out", "state"):
        shutil.rmtree(merged / name)
        shutil.copytree(tmp_path / name, merged / name)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def push(place: Place, merged: Path, *more: object, expect: int = 0) -> str:
    """Run the command, and return what it prints on stdout or, if it fails, on stderr."""
    words = ("push", merged / "out", REPO, "--state-dir", merged / "state", *more)
    done = place.call(*words, expect=expect)
    return done.stderr if expect else done.stdout


def test_all_files_come_in_one_commit_and_only_once(hub: Hub, place: Place, merged: Path) -> None:
    made = files(merged / "out")
    told = json.loads(push(place, merged, "--json"))
    assert hub.contents(REPO) == made
    assert {"README.md", "config.json", "mergekit_config.yml"} < made.keys()
    assert hub.repos[REPO].private
    assert told == {
        "repo": f"hf://{REPO}",
        "files": sorted(made, key=lambda name: (len(made[name]), name)),
        "bytes": sum(map(len, made.values())),
        "sent": told["sent"],
    }
    assert told["sent"] >= sum(len(made[name]) for name in made if name.endswith(".safetensors"))
    commits = len(hub.repos[REPO].commits)
    assert commits == 2  # the first one is that of every new repo
    again = json.loads(push(place, merged, "--json"))
    assert again["sent"] == 0
    assert len(hub.repos[REPO].commits) == commits


def test_branch_message_and_readers_are_those_asked_for(
    hub: Hub, place: Place, merged: Path
) -> None:
    push(place, merged, "--public", "--branch", "v2", "--message", "The second")
    repo = hub.repos[REPO]
    assert not repo.private
    assert {name: blob.data for name, blob in repo.files("v2").items()}.keys() >= files(
        merged / "out"
    ).keys()
    assert set(repo.files("main")) == {".gitattributes"}
    assert "The second" in hub.messages
    commits = len(repo.commits)
    push(place, merged, "--branch", "v2")
    assert len(repo.commits) == commits, "it is all there"
    with pytest.raises(InputError, match="Only a repo of the Hub has branches and commit"):
        resumerge.push(merged / "out", "s3://bucket/x", branch="v2", state_dir=merged / "state")


def test_what_was_changed_since_is_sent(hub: Hub, place: Place, merged: Path) -> None:
    push(place, merged)
    (merged / "out" / "README.md").write_text("# My model\n")
    (merged / "out" / ".cache").mkdir()
    (merged / "out" / ".cache" / "note").write_text("mine")
    assert "were already there" in push(place, merged)
    assert hub.contents(REPO)["README.md"] == b"# My model\n"
    assert hub.contents(REPO).keys() == files(merged / "out").keys() - {".cache/note"}


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_what_was_sent_before_an_interruption_is_not_sent_again(
    hub: Hub, place: Place, merged: Path, signum: int, code: int
) -> None:
    hub.received = 0
    total = sum(map(len, files(merged / "out").values()))
    words = ("push", merged / "out", REPO, "--state-dir", merged / "state")
    hub.allowance.give(total // 2)
    process = place.start(*words)
    wait_until(hub.allowance.is_spent, process)
    process.send_signal(signum)
    _, stderr = process.communicate()
    assert process.returncode == code, stderr
    if code == 130:
        assert stderr.splitlines()[-1].startswith(f"resumerge push {merged}/out {REPO} ")
    before = hub.contents(REPO) if REPO in hub.repos else {}
    assert not any(name.endswith(".safetensors") for name in before), "no half of a model is there"
    hub.allowance.give(None)
    push(place, merged)
    assert hub.contents(REPO) == files(merged / "out")
    largest = max(len(data) for data in files(merged / "out").values())
    assert hub.received < total + largest


def test_a_hub_that_is_away_is_told_with_the_command_to_repeat(
    hub: Hub, place: Place, merged: Path
) -> None:
    hub.gone = True
    stderr = push(place, merged, expect=75)
    assert "The repo at hf://org/pushed cannot be reached" in stderr
    assert stderr.splitlines()[-1].startswith("resumerge push ")
    hub.gone = False
    push(place, merged)
    assert hub.contents(REPO) == files(merged / "out")


def test_nobody_may_write_there(hub: Hub, place: Place, merged: Path) -> None:
    hub.tokens = {"hf_reader": "read"}
    hub.commit(REPO, {"README.md": b"theirs"})
    place.env["HF_TOKEN"] = "hf_reader"
    stderr = push(place, merged, expect=2)
    assert "The repo cannot be used" in stderr
    assert "mirror" not in stderr
    assert hub.contents(REPO) == {"README.md": b"theirs"}


def test_a_damaged_model_is_not_sent(hub: Hub, place: Place, merged: Path) -> None:
    shard = min((merged / "out").glob("*.safetensors"))
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    assert "The model is damaged" in push(place, merged, expect=2)
    assert REPO not in hub.repos


@pytest.mark.parametrize(
    ("name", "problem"),
    [("model.safetensors.partial", "unfinished files"), (None, "no weights")],
)
def test_what_is_no_finished_model_is_refused(
    hub: Hub, place: Place, merged: Path, name: str | None, problem: str
) -> None:
    if name is None:
        for shard in (merged / "out").glob("*.safetensors"):
            shard.unlink()
    else:
        (merged / "out" / name).write_bytes(b"half")
    assert problem in push(place, merged, expect=2)
    assert REPO not in hub.repos


def test_a_run_that_is_not_done_says_how_to_finish_it(hub: Hub, tmp_path: Path) -> None:
    for seed, name in enumerate(("org/math", "org/code")):
        hub.commit(name, layered(seed, numel=2_000_000))
    place = Place(hub, tmp_path, COPIES)
    place.call("plan", "merge.yaml")
    hub.fail(shard(8, 8), stall_after=1000, times=None)
    process = place.start("run", "merge.yaml", "out")
    wait_until(place.committed, process)
    process.kill()
    process.wait()
    for partial in (tmp_path / "out").glob("*.partial"):
        partial.rename(partial.with_suffix(""))
    stderr = place.call("push", "out", REPO, expect=2).stderr
    (run,) = tmp_path.glob("state/out-*")
    assert f"resumerge resume {run.name}" in stderr
    assert REPO not in hub.repos


def test_the_mirror_of_a_run_is_left_alone(hub: Hub, place: Place, merged: Path) -> None:
    there = {".resumerge/lease-000001.json": b"{}"}
    hub.commit(REPO, there)
    assert "is the mirror of a run" in push(place, merged, expect=2)
    assert hub.contents(REPO) == there


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin.index.json"])
def test_no_other_model_is_left_beside_it(hub: Hub, place: Place, merged: Path, name: str) -> None:
    hub.commit(REPO, {name: b"of another model", "train.csv": b"theirs"})
    stderr = push(place, merged, expect=2)
    assert "The repo contains another model" in stderr and name in stderr
    assert hub.contents(REPO).keys() == {name, "train.csv"}


def test_a_model_that_was_copied_by_halves_is_refused(
    hub: Hub, place: Place, merged: Path, tmp_path: Path
) -> None:
    shard = min((merged / "out").glob("*.safetensors"))
    shard.unlink()
    with pytest.raises(InputError, match=f"missing: {shard.name}"):
        resumerge.push(merged / "out", REPO, state_dir=tmp_path)
    assert REPO not in hub.repos


def test_in_python_and_without_a_run(hub: Hub, place: Place, merged: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no folder"):
        resumerge.push(tmp_path / "nowhere", REPO)
    told = resumerge.push(merged / "out", REPO, state_dir=tmp_path)
    assert told["repo"] == f"hf://{REPO}"
    assert hub.contents(REPO) == files(merged / "out")


def test_a_model_of_one_file_is_pushed_as_one_file(hub: Hub, place: Place) -> None:
    """The repo may have other files of that kind."""
    folder = place.folder
    for seed, name in enumerate("ab"):
        tensors = {"block.weight": torch.full((4, 4), float(seed))}
        save_file(tensors, folder / f"{name}.safetensors")
    (folder / "files.yaml").write_text(
        "merge_method: linear\nparameters: {weight: 1}\n"
        "models: [{model: a.safetensors}, {model: b.safetensors}]\n"
    )
    words = ("push", "out/merged.safetensors", REPO)
    assert "There is no model to upload" in place.call(*words, expect=2).stderr
    place.call("run", "files.yaml", "out/merged.safetensors")
    (folder / "out" / "other.safetensors").write_bytes(b"other")
    hub.commit(REPO, {"theirs.safetensors": b"theirs"})
    place.call(*words)
    merged = folder / "out" / "merged.safetensors"
    pushed = {"merged.safetensors": merged.read_bytes()}
    assert hub.contents(REPO) == {"theirs.safetensors": b"theirs", **pushed}
    merged.rename(merged.with_name("merged.safetensors.partial"))
    assert "The model is not finished" in place.call(*words, expect=2).stderr


def test_the_address_of_a_page_names_a_repo_and_a_word_lacks_its_account(
    hub: Hub, place: Place, merged: Path
) -> None:
    words = ("push", merged / "out", "https://huggingface.co/org/page")
    place.call(*words, "--state-dir", merged / "state")
    assert "org/page" in hub.repos
    with pytest.raises(InputError, match="hf://ACCOUNT/page"):
        resumerge.push(merged / "out", "page", state_dir=merged / "state")
