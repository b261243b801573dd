"""Promise: the command that resumes a run does so from any folder, with what the ledger lacks."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger_rows import change
from made_up_ledgers import make_ledger

from resumerge.cli import resume, run
from resumerge.options import Options, declared
from resumerge.ui.text.commands import (
    command_of,
    has_mirror,
    is_gone,
    mirror_command,
    remake_command,
    repair_command,
    repeat_command,
    resume_call,
    resume_command,
    start_over_command,
)

ATTEMPT = {"started": 0.0, "ended": 1.0, "outcome": "interrupted"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a working folder in which `state` has one run, without a mirror."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RESUMERGE_STATE_DIR", raising=False)
    make_ledger(tmp_path / "state", [ATTEMPT])
    return tmp_path


def mirrored(home: Path, mirror: str | None) -> Path:
    """Make a run with a mirror, and return its state folder."""
    make_ledger(home / "mirrored", [ATTEMPT], mirror=mirror)
    return home / "mirrored"


def words(line: str) -> list[str]:
    return shlex.split(line)


def parsed(line: str, command: Any = resume.command) -> tuple[str | None, Options]:
    """Return the run and the options that the command line reads from a line."""
    program, name, *rest = words(line)
    assert (program, name) == ("resumerge", command.name)
    context = command.make_context(name, rest)
    names = {option.name for option in declared(name)}
    given = {key: value for key, value in context.params.items() if key in names}
    return context.params.get("run"), Options.of(given)


# Where the run is


def test_it_names_the_run_and_its_ledger_from_any_folder(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledgers = str(home / "state")
    assert words(resume_command("made-up", None)) == [
        "resumerge", "resume", "made-up", "--state-dir", ledgers
    ]  # fmt: skip
    assert words(resume_command("made-up", Path("other")))[-1] == str(home / "other")
    monkeypatch.setenv("RESUMERGE_STATE_DIR", "from the environment")
    assert words(resume_command("made-up", None))[-1] == str(home / "from the environment")
    assert words(resume_command("made-up", Path("other")))[-1] == str(home / "other")


# Its mirror


def test_a_mirror_that_the_ledger_lacks_is_named(home: Path) -> None:
    options = Options(state_dir=home / "state", mirror="drive")
    assert not has_mirror("made-up", options)
    assert words(resume_command("made-up", home / "state", options))[5:] == [
        "--mirror", str(home / "drive")
    ]  # fmt: skip


def test_one_that_it_has_is_not(home: Path) -> None:
    ledgers = mirrored(home, str(home / "drive"))
    options = Options(state_dir=ledgers, mirror="drive")
    assert has_mirror("made-up", options)
    assert words(resume_command("made-up", ledgers, options))[5:] == []


@pytest.mark.parametrize("recorded", ["elsewhere", "hf://org/drive", None])
def test_another_than_it_has_is_named(home: Path, recorded: str | None) -> None:
    """The run would otherwise continue in the mirror that the user has just given up."""
    ledgers = mirrored(home, recorded)
    options = Options(state_dir=ledgers, mirror="hf://org/other/")
    assert not has_mirror("made-up", options)
    line = resume_command("made-up", ledgers, options)
    assert words(line)[5:] == ["--mirror", "hf://org/other"]


def test_without_one_none_is_named(home: Path) -> None:
    ledgers = mirrored(home, "drive")
    options = Options(state_dir=ledgers)
    assert not has_mirror("made-up", options)
    assert words(resume_command("made-up", ledgers, options))[5:] == []


@pytest.mark.parametrize("damage", ["gone", "damaged"])
def test_where_the_ledger_cannot_be_read_it_is_named(home: Path, damage: str) -> None:
    ledgers = mirrored(home, str(home / "drive"))
    ledger = ledgers / "made-up" / "ledger.db"
    ledger.unlink() if damage == "gone" else ledger.write_bytes(b"?" * 5000)
    options = Options(state_dir=ledgers, mirror="drive")
    assert words(resume_command("made-up", ledgers, options))[5:] == [
        "--mirror", str(home / "drive")
    ]  # fmt: skip


# Its other options

SECONDS = st.one_of(
    st.floats(0, 1e7), st.integers(0, 10**9), st.sampled_from([0.1, 1234567, 86400.5, 1e-5, 0])
)


@given(
    mirror_wait=SECONDS,
    mirror_rate=st.integers(1, 10**15),
    then_delete=st.booleans(),
    bring_back=st.booleans(),
    no_recheck=st.booleans(),
    take_over=st.booleans(),
)
def test_whatever_is_repeated_is_read_as_it_was(
    mirror_wait: float,
    mirror_rate: int,
    then_delete: bool,
    bring_back: bool,
    no_recheck: bool,
    take_over: bool,
) -> None:
    options = Options(
        state_dir=Path("/nowhere"),
        mirror="hf://org/name",
        mirror_wait=mirror_wait,
        mirror_rate=mirror_rate,
        mirror_then_delete=(then_delete and not bring_back) or None,
        bring_back=bring_back,
        no_recheck=no_recheck,
        memory=10**9,
        threads=3,
        restart=True,
        take_over=take_over,
        seed=4,
    )
    found, again = parsed(resume_command("a run", Path("/nowhere"), options))
    assert found == "a run"
    expected = replace(options, restart=False, seed=None)
    assert again.mirror_wait == mirror_wait
    assert again == expected, "there is no ledger that keeps any of it"


GIVEN: dict[str, Any] = {
    "memory": 10**9,
    "threads": 3,
    "device": "cuda",
    "shard_size": 10**9,
    "seed": 4,
    "offline": True,
    "trust_sources": True,
    "no_accounts": True,
    "strict": True,
    "no_recheck": True,
    "restart": True,
    "memory_wait": 5.0,
    "evict": True,
    "mirror_then_delete": True,
    "mirror_rate": 10**6,
    "mirror_wait": 7.5,
    "take_over": True,
    "bring_back": True,
    "output": Path("elsewhere"),
    "stall_timeout": 0.0,
    "stream": True,
    "link": True,
    "materialize": "never",
    "ray": "auto",
    "ray_resources": "num_gpus=1",
    "tensor_union": True,
    "tensor_intersection": True,
    "keep": ["a"],
    "intermediate_dir": Path("stages"),
}
AGAIN = {
    "memory": ["--memory", "1000000000"],
    "threads": ["--threads", "3"],
    "device": ["--device", "cuda"],
    "offline": ["--offline"],
    "trust_sources": ["--trust-sources"],
    "no_accounts": ["--no-accounts"],
    "strict": ["--strict"],
    "no_recheck": ["--no-recheck"],
    "memory_wait": ["--memory-wait", "5"],
    "stall_timeout": ["--stall-timeout", "0"],
    "evict": ["--evict"],
    "stream": ["--stream"],
    "link": ["--link"],
    "materialize": ["--materialize", "never"],
    "ray": ["--ray", "auto"],
    "ray_resources": ["--ray-resources", "num_gpus=1"],
    "mirror_then_delete": ["--mirror-then-delete"],
    "mirror_rate": ["--mirror-rate", "1000000"],
    "mirror_wait": ["--mirror-wait", "7.5"],
    "take_over": ["--take-over"],
    "bring_back": ["--bring-back"],
}
"""Every option except those of the plan, the output, and `--restart`, which is used once.

`--take-over` is used once, too: the command omits it as soon as it has the lease.
"""


@pytest.mark.parametrize("name", GIVEN)
def test_only_these_options_are_given_again(home: Path, name: str) -> None:
    options = Options(**{name: GIVEN[name]})
    line = resume_command("made-up", home / "state", options)
    assert words(line)[5:] == AGAIN.get(name, [])


def test_every_option_is_among_them() -> None:
    assert {option.name for option in declared("resume")} - {"state_dir", "mirror"} <= GIVEN.keys()


@pytest.mark.parametrize("name", GIVEN)
def test_what_the_ledger_keeps_is_not(home: Path, name: str) -> None:
    """The ledger has the last value of an option, and a later command uses that value."""
    options = Options(**{name: GIVEN[name]})
    kept = json.dumps(options.kept())
    change(home / "state" / "made-up" / "ledger.db", "UPDATE run SET options = ?", [kept])
    line = resume_command("made-up", home / "state", options)
    in_ledger = name in options.kept() and name in AGAIN
    assert words(line)[5:] == ([] if in_ledger else AGAIN.get(name, []))


def test_the_call_in_python_says_the_same(home: Path) -> None:
    options = Options(state_dir=home / "state", offline=True, threads=3, restart=True)
    call = resume_call("made-up", home / "state", options)
    assert call == (
        f"resumerge.resume('made-up', state_dir={str(home / 'state')!r}, threads=3, offline=True)"
    )


def test_these_options_are_nothing_without_a_mirror() -> None:
    needing = [name for name in GIVEN if Options(**{name: GIVEN[name]}).needing_mirror()]
    assert needing == [
        "mirror_then_delete", "mirror_rate", "mirror_wait", "take_over", "bring_back"
    ]  # fmt: skip
    assert not Options(mirror="drive").needing_mirror()
    assert Options(take_over=True, mirror_wait=0.0).needing_mirror() == [
        "--mirror-wait", "--take-over"
    ]  # fmt: skip


# Other commands


def test_where_there_is_no_run_yet_the_command_is_repeated(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/x/resumerge", "run", "a b.yaml", "out"])
    assert words(repeat_command()) == [
        "resumerge", "run", "a b.yaml", "out", "--chdir", str(home)
    ]  # fmt: skip
    assert sys.argv == ["/x/resumerge", "run", "a b.yaml", "out"]


@pytest.mark.parametrize("said", [["--state-dir", "mine"], ["--state-dir=mine"]])
def test_a_state_folder_that_was_named_stays(
    home: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    monkeypatch.setenv("RESUMERGE_STATE_DIR", "the environment's")
    monkeypatch.setattr(sys, "argv", ["resumerge", "run", "r.yaml", "out", *said])
    assert words(repeat_command())[4:] == [*said, "--chdir", str(home)]
    _, options = parsed(repeat_command(), run.command)
    assert options.state_dir == Path("mine")


def test_that_of_the_environment_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next shell may lack the variable."""
    monkeypatch.setenv("RESUMERGE_STATE_DIR", "the environment's")
    monkeypatch.setattr(sys, "argv", ["resumerge", "run", "--state-directory.yaml", "out"])
    assert words(repeat_command())[4:] == [
        "--state-dir", "the environment's", "--chdir", str(home)
    ]  # fmt: skip


def test_a_run_is_gone_with_its_folder(home: Path) -> None:
    for state_dir in (None, home / "state"):
        assert not is_gone("made-up", state_dir)
        assert is_gone("another", state_dir)
    assert is_gone("made-up", home / "other")


def test_what_a_run_that_is_gone_had_made_is_made_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that began the run is repeated; a command that resumed it has no recipe."""
    monkeypatch.setattr(sys, "argv", ["/x/resumerge", "run", "r.yaml", "out"])
    assert words(start_over_command()) == [
        "resumerge",
        "run",
        "r.yaml",
        "out",
        "--chdir",
        str(home),
    ]
    for other in (["resume", "run"], ["resume"], []):
        monkeypatch.setattr(sys, "argv", ["/x/resumerge", *other])
        assert words(start_over_command()) == ["resumerge", "run", "RECIPE", "OUT"]


def test_a_run_in_a_status_document(home: Path) -> None:
    ledger = str(home / "state" / "made-up" / "ledger.db")
    here = {"id": "made-up", "ledger": ledger, "mirror": None}
    assert command_of(here) == resume_command("made-up", home / "state")
    of_mirror = {"url": "hf://org/name", "here": True}
    assert command_of({**here, "mirror": of_mirror}) == resume_command("made-up", home / "state")
    elsewhere = {**here, "mirror": {**of_mirror, "here": False}}
    assert words(command_of(elsewhere)) == ["resumerge", "resume", "hf://org/name"]


def test_mirrors_and_caches(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert words(mirror_command("/a drive")) == ["resumerge", "resume", "/a drive"]
    assert words(remake_command("/d")) == [
        "resumerge", "run", "RECIPE", "OUT", "--mirror", "/d", "--restart"
    ]  # fmt: skip
    monkeypatch.setenv("RESUMERGE_STATE_DIR", "elsewhere")
    assert words(repair_command("org/name", None)) == [
        "resumerge", "cache", "repair", "org/name", "--state-dir", str(home / "elsewhere")
    ]  # fmt: skip
