"""The documents of --json have the fields that the contract names, of the kinds that it shows."""

from __future__ import annotations

import json
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest
from commands import DISK_FULL, resumerge

import resumerge as package
from resumerge import api
from resumerge.cli.main import COMMANDS
from resumerge.documents.run import describe_attempts, describe_finished, empty_run
from resumerge.ledger.tables import TABLES
from resumerge.mirror.manifest import Manifest

ANY_NUMBER = (int, float)
OR_NULL = type(None)

ACCOUNTS: dict[str, Any] = {
    "sources": [
        {
            "model": str,
            "tensors": int,
            "used": int,
            "uses": {"merged": int},
            "reasons": [{"reason": str, "tensors": int, "names": [str]}],
            "unused": [{"name": str, "reason": str}],
        }
    ]
}
RUN: dict[str, Any] = {
    "id": str,
    "state": str,
    "config": str,
    "output": str,
    "output_deleted": bool,
    "ledger": str,
    "created": str,
    "units": {"total": int, "committed": int},
    "bytes": {"total": int, "committed": int},
    "shards": {"total": int, "sealed": int, "copied": int},
    "memory": {"budget": (int, OR_NULL), "peak_rss": int, "batch_bytes": (int, OR_NULL)},
    "rate_bytes_per_s": (*ANY_NUMBER, OR_NULL),
    "eta_s": (*ANY_NUMBER, OR_NULL),
    "merging_s": (*ANY_NUMBER, OR_NULL),
    "accounts": ACCOUNTS,
    "extraction": (dict, OR_NULL),
    "combination": (dict, OR_NULL),
    "attempts": [
        {
            "n": int,
            "pid": int,
            "host": str,
            "started": str,
            "ended": (str, OR_NULL),
            "outcome": (str, OR_NULL),
            "budget": (int, OR_NULL),
            "peak_rss": int,
            "units_committed": int,
            "bytes_committed": int,
        }
    ],
    "events": [{"at": str, "attempt": (int, OR_NULL), "kind": str, "data": dict}],
    "mirror": (dict, OR_NULL),
    "cluster": (dict, OR_NULL),
}
PLAN: dict[str, Any] = {
    "units": int,
    "tensors": int,
    "output_bytes": int,
    "shards": int,
    "copied": {"shards": int, "bytes": int},
    "read_bytes": int,
    "outputs": [{"name": str, "bytes": int, "shards": int}],
    "memory": {"predicted_peak_rss": int, "budget": int},
    "disk": {"needed": int, "free": int},
    "download": {"bytes": int, "files": int, "cached_bytes": int, "streamed_bytes": int},
    "time": {"estimate_s": ANY_NUMBER, "basis": str},
    "sources": [
        {
            "model": str,
            "kind": str,
            "revision": (str, OR_NULL),
            "bytes_needed": int,
            "streamed_bytes": int,
        }
    ],
    "accounts": ACCOUNTS,
    "problems": [dict],
}
OF_A_PLAN = {"largest_unit", "layer_maps", "layers", "method", "notes", "stacks", "threads"}
"""Keys that the document of a recipe which cannot be planned does not have."""
METHODS: dict[str, Any] = {
    "methods": [
        {
            "name": str,
            "version": int,
            "summary": str,
            "base_model": str,
            "models": {"fewest": int, "most": (int, OR_NULL)},
            "parameters": [
                {
                    "name": str,
                    "kind": str,
                    "per_model": bool,
                    "required": bool,
                    "default": (bool, *ANY_NUMBER, OR_NULL),
                    "low": (*ANY_NUMBER, OR_NULL),
                    "high": (*ANY_NUMBER, OR_NULL),
                    "meaning": str,
                }
            ],
            "papers": [{"title": str, "url": str}],
        }
    ]
}
VERIFY: dict[str, Any] = {
    "run": str,
    "output": str,
    "intact": bool,
    "units": {"compared": int, "pending": int},
    "bytes": int,
    "damaged": [{"name": str, "found": str}],
    "marked": bool,
}


def fits(document: Any, contract: Any, at: str = "$") -> None:
    """Check that a document has every field of the contract; it may have more."""
    if isinstance(contract, dict):
        assert isinstance(document, dict), at
        for key, inner in contract.items():
            assert key in document, f"{at}.{key} is missing"
            fits(document[key], inner, f"{at}.{key}")
    elif isinstance(contract, list):
        assert isinstance(document, list), at
        for index, item in enumerate(document):
            fits(item, contract[0], f"{at}[{index}]")
    else:
        assert isinstance(document, contract), f"{at} is {document!r}"


def document(place: Path, *words: object, code: int = 0) -> dict[str, Any]:
    done = resumerge(*words, "--json", cwd=place)
    assert done.returncode == code, done.stderr
    return dict(json.loads("\n".join(without_signs_of_life(done.stdout))))


def without_signs_of_life(stdout: str) -> list[str]:
    """Return the lines of a merge without those that it writes every few seconds while it plans."""
    return [line for line in stdout.splitlines() if '"kind": "alive"' not in line]


def test_status_of_one_run_by_output_or_id(place: Path) -> None:
    by_output = document(place, "status", "done")
    fits(by_output, {"runs": [RUN], "searches": []})
    [run] = by_output["runs"]
    assert document(place, "status", run["id"]) == by_output
    assert run["state"] == "done"
    assert run["units"]["total"] == run["units"]["committed"] == 39
    assert run["bytes"]["total"] == run["bytes"]["committed"]
    assert run["shards"] == {"total": 1, "sealed": 1, "copied": 0}
    assert Path(run["output"]) == place / "done"
    assert Path(run["config"]) == place / "linear.yaml"
    assert Path(run["ledger"]).is_file()
    assert [attempt["outcome"] for attempt in run["attempts"]] == ["done"]


def test_a_run_of_which_little_is_known_has_every_field(place: Path) -> None:
    [run] = document(place, "status", "done")["runs"]
    empty = empty_run("done", "failed")
    assert keys_of(empty, run) == keys_of(run, empty)
    of_mirror = describe_finished("mirror", Manifest("done", "", {}, "", 0, []))
    assert keys_of(of_mirror, run) == keys_of(run, of_mirror)


def keys_of(document: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a document, and those of each dictionary that both documents have."""
    return {
        key: keys_of(value, other[key])
        if isinstance(value, dict) and isinstance(other.get(key), dict)
        else None
        for key, value in document.items()
    }


def an_attempt() -> dict[str, Any]:
    """Return the document of an attempt of which nothing is known."""
    [attempt] = describe_attempts([dict.fromkeys(TABLES["attempts"].imported)])
    return attempt


def test_each_key_of_a_run_has_its_type_here() -> None:
    assert RUN.keys() == empty_run("", "").keys()
    assert RUN["attempts"][0].keys() == an_attempt().keys()


def test_the_documentation_has_each_key_of_a_run() -> None:
    text = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
    table = text.partition("### The document of a run\n")[2].partition("\n## ")[0]
    described = re.findall(r"`(\S+?)`", "".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE)))
    attempt = an_attempt()
    expected = []
    for key in empty_run("", ""):
        expected += [key, *(f"attempts[].{k}" for k in attempt if key == "attempts")]
    assert described == expected


def test_status_of_a_stopped_run_says_why(place: Path) -> None:
    [run] = document(place, "status", "half")["runs"]
    fits(run, RUN)
    assert run["state"] == "interrupted"
    assert 0 <= run["units"]["committed"] < run["units"]["total"]
    last = run["events"][-1]
    assert last["kind"] == "stopped"
    assert "disk is full" in last["data"]["reason"]


def test_status_of_all_runs_newest_first(place: Path) -> None:
    runs = document(place, "status")["runs"]
    assert [Path(run["output"]).name for run in runs] == ["half", "done"]
    assert document(place, "status", "--state-dir", "elsewhere") == {"runs": [], "searches": []}
    assert not (place / "elsewhere").exists()


def test_plan(place: Path) -> None:
    found = document(place, "plan", "linear.yaml")
    fits(found, PLAN)
    assert found["units"] == 39
    assert found["problems"] == []
    assert [source["model"] for source in found["sources"]] == ["math", "code"]
    assert [source["kind"] for source in found["sources"]] == ["local", "local"]
    assert found["download"]["bytes"] == 0
    assert found["output_bytes"] == (place / "done" / "model.safetensors").stat().st_size


def test_plan_lists_every_problem_and_exits_2(place: Path, tmp_path: Path) -> None:
    recipe = "merge_method: linear\nmodels:\n  - model: math\n  - model: code\n"
    (tmp_path / "no_weights.yaml").write_text(recipe)
    found = document(place, "plan", tmp_path / "no_weights.yaml", code=2)
    fits(found, PLAN)
    assert found.keys() >= document(place, "plan", "linear.yaml").keys() - OF_A_PLAN
    assert len(found["problems"]) == 2
    for problem in found["problems"]:
        assert {"what", "where", "path", "line", "expected", "found", "fix"} <= problem.keys()


def test_methods(place: Path) -> None:
    found = document(place, "methods")
    fits(found, METHODS)
    assert {"linear", "slerp", "ties", "passthrough"} <= {m["name"] for m in found["methods"]}
    [slerp] = document(place, "methods", "slerp")["methods"]
    assert [(p["name"], p["required"]) for p in slerp["parameters"]] == [("t", True)]
    [ties] = document(place, "methods", "ties")["methods"]
    [density] = [p for p in ties["parameters"] if p["name"] == "density"]
    assert (density["low"], density["high"]) == (0, 1)
    [weight] = [p for p in ties["parameters"] if p["name"] == "weight"]
    assert (weight["low"], weight["high"]) == (None, None)


def test_verify(place: Path) -> None:
    found = document(place, "verify", "done")
    fits(found, VERIFY)
    assert found["intact"] is True
    assert found["units"] == {"compared": 39, "pending": 0}


def test_verify_of_an_unfinished_run(place: Path) -> None:
    found = document(place, "verify", "half")
    fits(found, VERIFY)
    assert found["intact"] is True
    assert found["units"]["pending"] > 0


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_run_writes_json_lines_and_nothing_else(place: Path, tmp_path: Path) -> None:
    words = ["run", "linear.yaml", tmp_path / "out", "--state-dir", tmp_path / "state", "--json"]
    done = resumerge(*words, cwd=place)
    assert done.returncode == 0
    told = [json.loads(line) for line in without_signs_of_life(done.stdout)]
    kinds = [line["kind"] for line in told]
    assert kinds[0] == "planned"
    assert set(kinds[1:-1]) == {"progress"}
    assert kinds[-1] == "done"
    assert told[-1]["output"] == str(tmp_path / "out")
    progress = told[-2]
    assert progress["bytes"]["done"] == progress["bytes"]["total"]
    assert progress["units"] == {"total": 39, "done": 39}


def test_resume_writes_them_too(place: Path, tmp_path: Path) -> None:
    words = ["linear.yaml", tmp_path / "out", "--state-dir", tmp_path / "state", "--json"]
    stopped = resumerge("run", *words, cwd=place, before=DISK_FULL)
    assert stopped.returncode == 75
    assert all("kind" in line for line in lines(stopped.stdout))
    done = resumerge("resume", "--state-dir", tmp_path / "state", "--json", cwd=place)
    told = [json.loads(line) for line in without_signs_of_life(done.stdout)]
    assert told[0]["resumed"] is True
    assert told[-1]["kind"] == "done"


TWINS = {"try": "try_model", "cache": "cache_check"}
"""The functions in Python with another name than their command, by command."""


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"methods", "ui"}))
def test_every_command_has_its_twin_in_python(command: str) -> None:
    """`ui` has none; that of `methods` is the package of this name, which can be called."""
    name = TWINS.get(command, command.replace("-", "_"))
    assert getattr(package, name) is getattr(api, name)
    taken = {module.name for module in pkgutil.iter_modules(package.__path__)}
    assert name not in taken, "importing a module of that name would put it in the function's place"


def test_the_twins_say_the_same(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    assert package.status("done") == document(place, "status", "done")
    assert package.verify("done").as_json() == document(place, "verify", "done")
    ours, printed = package.plan("linear.yaml"), document(place, "plan", "linear.yaml")
    for key in ("units", "output_bytes", "shards", "sources", "problems", "download"):
        assert ours[key] == printed[key]


ERROR = {
    "kind": str,
    "exit_code": int,
    "problems": [dict.fromkeys(("what", "where", "path", "expected", "found", "fix"), str)],
}


@pytest.mark.parametrize("command", ["run", "plan"])
def test_problems_of_a_recipe_have_their_fields(place: Path, tmp_path: Path, command: str) -> None:
    (tmp_path / "bad.yaml").write_text("merge_method: linear\ndtype: f1\nmodels: [{model: math}]\n")
    words = [command, tmp_path / "bad.yaml", "bad"]
    found = document(place, *words, code=2)
    [problem] = found["problems"]
    assert (problem["path"], problem["line"], problem["found"]) == ("dtype", 2, "'f1'")
    if command == "run":
        fits(found, ERROR)
        assert (found["kind"], found["exit_code"]) == ("error", 2)
    assert not (place / "bad").exists()


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["run", "linear.yaml"], "Missing argument"),
        (["run", "linear.yaml", "out", "--no-such-option"], "No such option"),
        (["run", "linear.yaml", "out", "--density=1"], "below 'parameters:' in the recipe"),
        (["run", "linear.yaml", "out", "--method", "ties"], "'merge_method:' is a key of the"),
        (["run", "linear.yaml", "out", "--memory", "plenty"], "plenty"),
        (["status", "no-such-run"], "no-such-run"),
        (["methods", "no_such_method"], "no_such_method"),
        (["cache", "check", "no-such.yaml"], "cannot be read"),
    ],
)
def test_every_refusal_is_a_line_of_json(place: Path, words: list[str], what: str) -> None:
    found = document(place, *words, code=2)
    fits(found, ERROR)
    assert what in str(found["problems"][0])


def test_what_can_be_resumed_says_how(place: Path, tmp_path: Path) -> None:
    done = resumerge("resume", "half", "--json", cwd=place, before=DISK_FULL)
    assert done.returncode == 75, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    facts = {"kind": str, "exit_code": int, "reason": str, "message": str, "resume": str}
    fits(last, facts)
    assert (last["kind"], last["exit_code"], last["reason"]) == ("error", 75, "disk_full")
    assert last["resume"] == done.stderr.splitlines()[-1]
