"""Promise: what cannot be a mirror is refused at once, with what to do, and nothing is written; and
a command that stops short says all that is needed to go on."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from made_up_mirrors import RECIPE, put
from merging import merge, working_in
from small_disks import mounted

import resumerge
from resumerge.engine.lifecycle.session import Session
from resumerge.errors import InputError, Resumable
from resumerge.ledger import now
from resumerge.mirror.lease_record import LeaseRecord
from resumerge.mirror.names import lease_name
from resumerge.mirror.stores.registry import open_store
from resumerge.options import Options
from resumerge.ui.text.commands import resume_command

Run = Callable[..., None]


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Iterator[Run]:
    """Yield a function that runs the recipe, and check that a refusal leaves nothing behind."""
    config = tmp_path / "recipe.yaml"
    config.write_text(RECIPE)
    (tmp_path / "file").write_text("mine")

    def start(**options: object) -> None:
        options = {"state_dir": tmp_path / "state", **options}
        Session(Options(shard_size=8000, **options)).run(config, tmp_path / "out")  # type: ignore[arg-type]

    with working_in(made / "models"):
        yield start
    assert (tmp_path / "file").read_text() == "mine"
    assert not (tmp_path / "out").exists()
    assert not list(made.glob("models/*/.resumerge"))


@pytest.mark.parametrize("mirror", ["abfs://box/x", "ftp://server/x", "file:///tmp/x"])
def test_addresses_of_other_storage(run: Run, mirror: str) -> None:
    with pytest.raises(InputError, match="or hf://org/name") as refused:
        run(mirror=mirror)
    assert mirror in str(refused.value)


@pytest.mark.parametrize(
    "mirror",
    ["S3://AKIA:hunter2@bucket/x", "s3://AKIA:hunter2/+@bucket/x", "az://box/m?sv=1&sig=hunter2"],
)
def test_a_password_is_not_repeated(mirror: str) -> None:
    with pytest.raises(InputError) as refused:
        open_store(mirror)
    told = str(vars(refused.value)) + str(refused.value)
    assert "hunter2" not in told and "…" in told


@pytest.mark.parametrize("mirror", ["S3://bucket/x", "HF://org/name"])
def test_an_address_in_capitals(run: Run, mirror: str) -> None:
    with pytest.raises(InputError, match=f"write {mirror[:2].lower()}:// in small letters"):
        run(mirror=mirror)


@pytest.mark.parametrize("name", ["file", "nodrive/mirror", "file/mirror", "/dev/null"])
def test_what_is_no_folder(run: Run, tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="a folder whose parent exists") as refused:
        run(mirror=str(tmp_path / name))
    assert str(tmp_path / name) in str(refused.value)
    assert not (tmp_path / "state").exists()


def test_a_source(run: Run) -> None:
    with pytest.raises(InputError, match="The mirror is inside a source model"):
        run(mirror="math/mirror")
    with pytest.raises(InputError, match="contains other files"):
        run(mirror="math")


def test_where_the_state_is(run: Run, tmp_path: Path) -> None:
    for state in ("mirror", "mirror/state"):
        with pytest.raises(InputError, match="The state folder is inside the mirror"):
            run(mirror=str(tmp_path / "mirror"), state_dir=tmp_path / state)
    assert not (tmp_path / "mirror").exists()


@pytest.mark.parametrize("option", ["mirror_then_delete", "mirror_rate", "take_over", "bring_back"])
def test_options_without_a_mirror(run: Run, made: Path, option: str) -> None:
    word = "--" + option.replace("_", "-")
    given = {option: 1000 if option == "mirror_rate" else True}
    with pytest.raises(InputError, match=word):
        run(**given)
    with pytest.raises(InputError, match=word):
        Session(Options(state_dir=made / "merged.state", **given)).resume()  # type: ignore[arg-type]


def test_a_drive_that_was_there(made: Path, tmp_path: Path) -> None:
    """The run can be resumed when the drive is mounted, so that it is not refused."""
    drive = tmp_path / "drive"
    drive.mkdir()
    out = merge(
        made / "models", RECIPE, tmp_path / "out", shard_size=8000,
        mirror=str(drive / "m"), mirror_then_delete=True,
    )  # fmt: skip
    drive.rename(tmp_path / "unplugged")
    with pytest.raises(Resumable, match="Mount the drive, then resume"):
        Session(Options(state_dir=tmp_path / "out.state")).resume(str(out))


def test_the_command_to_go_on_names_a_mirror_that_the_run_lacks(made: Path) -> None:
    state = made / "merged.state"
    (run,) = [path.name for path in state.iterdir() if path.is_dir()]
    options = Options(
        state_dir=state,
        mirror="some mirror",
        mirror_then_delete=True,
        mirror_rate=5000,
        mirror_wait=2.0,
    )
    words = shlex.split(resume_command(run, state, options))
    assert words[5:] == [
        *("--mirror", str(Path.cwd() / "some mirror")),
        *("--mirror-then-delete", "--mirror-rate", "5000", "--mirror-wait", "2"),
    ]
    assert shlex.split(resume_command(run, state, Options(state_dir=state))) == words[:5]


def test_not_one_that_it_has(made: Path, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    merge(made / "models", RECIPE, tmp_path / "out", shard_size=8000, mirror=str(mirror))
    state = tmp_path / "out.state"
    (run,) = [path.name for path in state.iterdir() if path.is_dir()]
    command = resume_command(
        run, state, Options(state_dir=state, mirror=str(mirror), bring_back=True)
    )
    assert shlex.split(command)[5:] == ["--bring-back"]


def test_bringing_back_to_a_small_disk(made: Path, tmp_path: Path) -> None:
    mirror, disk = tmp_path / "mirror", tmp_path / "disk"
    merge(
        made / "models", RECIPE, tmp_path / "out", shard_size=8000,
        mirror=str(mirror), mirror_then_delete=True,
    )  # fmt: skip
    disk.mkdir()
    with mounted(disk, 32768):
        options = Options(state_dir=tmp_path / "other", bring_back=True, output=disk / "model")
        with pytest.raises(Resumable, match="too small") as stopped:
            Session(options).resume(str(mirror))
        assert stopped.value.reason == "disk_full"
        assert str(disk) in str(stopped.value)
        assert not list(disk.rglob("*.*"))


def test_a_disk_that_gets_full_is_not_the_mirror(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other programs may fill the disk between the check of its free space and the last byte."""
    mirror, disk = tmp_path / "mirror", tmp_path / "disk"
    merge(
        made / "models", RECIPE, tmp_path / "out", shard_size=8000,
        mirror=str(mirror), mirror_then_delete=True,
    )  # fmt: skip
    monkeypatch.setattr("resumerge.engine.lifecycle.fetch_model.free_bytes", lambda path: 1 << 40)
    disk.mkdir()
    with mounted(disk, 32768):
        options = Options(state_dir=tmp_path / "other", bring_back=True, output=disk / "model")
        with pytest.raises(Resumable, match="The disk is full"):
            Session(options).resume(str(mirror))
        assert not list(disk.rglob("*.part*"))


def test_a_live_run_has_an_attempt_that_was_not_killed(made: Path, there: Path) -> None:
    put(made, there, "UPDATE attempts SET ended = NULL, outcome = NULL")
    record = LeaseRecord(
        owner="other", host="far", pid=7, boot_id="b", at=now(), seconds=60.0, token=2
    )
    [run] = resumerge.status(there)["runs"]
    assert [a["outcome"] for a in run["attempts"]] == ["killed"]
    (there / lease_name(2)).write_bytes(record.as_bytes())
    [run] = resumerge.status(there)["runs"]
    assert run["state"] == "running"
    assert [a["outcome"] for a in run["attempts"]] == [None]
