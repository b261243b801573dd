"""Promise: a resumed run has the options that it began with, except those that are given anew. Each
of them can be ended."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from commands import DISK_FULL, resumerge

from resumerge.cli.resume import command
from resumerge.errors import InputError
from resumerge.options import MIRROR_WAIT, Kept, Options, are_kept_options, declared

VALUES: dict[str, tuple[Any, Any]] = {
    "memory": (10**9, 2 * 10**9),
    "threads": (3, 1),
    "materialize": ("always", "never"),
    "trust_sources": (False, True),
    "no_accounts": (False, True),
    "link": (False, True),
    "strict": (False, True),
    "evict": (False, True),
    "stream": (False, True),
    "mirror_then_delete": (True, False),
    "mirror_rate": (10**6, 10**7),
    "mirror_wait": (60.0, 0.0),
}
"""Of each option that is inherited, the value at the beginning, and another one that is given."""

ENDED: dict[str, tuple[Any, str]] = {
    "memory": ("auto", "--memory auto"),
    "threads": ("auto", "--threads auto"),
    "materialize": ("auto", "--materialize auto"),
    "evict": (False, "--no-evict"),
    "stream": (False, "--no-stream"),
    "strict": (False, "--no-strict"),
    "mirror_then_delete": (False, "--no-mirror-then-delete"),
    "mirror_rate": ("none", "--mirror-rate none"),
    "mirror_wait": (MIRROR_WAIT, "--mirror-wait 600"),
}
"""What ends each of them, in Python and on the command line."""

OF_THE_BEGINNING = {"trust_sources", "no_accounts", "link"}
"""What a run was not to hash, or to measure, when it began cannot be compared, or told, later; what
was linked stays linked."""


def test_these_are_inherited() -> None:
    kept = (Kept.INHERITED, Kept.BEGUN_WITH)
    assert {option.name for option in declared() if option.kept in kept} == set(VALUES)


@pytest.mark.parametrize("name", VALUES)
def test_what_is_not_given_is_as_it_was_when_the_run_began(name: str) -> None:
    for value in VALUES[name]:
        found = Options(no_recheck=True).inherit({name: value}, None)
        assert found == Options(no_recheck=True, **{name: value})


@pytest.mark.parametrize("name", VALUES)
def test_what_is_given_stays(name: str) -> None:
    began, given = VALUES[name]
    options = Options(**{name: given})
    assert options.inherit({name: began}, None) == options


@pytest.mark.parametrize("began", [{}, dict.fromkeys(VALUES)], ids=["of an old ledger", "null"])
def test_what_a_ledger_does_not_say_is_the_default(began: dict[str, Any]) -> None:
    assert Options().inherit(began, None) == Options()


def test_nothing_else_is_inherited() -> None:
    began = {"shard_size": 5, "seed": 7, "device": "cuda", "offline": True, "restart": True}
    assert Options().inherit(began, None) == Options()


def test_the_mirror_is_the_runs_unless_another_is_given() -> None:
    assert Options().inherit({}, "/drive").mirror == "/drive"
    assert Options(mirror="/other").inherit({}, "/drive").mirror == "/other"
    assert Options(mirror="/other").inherit({}, None).mirror == "/other"


def test_shards_that_are_brought_back_are_not_deleted_as_they_were_before() -> None:
    found = Options(bring_back=True).inherit({"mirror_then_delete": True}, "/drive")
    assert (found.bring_back, found.mirror_then_delete) == (True, False)
    with pytest.raises(InputError, match="cannot be both kept and deleted"):
        Options(bring_back=True, mirror_then_delete=True)


@pytest.mark.parametrize("given", ["evict", "offline"])
def test_a_run_that_streams_may_go_on_with_files_of_this_disk(given: str) -> None:
    assert not Options(**{given: True}).inherit({"stream": True}, None).stream
    assert Options(stream=True).inherit({"evict": True}, None) == Options(stream=True)
    with pytest.raises(InputError, match=f"--stream and --{given} exclude each other"):
        Options(stream=True, **{given: True})


@pytest.mark.parametrize("name", sorted(VALUES.keys() - OF_THE_BEGINNING))
def test_what_is_given_to_one_attempt_holds_for_the_next_ones(name: str) -> None:
    began, given = VALUES[name]
    before = Options(**{name: began}).kept(seed=4)
    second = Options(**{name: given}).inherit(before, None)
    kept = json.loads(json.dumps(second.kept_after_resume(before)))
    assert Options().inherit(kept, None) == second
    assert kept["seed"] == 4, "what the run was planned with"


@pytest.mark.parametrize("given", ["evict", "offline"])
def test_a_run_that_does_not_stream_any_more_does_not_begin_again(given: str) -> None:
    before = Options(stream=True).kept()
    second = Options(**{given: True}).inherit(before, None)
    third = Options().inherit(second.kept_after_resume(before), None)
    assert (third.stream, third.evict, third.offline) == (None, given == "evict" or None, False)


def test_each_of_them_can_be_ended() -> None:
    assert ENDED.keys() == VALUES.keys() - OF_THE_BEGINNING


@pytest.mark.parametrize("name", ENDED)
def test_what_was_given_before_is_ended(name: str) -> None:
    """An ended option stays ended in later attempts; None and absent options end nothing."""
    value, words = ENDED[name]
    context = command.make_context("resume", words.split())
    began = Options(**{name: VALUES[name][0] or True}).kept()
    for given in (Options.read("resume", {name: value}), Options.of(typed(context.params))):
        second = given.inherit(began, None)
        expected = None if isinstance(value, str) and name != "materialize" else value
        assert getattr(second, name) == expected
        kept = json.loads(json.dumps(second.kept_after_resume(began)))
        assert are_kept_options(kept)
        assert Options().inherit(kept, None) == second
        assert given.to_repeat(began) == {name: value}
        assert given.to_repeat(kept) == {}
        [option] = (option for option in declared() if option.name == name)
        assert option.words(value) == words.split()
    assert Options.read("resume", {name: None}).inherit(began, None) == Options(**began)


def typed(params: dict[str, Any]) -> dict[str, Any]:
    names = {option.name for option in declared("resume")}
    return {name: value for name, value in params.items() if name in names}


@pytest.mark.parametrize("end", ["--no-evict --memory auto --threads auto", ""])
def test_a_run_that_is_resumed_on_a_command_line(end: str, place: Path, tmp_path: Path) -> None:
    state = ["--state-dir", tmp_path]
    given = ["--evict", "--memory", "1GB", "--threads", "1"]
    run = ["run", "linear.yaml", tmp_path / "out", *given, *state]
    assert resumerge(*run, cwd=place, before=DISK_FULL).returncode == 75
    resume = ["resume", tmp_path / "out", *end.split(), *state]
    stopped = resumerge(*resume, cwd=place, before=DISK_FULL)
    assert stopped.returncode == 75, stopped.stderr
    assert not end or "-evict" not in stopped.stderr.splitlines()[-1], "the ledger has it"
    [ledger] = tmp_path.glob("*/ledger.db")
    [(options,)] = sqlite3.connect(ledger).execute("SELECT options FROM run")
    kept = [json.loads(options)[name] for name in ("evict", "memory", "threads")]
    assert kept == ([False, None, None] if end else [True, 10**9, 1])


def test_whether_inputs_are_hashed_is_as_it_was_when_the_run_began() -> None:
    before = Options().kept()
    second = Options(trust_sources=True).inherit(before, None)
    assert second.kept_after_resume(before) == before
    assert Options(trust_sources=True).to_repeat(before) == {"trust_sources": True}


def test_what_a_ledger_keeps_is_what_the_next_attempt_inherits() -> None:
    options = Options(memory=10**9, evict=True, mirror_wait=0.0, seed=3, no_recheck=True)
    kept = json.loads(json.dumps(options.kept(seed=4, shard_size=10**6)))
    assert are_kept_options(kept)
    assert (kept["seed"], kept["shard_size"]) == (4, 10**6), "what the run was planned with"
    assert kept.keys() == {"seed", "shard_size", *VALUES}
    assert Options().inherit(kept, None) == Options(memory=10**9, evict=True, mirror_wait=0.0)
    assert not are_kept_options({**kept, "memory": "much"})
    assert not are_kept_options({**kept, "seed": "3"})
