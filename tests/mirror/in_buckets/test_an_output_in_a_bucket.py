"""Promise: OUT may be a place in a bucket: the model is made there, and nothing of it stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from loopback_s3 import Bucket, Server
from machines import HELD, SLOW, Machine, files_of, in_mirror, kill, resume_line
from mirror_audit import check_mirror
from waiting import wait_until

import resumerge
from resumerge.cli.main import _exit_code as exit_code_of
from resumerge.errors import InputError
from resumerge.ledger.run_store import IN_BUCKETS, is_output_in
from resumerge.mirror.stores.registry import open_store

SMALL = ("--shard-size", "8kB", "--threads", "1")


@pytest.fixture(scope="module")
def reference(store: Path, models: Path) -> dict[str, bytes]:
    machine = Machine(store / "calm", models)
    machine.call("run", "recipe.yaml", "llama", *SMALL)
    return files_of(machine.work / "llama")


@pytest.fixture
def url(bucket: Bucket) -> str:
    return f"{bucket.url}/merges/llama"


@pytest.fixture
def new(s3: Server, tmp_path: Path, models: Path) -> Callable[[], Machine]:
    numbers = iter(range(1000))
    return lambda: Machine(tmp_path / str(next(numbers)), models, environment=s3.env())


def model(bucket: Bucket) -> dict[str, bytes]:
    there = bucket.contents("merges/llama/")
    assert there.pop(".resumerge/done.json")
    return there


def left_of_it(machine: Machine) -> list[Path]:
    """Return new files in the working folder, and the folder of outputs in buckets if it exists."""
    known = {"recipe.yaml", "base", "math", "code"}
    beside = [path for path in machine.work.iterdir() if path.name not in known]
    return [*beside, *machine.state.glob(IN_BUCKETS)]


def test_the_model_is_made_there_and_nothing_stays_here(
    bucket: Bucket, url: str, new: Callable[[], Machine], reference: dict[str, bytes]
) -> None:
    machine = new()
    out, _ = machine.call("plan", "recipe.yaml", url, "--json", *SMALL)
    assert json.loads(out)["problems"] == [] and not bucket.contents()
    _, said = machine.call("run", "recipe.yaml", f"{url}/", *SMALL)
    assert url in said and IN_BUCKETS not in said
    assert "mirror" not in said, "it is the output"
    assert model(bucket) == reference
    assert check_mirror(open_store(url)).consistent and bucket.unfinished_uploads() == []
    assert left_of_it(machine) == []
    [run] = json.loads(machine.call("status", url, "--json")[0])["runs"]
    assert (run["output"], run["state"], run["mirror"]["here"]) == (url, "done", True)
    shown, _ = machine.call("status", url)
    assert "bucket " in shown and "mirror " not in shown
    assert json.loads(machine.call("verify", url, "--json")[0])["intact"]
    assert json.loads(machine.call("verify", run["id"], "--json")[0])["output"] == url
    for again in (("run", "recipe.yaml", url), ("resume", url)):
        assert url in machine.call(*again)[1]
    assert left_of_it(machine) == []
    machine.call("resume", url, "--bring-back", "--output", "copy")
    assert files_of(machine.work / "copy") == reference


def test_it_is_made_again_from_its_card_there(
    bucket: Bucket, url: str, new: Callable[[], Machine]
) -> None:
    """The weights in the bucket are compared by the hashes that the server has of them."""
    new().call("run", "recipe.yaml", url, *SMALL)
    machine = new()
    out, _ = machine.call("reproduce", url, "again", "--json")
    found = json.loads(out.splitlines()[-1])
    assert found["identical"] and found["tensors"] and found["files"] > 2
    names = [name for name in model(bucket) if name.endswith(".safetensors")]
    assert all(model(bucket)[n] == (machine.work / "again" / n).read_bytes() for n in names)
    weights = bytearray(model(bucket)[names[0]])
    weights[-1] ^= 1
    bucket.put(f"merges/llama/{names[0]}", bytes(weights))
    out, _ = machine.call("reproduce", url, "again", "--json", expect=2)
    found = json.loads(out.splitlines()[-1])
    assert found["differing"] == [{"name": names[0], "found": "its hash differs"}]


def test_its_address_is_the_output_of_a_result(
    url: str, new: Callable[[], Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(new().work)
    recipe = {"merge_method": "linear", "models": [{"model": "math"}, {"model": "code"}]}
    recipe |= {"parameters": {"weight": 1.0}}
    made = resumerge.run(recipe, url, state_dir="state")
    found = resumerge.run(recipe, url, state_dir="state of another machine")
    assert made.output == made.where == made.places == found.output == found.places == url
    assert not made.is_here and not made.already_done and found.already_done
    assert made.ledger is not None and found.ledger is None
    for known in ("state", "none"):
        checked = resumerge.verify(Path(url), state_dir=known)  # which takes a slash of it
        assert checked.intact and checked.output == checked.where == url
    for result in (made, found):
        [run] = result.status["runs"]
        assert (run["output"], run["state"]) == (url, "done")


AGAIN = ["elsewhere", "here", "by the command that is told"]


@pytest.mark.parametrize("again", AGAIN)
def test_killed_and_resumed(
    bucket: Bucket,
    url: str,
    new: Callable[[], Machine],
    reference: dict[str, bytes],
    again: str,
    soak: bool,
) -> None:
    if again != AGAIN[0] and not soak:
        pytest.skip("one way to go on is enough for every day: the others with --soak")
    first = new()
    first.hold(HELD)
    process = first.start("run", "recipe.yaml", url, *SMALL, **SLOW)
    wait_until(lambda: in_mirror(url).sealed, process)
    kill(process)
    promised = in_mirror(url).units
    first.let_go()
    machine = new() if again == "elsewhere" else first
    if again == "elsewhere":
        machine.call("resume", url)
    elif again == "here":
        machine.call("run", "recipe.yaml", url, *SMALL)
    else:
        sealed = len(in_mirror(url).sealed)
        machine.hold(12)
        process = machine.start("resume", url, "--threads", "1", **SLOW)
        wait_until(lambda: len(in_mirror(url).sealed) > sealed, process)
        process.terminate()
        told = resume_line(process.communicate()[1])
        machine.let_go()  # not before: it could finish before its worker has the signal
        assert process.returncode == 143
        ended = machine.call_line(told)
        assert ended.returncode == 0, ended.stderr
    assert model(bucket) == reference
    rows = machine.rows("SELECT number, attempt, batch FROM units")
    found = {row["number"]: (row["attempt"], row["batch"]) for row in rows}
    assert promised.items() <= found.items(), "computed again"
    [row] = machine.rows("SELECT output, mirror FROM run")
    assert row["mirror"] == url and is_output_in(row["output"], url)
    assert left_of_it(machine) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mirror", "elsewhere"], "--mirror elsewhere"),
        (["--bring-back"], "--bring-back"),
        (["--no-mirror-then-delete"], "--no-mirror-then-delete"),
        (["--intermediate-dir", "stages"], "--intermediate-dir"),
    ],
)
def test_what_contradicts_it_is_refused(
    url: str, bucket: Bucket, here: Path, capsys: pytest.CaptureFixture[str], words: list[str],
    said: str,
) -> None:  # fmt: skip
    assert exit_code_of(["run", "recipe.yaml", url, *words]) == 2
    assert said in capsys.readouterr().err
    assert not bucket.contents()
    assert [path.name for path in here.iterdir()] == ["recipe.yaml"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a working folder with a recipe, and return it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RESUMERGE_STATE_DIR", raising=False)
    (tmp_path / "recipe.yaml").write_text("merge_method: linear\nmodels: [{model: a}]\n")
    return tmp_path


def test_addresses_that_are_no_place(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for address, said in (
        ("s3://bucket/m.safetensors", "A single-file output cannot be in a bucket"),
        ("s3:///merges/ties", "not the address of a place in a bucket"),
        ("s3://bucket//m", "not the address of a place in a bucket"),
        ("s3://me:Secret0nly@bucket/m", "not the address of a place in a bucket"),
    ):
        assert exit_code_of(["run", "recipe.yaml", address]) == 2
        told = capsys.readouterr().err
        assert said in told and "Secret0nly" not in told
        with pytest.raises(InputError, match=said):
            resumerge.run("recipe.yaml", address)
    assert [path.name for path in here.iterdir()] == ["recipe.yaml"]


def test_a_run_stays_where_its_output_is(
    url: str, new: Callable[[], Machine], bucket: Bucket
) -> None:
    machine = new()
    machine.hold(HELD)
    process = machine.start("run", "recipe.yaml", url, *SMALL, **SLOW)
    wait_until(lambda: in_mirror(url).sealed, process)
    process.terminate()
    _, err = process.communicate()
    machine.let_go()  # not before: it could finish before its worker has the signal
    assert process.returncode == 143, err
    for words in (["--mirror", f"{url}-2"], ["--bring-back"], ["--no-mirror-then-delete"]):
        _, err = machine.call("resume", url, *words, expect=2)
        assert "output of this run is in a bucket" in err
    machine.call("run", "recipe.yaml", url, *SMALL, "--restart")
    assert check_mirror(open_store(url)).state == "finished"


def begun(machine: Machine, url: str) -> None:
    """Start a run and kill it in the middle, so that it leaves an unfinished shard."""
    machine.hold(HELD)
    process = machine.start("run", "recipe.yaml", url, *SMALL, **SLOW)
    wait_until(
        lambda: in_mirror(url).sealed and [*machine.state.glob(f"{IN_BUCKETS}/*/*/*.partial")],
        process,
    )
    kill(process)
    machine.let_go()
    assert [*machine.state.glob(f"{IN_BUCKETS}/*/*/*.partial")]


def test_nothing_stays_where_another_machine_finishes(
    url: str, new: Callable[[], Machine], bucket: Bucket
) -> None:
    first = new()
    begun(first, url)
    other = new()
    for words in (["--bring-back"], ["--no-mirror-then-delete"]):
        _, err = other.call("resume", url, *words, expect=2)
        assert "output of this run is in a bucket" in err
        assert other.rows("SELECT id FROM run") == [], "imported"
    other.call("resume", url)
    out, err = first.call("resume", url)
    assert url in out + err and IN_BUCKETS not in out + err
    assert left_of_it(first) == []


def test_nothing_stays_of_a_run_that_is_removed(
    url: str, new: Callable[[], Machine], bucket: Bucket
) -> None:
    machine = new()
    begun(machine, url)
    [run] = json.loads(machine.call("status", url, "--json")[0])["runs"]
    _, err = machine.call("resume", run["id"], "--output", "elsewhere", expect=2)
    assert url in err and IN_BUCKETS not in err
    (machine.work / "recipe.yaml").write_text(machine.recipe.replace("code", "base"))
    _, err = machine.call("resume", url, expect=2)
    assert url in err and IN_BUCKETS not in err
    said, err = machine.call("clean", url, "--yes")
    assert url in said and IN_BUCKETS not in said + err
    assert left_of_it(machine) == []


def test_as_a_python_function(
    url: str, bucket: Bucket, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made / "models")
    state = tmp_path / "state"
    recipe = {"merge_method": "passthrough", "models": [{"model": "math"}]}
    done = resumerge.run(recipe, url, state_dir=state, shard_size=8000)
    assert done.places == url
    assert resumerge.verify(url, state_dir=state).intact
    assert resumerge.status(url, state_dir=state)["runs"][0]["output"] == url
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_no_message_calls_it_a_mirror(url: str, new: Callable[[], Machine], bucket: Bucket) -> None:
    machine, foreign = new(), f"{bucket.url}/merges/foreign"
    bucket.put("merges/foreign/notes.txt", b"of somebody else")
    said = [machine.call("run", "recipe.yaml", foreign, *SMALL, expect=2)[1]]
    assert "The output contains other files" in said[-1] and "name another output" in said[-1]
    begun(machine, url)
    there = bucket.contents("merges/llama/")
    for name in there:
        bucket.delete(f"merges/llama/{name}")
    said.append(machine.call("resume", url, expect=75)[1])
    assert "no longer has any file of this run. To start" in said[-1]
    for name, data in there.items():
        bucket.put(f"merges/llama/{name}", data)
    bucket.put("merges/llama/config.json", b"edited")
    said.append(machine.call("resume", url)[1])
    assert f"config.json in the output at {url} was not written by this run" in said[-1]
    bucket.delete("merges/llama/config.json")
    said.append(new().call("run", "recipe.yaml", url, *SMALL, expect=2)[1])
    assert f"resumerge run RECIPE {url} --restart" in said[-1]
    for text in said:
        assert "mirror" not in text.replace("name it again: --mirror", "").lower(), text
