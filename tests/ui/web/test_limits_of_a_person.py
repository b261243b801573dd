"""Promise: who shares a Space gets a folder, a token and limits of their own, and nothing else."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from resumerge.engine.resources.lock import run_lock
from resumerge.errors import InputError
from resumerge.ledger.ledger import LEDGER_FILE
from resumerge.options import Options
from resumerge.ui.web.space import folder as folders
from resumerge.ui.web.space.environment import environment_of
from resumerge.ui.web.space.folder import Desk, PersonalFolder
from resumerge.ui.web.space.limits import Limits, bytes_below
from resumerge.ui.web.space.server import NEEDED, check_space

LIMITS = Limits(all_runs=2, runs=1, disk=1000, memory=10**9)
SPACE = {"SYSTEM": "spaces", "SPACE_ID": "org/space"} | dict.fromkeys(NEEDED, "x")


def personal(tmp_path: Path, desk: Desk | None = None) -> PersonalFolder:
    return PersonalFolder(tmp_path, "ann", "hf_ann", LIMITS, desk or Desk())


def test_its_processes_have_no_secret_but_the_persons_token(tmp_path: Path) -> None:
    own = {
        "PATH": "/bin",
        "HF_ENDPOINT": "http://hub",
        "RESUMERGE_LOG": "info",
        "HF_TOKEN": "hf_owner",
        "OAUTH_CLIENT_SECRET": "secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "MY_PASSWORD": "secret",
        "HOME": "/root",
    }
    made = environment_of(tmp_path, "hf_ann", own)
    assert made["HF_TOKEN"] == "hf_ann"
    assert {made["PATH"], made["HF_ENDPOINT"], made["RESUMERGE_LOG"]} == {
        *("/bin", "http://hub", "info")
    }
    assert not {"secret", "hf_owner", "/root"} & set(made.values())
    assert Path(made["HOME"]).is_relative_to(tmp_path)
    assert Path(made["HF_HOME"]).is_relative_to(tmp_path)


def test_what_is_over_the_limits_is_a_problem() -> None:
    plan = {"disk": {"needed": 600}}
    assert LIMITS.problems(plan, 400, []) == []
    [problem] = LIMITS.problems(plan, 401, [])
    assert problem.what == "The merge needs more disk than you have here"
    [problem] = LIMITS.problems(plan, 0, ["merged-1"])
    assert problem.what == "You have as many merges at work as you may"
    assert problem.found == "merged-1"
    assert LIMITS.problems(plan, 0, [], others=1) == []
    [problem] = LIMITS.problems(plan, 0, [], others=2)
    assert problem.what.startswith("All people together have as many merges at work")


def test_all_files_count_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "a").write_bytes(bytes(40960))
    before = bytes_below(tmp_path / "inside")
    assert before >= 40960
    (tmp_path / "b").write_bytes(bytes(40960))
    (tmp_path / "inside" / "link").symlink_to(tmp_path / "b")
    (tmp_path / "inside" / "hard").hardlink_to(tmp_path / "inside" / "a")
    assert bytes_below(tmp_path / "inside") < before + 40960


def test_runs_of_others_count_while_a_process_works_on_them(tmp_path: Path) -> None:
    for person in ("ann", "bob", "cid"):
        (tmp_path / person / "state").mkdir(parents=True)
    ann = PersonalFolder(tmp_path / "ann", "ann", "hf_ann", LIMITS, Desk())
    runs = {name: tmp_path / name / "state" / f"merged-{name}" for name in ("ann", "bob", "cid")}
    with ExitStack() as stack:
        for name in ("ann", "bob", "cid"):
            runs[name].mkdir()
            (runs[name] / LEDGER_FILE).touch()
            stack.enter_context(run_lock(runs[name], runs[name].name))
        assert ann._others() == 2
        with pytest.raises(InputError, match="All people together"):
            ann.resume_from_mirror("merged-2")
    assert ann._others() == 0


@pytest.mark.parametrize(
    ("asked", "given"), [(None, 10**9), (5 * 10**8, 5 * 10**8), (10**12, 10**9)]
)
def test_the_memory_is_within_the_limits(asked: int | None, given: int, tmp_path: Path) -> None:
    fixed = personal(tmp_path)._fixed("merged", Options(memory=asked))
    assert (fixed.memory, fixed.mirror, fixed.stream) == (given, "hf://ann/merged", True)


def test_a_run_too_many_is_neither_resumed_nor_brought_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PersonalFolder, "_running", lambda self: ["merged-1"])
    for act in (personal(tmp_path).resume, personal(tmp_path).resume_from_mirror):
        with pytest.raises(InputError, match="as many merges at work"):
            act("merged-2")


def test_one_comparison_at_a_time_is_under_way(tmp_path: Path) -> None:
    desk = Desk()
    first = personal(tmp_path, desk)._alone(iter(["line", {}]))
    assert next(first) == "line"
    with pytest.raises(InputError, match="is under way"):
        next(personal(tmp_path, desk)._alone(iter(["line"])))
    assert list(first) == [{}]
    assert list(personal(tmp_path, desk)._alone(iter([{}]))) == [{}]


def test_the_options_of_a_person_are_no_others(tmp_path: Path) -> None:
    names = {option.name for option in folders.declared_for_people()}
    assert not names & set(folders.FIXED)
    assert {"memory", "threads", "shard_size", "mirror_then_delete", "take_over"} <= names


def request(info: dict[str, Any] | None) -> Any:
    session = {} if info is None else {"oauth_info": info}
    return SimpleNamespace(request=SimpleNamespace(scope={"session": session}))


def login(**changed: Any) -> dict[str, Any]:
    user = {"sub": "123", "preferred_username": "ann"}
    info = {"access_token": "hf_ann", "expires_at": time.time() + 100, "userinfo": user}
    return {**info, **changed}


@pytest.mark.needs("gradio")
def test_a_session_names_the_folder(tmp_path: Path) -> None:
    from resumerge.ui.web.space.people import People

    people = People(tmp_path / "people", LIMITS)
    assert people.folder_of(request(login())).folder == tmp_path / "people" / "123"
    assert (tmp_path / "people" / "123").stat().st_mode & 0o777 == 0o700
    renamed = login(userinfo={"sub": "123", "preferred_username": "anna"})
    assert people.folder_of(request(renamed)).folder == tmp_path / "people" / "123"


@pytest.mark.needs("gradio")
@pytest.mark.parametrize(
    "info",
    [
        None,
        {},
        login(expires_at=time.time() - 1),
        login(access_token=None),
        login(userinfo={"sub": "../bob", "preferred_username": "ann"}),
        login(userinfo={"sub": "", "preferred_username": "ann"}),
        login(userinfo={"sub": "123", "preferred_username": "ann/x"}),
    ],
)
def test_who_is_not_logged_in_has_no_folder(info: Any, tmp_path: Path) -> None:
    from resumerge.ui.web.space.people import People

    with pytest.raises(InputError, match="You are not logged in"):
        People(tmp_path / "people", LIMITS).folder_of(request(info))
    assert list(tmp_path.iterdir()) == []


def test_elsewhere_nobody_is_logged_in_as_the_owner_of_the_machine() -> None:
    check_space(SPACE)
    for name in SPACE:
        with pytest.raises(InputError, match="no Space of Hugging Face"):
            check_space({key: value for key, value in SPACE.items() if key != name})
