"""Promise: no message repeats a password or a signature that an address contains, whatever the
scheme, its case, and the place where the address was given; nothing is written either."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resumerge.cli.main import _exit_code as exit_code_of
from resumerge.printable import without_secrets

USER, SECRET = "AKIAUSER", "hunter2Hunter3"
"""The password may have what stands in keys of S3 after its first letters."""

RECIPE = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"
OF_MODEL = "merge_method: passthrough\nmodels: [{model: '%s'}]\n"

COMMANDS = [
    *("try %s hello", "try out hello --text %s"),
    *("run recipe.yaml out --mirror %s", "plan recipe.yaml out --mirror %s", "run recipe.yaml %s"),
    *("run %s out", "plan %s", "run of-model.yaml out", "plan of-model.yaml --json"),
    *("resume %s", "resume --mirror %s", "resume --output %s", "status %s", "status %s --json"),
    *("status --html %s", "verify %s", "verify %s --json", "clean %s --yes", "push out %s"),
    *("push %s org/x", "cache check %s", "cache check %s --json", "cache repair %s"),
    *("cache check of-model.yaml", "init new.yaml --method linear --models %s,org/x", "methods %s"),
    *("init %s --method linear --models org/a,org/b", "extract-expert %s 0 out", "%s", "demo %s"),
    *("run recipe.yaml out --state-dir %s", "run recipe.yaml out --intermediate-dir %s"),
    *("run recipe.yaml out --chdir %s", "run recipe.yaml out --ray %s", "status --memory %s"),
    *("run recipe.yaml out --memory %s", "run recipe.yaml out --device %s --json"),
    *("run recipe.yaml out --keep %s", "extract-expert org/x %s out", "clean --older %s"),
    *("compare org/x %s", "compare %s --base org/x --json"),
]

schemes = st.sampled_from(["s3", "gs", "az", "hf", "https", "http", "s3n", "abfs", "file", "ftp"])
cases = st.sampled_from([str.lower, str.upper, str.title])
tails = st.text("abcXYZ019/+=-_", max_size=8)
users = st.sampled_from([f"{USER}:", ":", ""])
names = st.sampled_from(["bucket", "bucket/x", "org/name", "bucket/x/model.safetensors", "b/x@1"])
signatures = st.sampled_from(
    [
        f"sv=1&sig={SECRET}",
        f"X-Amz-Signature={SECRET}&x=1",
        f"signature={SECRET}",
        f"token={SECRET}",
    ]
)


@st.composite
def addresses(draw: st.DrawFn) -> str:
    scheme = draw(cases)(draw(schemes))
    if draw(st.booleans()):
        return f"{scheme}://{draw(names)}?{draw(signatures)}"
    user = draw(users)
    tail = draw(tails) if user else draw(st.text("abcXYZ019=-_", max_size=8))
    if scheme.lower() in ("http", "https", "ftp"):  # whose user has no slash
        tail = tail.replace("/", "")
    return f"{scheme}://{user}{SECRET}{tail}@{draw(names)}"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RESUMERGE_STATE_DIR", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return tmp_path


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(address=addresses())
@pytest.mark.parametrize("command", COMMANDS)
def test_by_no_command(
    command: str, address: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "of-model.yaml").write_text(OF_MODEL % address)
    words = [word.replace("%s", address) for word in command.split()]
    if words[0] in ("run", "resume", "extract-expert"):
        words.insert(1, "--no-supervise")
    code = exit_code_of(words)
    os.chdir(here)
    told = capsys.readouterr()
    assert code == 2, told.err
    assert told.err or told.out
    for text in (told.err, told.out):
        assert SECRET not in text and USER not in text
    (here / "of-model.yaml").unlink()
    for path in here.rglob("*"):
        assert SECRET not in str(path)
        assert not path.is_file() or SECRET.encode() not in path.read_bytes()


@given(address=addresses(), before=st.sampled_from(["", "org/x@1 or '", "a+", "at http://h:80/x "]))
def test_wherever_it_stands_in_a_text(address: str, before: str) -> None:
    shown = without_secrets(f"{before}{address}' is not there")
    assert SECRET not in shown and USER not in shown
    assert shown.startswith(before)
    assert "…" in shown


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/x@1 and org/name@main",
        "http://127.0.0.1:8080/org/name has no model@main",
        "s3://bucket: there is no model@main",
        "gs://bucket/x?generation=1",
        "is it there? me@example.org knows",
        "a/b+c/d@e",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == text
