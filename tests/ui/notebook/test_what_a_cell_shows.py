"""The live picture and the results: few updates, plain text beside the HTML, nothing that runs."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from IPython.lib.pretty import pretty
from nbclient import NotebookClient
from tiny_models import write_family

import resumerge
from resumerge.ui.html.environment import TEMPLATES

EVIL = "<script>alert(1)</script> & [b]"

SLOW_RUN = """
import time
from IPython import get_ipython
from resumerge.engine.opening import pinned_plan as pinned
opened, display, shown = pinned.open_sources, get_ipython().display_pub, []
publish = display.publish
def counted(*words, **options):
    shown.append(words)
    publish(*words, **options)
display.publish = counted
def wait_for(happened):
    while not happened():
        time.sleep(0.05)
def slow(*words):
    wait_for(lambda: len(shown) >= 6)
    return opened(*words)
pinned.open_sources = slow
import resumerge
result = resumerge.run("merge.yaml", "merged")
"""

SLOW_PLAN = """
from rich.console import Console
show, told = Console.print, []
def heard(*words, **options):
    show(*words, **options)
    told.append(words)
Console.print = heard
def slower(*words):
    wait_for(lambda: told)
    return opened(*words)
pinned.open_sources = slower
resumerge.plan("merge.yaml", mirror="far")
"""

LAST_LINE = """
last = resumerge.run("merge.yaml", "merged")
last
"""

BROKEN = """
resumerge.run("merge.yaml", "merged/../../etc/merged", threads=0)
"""


CELLS = (SLOW_RUN, BROKEN, SLOW_PLAN, LAST_LINE, "last")


class Listening(NotebookClient):
    """A client that keeps every display of the first cell, and the time when the kernel sent it."""

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        self.shown: list[tuple[float, str, dict[str, Any]]] = []

    def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
        is_display = msg["msg_type"] in ("display_data", "update_display_data")
        if is_display and cell_index == 0:
            sent = msg["header"]["date"].timestamp()
            self.shown.append((sent, msg["msg_type"], msg["content"]))
        return super().process_message(msg, cell, cell_index)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_family(tmp_path_factory.mktemp("shown") / EVIL.replace("/", "_"))
    models = "[{model: math, parameters: {weight: 1}}, {model: code, parameters: {weight: 1}}]"
    (folder / "merge.yaml").write_text(f"merge_method: linear\nmodels: {models}\n# {EVIL}\n")
    return folder


@pytest.fixture(scope="module")
def executed(place: Path) -> Listening:
    cells = [nbformat.v4.new_code_cell(text) for text in CELLS]
    client = Listening(
        nbformat.v4.new_notebook(cells=cells),
        allow_errors=True,
        kernel_name="python3",
        resources={"metadata": {"path": str(place)}},
    )
    client.execute(env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])})
    return client


def test_one_picture_is_updated_at_most_twice_a_second(executed: Listening) -> None:
    live = [shown for shown in executed.shown if shown[2]["transient"].get("display_id")]
    assert [kind for _, kind, _ in live].count("display_data") == 1, "one output of the cell"
    assert len({content["transient"]["display_id"] for _, _, content in live}) == 1
    times = [at for at, _, _ in live]
    assert len(times) >= 6, "alive while nothing is computed yet"
    assert len(times) <= 2 * (times[-1] - times[0]) + 3
    texts = [content["data"]["text/plain"] for _, _, content in live]
    assert any("opening the models and planning" in text for text in texts)
    assert texts[-1].startswith("Done in ")
    for _, _, content in live:
        assert set(content["data"]) == {"text/html", "text/plain"}
        assert "<script" not in content["data"]["text/html"]


def test_what_was_shown_last_stays_in_the_notebook(executed: Listening) -> None:
    (output,) = executed.nb.cells[0].outputs
    assert "Done in " in output["data"]["text/html"]
    assert "Tensors of the models" in output["data"]["text/html"]
    assert "What happened to the numbers" in output["data"]["text/html"]
    assert "\x1b" not in json.dumps(output)


def test_an_error_is_told_without_a_traceback(executed: Listening) -> None:
    (error,) = [o for o in executed.nb.cells[1].outputs if o["output_type"] == "error"]
    text = "\n".join(error["traceback"])
    assert "expected:" in text
    assert "Traceback" not in text
    assert "File " not in text


def test_a_plan_that_waits_is_not_silent(executed: Listening) -> None:
    told, shown = executed.nb.cells[2].outputs
    assert "opening the models and planning: " in told["text"]
    assert "\x1b" not in told["text"]
    assert "can run" in shown["data"]["text/html"]


def test_a_result_as_the_last_line_is_shown_once(executed: Listening) -> None:
    (live,) = executed.nb.cells[3].outputs
    assert "Already done" in live["data"]["text/html"]
    (asked,) = executed.nb.cells[4].outputs
    assert "Attempts" in asked["data"]["text/html"]


def test_results_are_escaped_wherever_they_show_names(
    place: Path, executed: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    (place / "bad.yaml").write_text(f"merge_method: linear\nmodels: [{{model: './{EVIL}'}}]\n")
    result = resumerge.run("merge.yaml", "merged")
    assert result.already_done
    shard = next((place / "merged").glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-40] + b"x" * 40)
    shown = [
        resumerge.verify("merged"),
        resumerge.plan("merge.yaml"),
        resumerge.plan("bad.yaml"),
        result,
        resumerge.status(),
    ]
    for one in shown:
        html = one._repr_html_()
        assert "<script" not in html
        assert re.search(r"&lt;_?script&gt;", html)
        assert 'class="resumerge"' in html
    assert "block 0 differs" in shown[0]._repr_html_()
    assert "Problems to fix first" in shown[2]._repr_html_()


def test_control_characters_are_spelled_out(tmp_path: Path) -> None:
    recipe = tmp_path / "bad.yaml"
    recipe.write_text('merge_method: linear\nmodels: [{model: "./\\e[31m\\x9bred"}]\n')
    html = resumerge.plan(recipe)._repr_html_()
    assert "./\\x1b[31m\\x9bred" in html
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", html)
    template = TEMPLATES.from_string('<p title="{{ title }}">{{ text }}</p>')
    shown = template.render(text="two\nlines \x07", title="\x1b]0;title\x07")
    assert shown == '<p title="\\x1b]0;title\\x07">two\nlines \\x07</p>'


def test_results_show_themselves_on_a_console_too(
    place: Path, executed: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    from resumerge.ui.terminal.console import SafeConsole

    monkeypatch.chdir(place)
    console = SafeConsole()
    with console.capture() as printed:
        console.print(resumerge.plan("merge.yaml"))
        console.print(resumerge.verify("merged"))
        console.print(resumerge.status("merged"))
    text = printed.get()
    for words in ("chosen", "damaged", "what happened"):
        assert words in text
    assert "tensors compared" in pretty(resumerge.verify("merged"))
    assert "weight" in pretty(resumerge.explain("merge.yaml"))


def test_a_state_folder_without_runs_is_told_in_words(tmp_path: Path) -> None:
    assert "No runs in this state folder" in resumerge.status(state_dir=tmp_path)._repr_html_()
