"""Promise: no input of a page leads out of its folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up_ledgers import make_ledger

from resumerge.errors import InputError
from resumerge.ui.web.recipe_paths import check_paths
from resumerge.ui.web.workspace import Workspace

LINEAR = "merge_method: linear\nmodels:\n  - model: {}\n"


@pytest.mark.parametrize(
    "model",
    [
        *("/etc", "/", "..", "../models", "a/../../b", "'~'", "~/models", "~root/x", "'/etc '"),
        *("base+/etc/adapter", "'base + ../adapter'", "org/name+../x", "//etc", "./../x"),
        *("{model: {path: /etc}}", "{path: base, lora: ../x}", "s3://../../../etc"),
    ],
)
def test_a_model_outside_is_refused(model: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        check_paths(LINEAR.format(model), tmp_path)
    [problem] = refused.value.problems
    assert (problem.line, problem.path[:15]) == (3, "models[0].model")


@pytest.mark.parametrize(
    "model", ["base", "./base", "a/../base", "org/name@main", "base+adapter", "s3://bucket/x/../y"]
)
def test_a_model_inside_or_on_a_server_is_not(model: str, tmp_path: Path) -> None:
    check_paths(LINEAR.format(model), tmp_path)
    check_paths(LINEAR.format(tmp_path / "base"), tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "merge_method: linear\naverage: {checkpoints: ['/root/*']}\n",
        "merge_method: linear\nbase_model: ../base\n",
        "merge_method: linear\ntokenizer: {source: /etc}\n",
        "merge_method: linear\ntokenizer: {tokens: {x: {source: {model: /etc, token: x}}}}\n",
        "base_model: base\nexperts: [{source_model: /etc, positive_prompts: [x]}]\n",
        "extract_lora: {model: /etc}\n",
        "merge_method: linear\nname: a\n---\nmerge_method: linear\nbase_model: /etc\n",
        "x: [[/etc]]\n",
    ],
)
def test_wherever_the_recipe_names_it(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leads out of the page's folder"):
        check_paths(text, tmp_path)


def test_words_of_a_prompt_are_no_paths(tmp_path: Path) -> None:
    check_paths("experts: [{source_model: a, positive_prompts: ['/imagine', ../x]}]\n", tmp_path)
    check_paths("chat_template: '/{{ x }}'\n", tmp_path)


def test_a_plan_refuses_it_before_anything_is_looked_at(tmp_path: Path) -> None:
    """A recipe must not reveal whether a file exists."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "inside").mkdir()
    workspace = Workspace(tmp_path / "inside")
    told = []
    for name in ("outside", "missing"):
        with pytest.raises(InputError) as refused:
            workspace.plan(LINEAR.format(f"../{name}"), "")
        told.append(str(refused.value).replace(name, ""))
    assert told[0] == told[1]


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../x", "a/b", "/x", "~", "-x", ".hidden", "a b", "x\n", "s3://bucket/x"),
        *("state", "recipes", "x" * 97, "link"),
    ],
)
def test_an_output_is_a_name_in_the_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to(tmp_path)
    workspace = Workspace(tmp_path / "folder")
    with pytest.raises(InputError, match="cannot be the name of the output"):
        workspace.merge(LINEAR.format("base"), name)
    assert [path.name for path in workspace.folder.iterdir()] == ["link"]


@pytest.mark.parametrize("run", ["", "..", "no-such-run", "hf://org/name", "/etc", "s3://bucket/x"])
def test_a_run_is_named_by_its_id_alone(run: str, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    for ask in (workspace.status, workspace.stop, workspace.resume):
        with pytest.raises(InputError, match="There is no such run"):
            ask(run)


def test_a_run_that_writes_elsewhere_is_not_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    make_ledger(folder / "state", [], output=str(tmp_path / "elsewhere"))
    workspace = Workspace(folder)
    [run] = workspace.names()
    assert workspace.status(run)["state"] == "planned"
    with pytest.raises(InputError, match="writes outside of the page's folder"):
        workspace.resume(run)
    with pytest.raises(InputError, match="No process of this machine works on this run"):
        workspace.stop(run)
