"""Promise: a finished mirror that lost something is never said to be whole, and can be mended."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from finished_runs import Bed
from ledger_rows import change
from machines import files_of
from made_up_leases import ELSEWHERE, SECONDS
from waiting import wait_until

import resumerge
from resumerge.cli.main import app
from resumerge.engine.mirror_session.reconcile import Reconciler
from resumerge.engine.mirror_session.session import MirrorSession
from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import InputError, Resumable
from resumerge.ledger import Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.mirror.names import lease_name
from resumerge.options import Options
from resumerge.storage import Storage


def shard_of(folder: Path) -> Path:
    return min(folder.glob("*.safetensors"))


def flip(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


HARM: dict[str, Callable[[Path], object]] = {
    "all": shutil.rmtree,
    "a shard": lambda mirror: shard_of(mirror).unlink(),
    "the end of a shard": lambda mirror: os.truncate(shard_of(mirror), 5),
    "config.json": lambda mirror: (mirror / "config.json").unlink(),
    "done.json": lambda mirror: (mirror / ".resumerge" / "done.json").unlink(),
}


@pytest.mark.parametrize("what", HARM)
def test_the_run_brings_again_what_is_lacking(bed: Bed, what: str) -> None:
    before = files_of(bed.mirror)
    again = bed.run()
    assert again.already_done
    HARM[what](bed.mirror)
    again = bed.run()
    assert not again.already_done
    assert "mirror_lacks" in bed.events()
    assert files_of(bed.mirror) == before
    assert (bed.mirror / ".resumerge" / "done.json").exists()
    assert bed.run().already_done


@pytest.mark.parametrize("what", [what for what in HARM if what != "all"])
def test_resume_that_names_no_mirror_does_so_as_well(bed: Bed, what: str) -> None:
    before = files_of(bed.mirror)
    HARM[what](bed.mirror)
    assert not bed.resume(bed.out).already_done
    assert files_of(bed.mirror) == before


def test_a_mirror_that_is_gone_is_not_begun_anew_unless_it_is_named(bed: Bed) -> None:
    shutil.rmtree(bed.mirror)
    with pytest.raises(Resumable, match="mount it"):
        bed.resume(bed.out)
    assert not bed.mirror.exists()


def test_a_drive_that_is_not_mounted(bed: Bed) -> None:
    drive = bed.mirror.parent / "drive"
    drive.mkdir()
    bed.run(mirror=str(drive / "mirror"))
    model = files_of(bed.out)
    drive.rename(drive.with_name("elsewhere"))
    for go_on in (lambda: bed.resume(bed.out), lambda: bed.run(mirror=str(drive / "mirror"))):
        with pytest.raises(Resumable, match="Mount the drive"):
            go_on()
    assert files_of(bed.out) == model
    drive.with_name("elsewhere").rename(drive)
    assert bed.resume(bed.out).already_done


def test_an_edited_card_hinders_nobody(bed: Bed, tmp_path: Path) -> None:
    (bed.mirror / "README.md").write_text("my own words")
    before = files_of(bed.mirror)
    assert bed.run().already_done
    assert resumerge.verify(bed.mirror, state_dir=bed.state).intact
    bed.forget()
    assert bed.resume(bed.mirror).already_done
    assert bed.run().already_done
    for _ in range(2):
        bed.resume(bed.mirror, bring_back=True, output=tmp_path / "here")
        assert files_of(tmp_path / "here") == before
    assert files_of(bed.mirror) == before


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("what", ["all but the card", *(w for w in HARM if "json" not in w)])
def test_starting_over_where_it_is_not_whole_keeps_what_was_edited(
    bed: Bed, what: str, known: bool
) -> None:
    before = files_of(bed.mirror)
    HARM.get(what, lambda _: None)(bed.mirror)
    if what != "all":
        (bed.mirror / "README.md").write_text("my own words")
    if not known:
        bed.forget()
    assert not bed.run(restart=True).already_done
    after = files_of(bed.mirror)
    kept = {name: after.pop(name) for name in list(after) if ".kept" in name}
    assert after == before
    assert kept.get("README.md.kept") == (None if what == "all" else b"my own words")
    assert bed.run().already_done


@pytest.mark.parametrize("restart", [True, False])
def test_an_edited_card_is_renamed_where_a_shard_is_brought_again(bed: Bed, restart: bool) -> None:
    card = bed.mirror / "README.md"
    card.write_text("my own words")
    number = card.stat().st_ino
    shard_of(bed.mirror).unlink()
    bed.run(restart=restart)
    kept = bed.mirror / "README.md.kept"
    assert kept.read_text() == "my own words"
    assert kept.stat().st_ino == number, "it was copied, and not renamed"
    assert bed.run().already_done


def test_a_folder_that_fails_once_a_file_has_its_new_name(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bed.mirror / "README.md").write_text("my own words")
    shard_of(bed.mirror).unlink()
    sync, failed = Storage.sync_folder, []

    def fail_once(storage: Storage, folder: Path) -> None:
        if not failed and (bed.mirror / "README.md.kept").exists():
            failed.append(folder)
            raise OSError(errno.EIO, "for a moment")
        sync(storage, folder)

    monkeypatch.setattr(Storage, "sync_folder", fail_once)
    bed.run()
    assert failed == [bed.mirror]
    assert (bed.mirror / "README.md.kept").read_text() == "my own words"


@pytest.mark.parametrize("here", [True, False])
@pytest.mark.parametrize("by", ["mirror", "output"])
def test_what_verify_found_damaged_is_brought_again(bed: Bed, here: bool, by: str) -> None:
    before, shard = files_of(bed.mirror), shard_of(bed.mirror)
    flip(shard)
    if not here:
        (bed.out / shard.name).unlink()
    state = ["--state-dir", str(bed.state)]
    found = CliRunner().invoke(app, ["verify", str(bed.mirror), *state])
    assert found.exit_code == 75
    assert "resumerge resume" in found.stderr
    assert not bed.resume(bed.mirror if by == "mirror" else bed.out).already_done
    assert files_of(bed.mirror) == before
    assert resumerge.verify(bed.mirror, state_dir=bed.state).intact
    assert bed.resume(bed.mirror).already_done


def test_resume_of_a_mirror_that_lacks_a_shard_brings_it_where_the_run_is_known(bed: Bed) -> None:
    before = files_of(bed.mirror)
    shard_of(bed.mirror).unlink()
    assert not bed.resume(bed.mirror).already_done
    assert files_of(bed.mirror) == before


@pytest.mark.parametrize("harm", [flip, Path.unlink])
def test_where_the_run_is_not_known_verify_prints_a_command_that_works(
    bed: Bed, harm: Callable[[Path], None]
) -> None:
    before = files_of(bed.mirror)
    harm(shard_of(bed.mirror))
    bed.forget()
    found = CliRunner().invoke(app, ["verify", str(bed.mirror), "--state-dir", str(bed.state)])
    assert found.exit_code == 75
    assert "computes everything again" in " ".join(found.stderr.split())
    line = shlex.split(found.stderr.strip().splitlines()[-1])
    assert line == ["resumerge", "run", "RECIPE", "OUT", "--mirror", str(bed.mirror), "--restart"]
    bed.run(restart=True)
    assert files_of(bed.mirror) == before


def test_without_the_run_and_a_shard_it_says_what_to_do(bed: Bed) -> None:
    shard_of(bed.mirror).unlink()
    bed.forget()
    for go_on in (lambda: bed.resume(bed.mirror), bed.run):
        with pytest.raises(InputError, match=f"--mirror {bed.mirror} --restart"):
            go_on()


@pytest.mark.parametrize("harm", [flip, None])
def test_what_this_machine_lacks_of_a_finished_model_is_compared_there(
    bed: Bed, harm: Callable[[Path], None] | None
) -> None:
    """This machine has lost a shard, so that the mirror's copy of it is read and compared."""
    before, name = files_of(bed.mirror), shard_of(bed.mirror).name
    (folder,) = RunStore(bed.state).runs()
    with closing(Ledger(folder / "ledger.db")) as ledger:
        ledger.units.forget([unit["number"] for unit in ledger.units.all(0)], "lost")
        ledger.set_state("interrupted")
    (bed.out / name).unlink()
    if harm is not None:
        harm(bed.mirror / name)
    assert bed.resume(bed.out).already_done is (harm is None)
    assert files_of(bed.mirror) == before
    assert (bed.out / name).exists() is (harm is not None)
    assert resumerge.verify(bed.mirror, state_dir=bed.state).intact


@pytest.mark.parametrize("harmed", [True, False])
def test_a_mirror_is_not_said_to_be_whole_while_what_is_damaged_is_brought_again(
    bed: Bed, harmed: bool
) -> None:
    """Another machine would take a mirror with a manifest for finished."""
    if harmed:
        flip(shard_of(bed.mirror))
        assert resumerge.verify(bed.mirror, state_dir=bed.state).marked
    (folder,) = RunStore(bed.state).runs()
    session = MirrorSession(str(bed.mirror), Options(), Reporter(), StopRequest())
    with closing(Ledger(folder / "ledger.db")) as ledger:
        Reconciler(ledger, bed.out, session, Storage()).reconcile(may_be_empty=False)
    session.release()
    assert (bed.mirror / ".resumerge" / "done.json").exists() is not harmed


def test_who_lost_the_lease_does_not_open_a_finished_mirror_again(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine that has the lease may have finished the mirror meanwhile."""
    shard_of(bed.mirror).unlink()
    before = (bed.mirror / ".resumerge" / "done.json").read_bytes()
    monkeypatch.setenv("RESUMERGE_LEASE_SECONDS", str(SECONDS))
    (folder,) = RunStore(bed.state).runs()
    session = MirrorSession(str(bed.mirror), Options(), Reporter(), StopRequest())
    lease = session.acquire_lease(folder.name)
    session.store.put({lease_name(lease.token + 1): ELSEWHERE.as_bytes()})
    wait_until(lambda: lease.is_lost)
    with (
        closing(Ledger(folder / "ledger.db")) as ledger,
        pytest.raises(Resumable, match="Another machine has taken over"),
    ):
        Reconciler(ledger, bed.out, session, Storage()).reconcile(may_be_empty=False)
    session.release()
    assert (bed.mirror / ".resumerge" / "done.json").read_bytes() == before


def test_what_another_machine_finished_and_somebody_harmed_is_mended_by_one_that_began_it(
    bed: Bed,
) -> None:
    """The machine that began the run has no companions yet, and finds them in the mirror."""
    before, (folder,) = files_of(bed.mirror), RunStore(bed.state).runs()
    with closing(Ledger(folder / "ledger.db")) as ledger:
        for name in ledger.companions.checksums():
            (bed.out / name).unlink()
            ledger.mirrored.forget(name)
        change(ledger.path, "DELETE FROM companions")
        ledger.set_state("interrupted")
    shard_of(bed.mirror).unlink()
    assert not bed.resume(bed.out).already_done
    assert files_of(bed.mirror) == files_of(bed.out) == before
