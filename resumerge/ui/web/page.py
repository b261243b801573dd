"""The page, as Gradio builds it: what is typed, pressed and shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gradio as gr
from fastapi import FastAPI

from resumerge.documents.methods import methods_json
from resumerge.documents.new_recipe import new_recipe
from resumerge.errors import InputError, ResumergeError, refuse
from resumerge.ui.html.environment import render
from resumerge.ui.html.page import fragment as run_fragment
from resumerge.ui.html.plan import fragment as plan_fragment
from resumerge.ui.text.format import committed_share, state_word
from resumerge.ui.web.workspace import Workspace

SECONDS = 1.0
"""Between two looks at the run that is shown."""

AT_ONCE = 4
"""Events of one kind that are worked on at once, of all who have the page open."""

RECIPE = """\
merge_method: linear
models:
  - model: org/first
    parameters:
      weight: 0.5
  - model: org/second
    parameters:
      weight: 0.5
dtype: bfloat16
"""

CSS = """
.gradio-container { max-width: 1280px !important; }
.recipe textarea { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.resumerge.resumerge { padding: 0; background: none; max-width: none; }
.resumerge.resumerge [role=alert] { margin: 0; }
.resumerge.resumerge [role=alert] pre { white-space: pre-wrap; }
.resumerge.resumerge :is(table, tr, th, td) { border-width: 0; }
.resumerge.resumerge :is(th, td) { border-bottom-width: 1px; }
"""
"""Gradio has rules of its own for tables, and room around what it shows."""

STOPPING = render(
    "said.html.j2",
    title="The run was asked to stop",
    texts=["It commits first; it can be resumed."],
)

Choices = list[tuple[str, str]]


def app_of(workspace: Workspace) -> FastAPI:
    """Return the application that serves the page.

    Args:
        workspace: the folder that it merges in; no file of it, or of any other, is sent.
    """
    return gr.mount_gradio_app(
        FastAPI(openapi_url=None),
        build(workspace),
        path="/",
        css=CSS,
        footer_links=[],
        run_history=False,
        blocked_paths=["/"],
        max_file_size="1kb",  # nothing is uploaded
        show_error=False,
        mcp_server=False,
    )


def build(workspace: Workspace) -> gr.Blocks:
    """Return the page that merges in a folder.

    Args:
        workspace: the folder.
    """
    acts = _Acts(workspace)
    with gr.Blocks(title="resumerge", analytics_enabled=False) as page:
        gr.Markdown(f"# resumerge\nModels and outputs are in `{workspace.folder}`.")
        with gr.Row():
            with gr.Column(min_width=320):
                with gr.Accordion("Write a recipe", open=False):
                    parts = _parts_of_a_recipe()
                    begin = gr.Button("Write it")
                recipe = gr.Textbox(
                    label="Recipe (YAML)",
                    placeholder=RECIPE,
                    lines=14,
                    max_lines=40,
                    elem_classes="recipe",
                )
                name = gr.Textbox(label="Name of the output", placeholder="my-merge")
                merge = gr.Button("Merge", variant="primary")
                said = gr.HTML()
            with gr.Column(min_width=320):
                plan = gr.HTML()
        run = gr.Dropdown(label="Run", choices=[], value=None)
        with gr.Row():
            stop = gr.Button("Stop", interactive=False)
            resume = gr.Button("Resume", interactive=False)
        shown = gr.HTML()
        seen = gr.State()
        private: dict[str, Any] = {"api_visibility": "private", "concurrency_limit": AT_ONCE}
        quiet = {**private, "show_progress": "hidden"}
        page.load(acts.newest, None, run, **quiet)
        gr.on(
            [recipe.change, name.change],
            acts.plan,
            [recipe, name],
            plan,
            trigger_mode="always_last",  # while one is planned, only the last of what follows waits
            **quiet,
        )
        begin.click(acts.begin, [recipe, *parts], [recipe, said], **private)
        merge.click(acts.merge, [recipe, name], [said, run], **private)
        stop.click(acts.stop, run, said, **private)
        resume.click(acts.resume, run, said, **private)
        look = {"fn": acts.look, "inputs": [run, seen], "outputs": [shown, seen, run, stop, resume]}
        gr.Timer(SECONDS).tick(**look, **quiet)
        run.change(**look, **quiet)
    return page


def _parts_of_a_recipe() -> list[gr.components.Component]:
    """Return what is asked for a new recipe, as `resumerge init` does."""
    methods = [(f"{m['name']}: {m['summary']}", m["name"]) for m in methods_json(None)["methods"]]
    return [
        gr.Dropdown(methods, label="Method", value="linear"),
        gr.Textbox(label="Models, one in a line", lines=2, max_lines=12),
        gr.Textbox(label="Base model", info="that the others were trained from; or empty"),
        gr.Dropdown(["bfloat16", "float16", "float32"], label="Type of the numbers"),
    ]


class _Acts:
    """What is done when something is typed or pressed, and at every tick of the timer."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def choices(self) -> Choices:
        """Return the runs to choose from, the newest first."""
        return [(_label(run), run["id"]) for run in self._workspace.all_runs()]

    def newest(self) -> Any:
        """Choose the newest run, if there is one."""
        choices = self.choices()
        return gr.update(choices=choices, value=choices[0][1] if choices else None)

    def begin(self, text: str, method: str, models: str, base: str, dtype: str) -> tuple[Any, str]:
        """Write a recipe with comments, where there is none yet."""
        try:
            if text.strip():
                raise refuse("The recipe would be replaced", fix="empty it first")
            names = list(filter(None, map(str.strip, models.splitlines())))
            return new_recipe(method, names, base.strip() or None, dtype), ""
        except ResumergeError as error:
            return gr.skip(), _said("The recipe was not written", error)

    def plan(self, text: str, name: str) -> str:
        """Return what is known of a recipe before it is merged."""
        if not text.strip():
            return ""
        try:
            plan = self._workspace.plan(text, name.strip())
            return plan_fragment({**plan, "choices": []})  # which are made by arguments elsewhere
        except ResumergeError as error:
            return _said("Problems to fix first", error)

    def merge(self, text: str, name: str) -> tuple[str, dict[str, Any]]:
        """Start a merge, and choose its run."""
        try:
            run = self._workspace.merge(text, name.strip())
        except ResumergeError as error:
            return _said("The merge did not begin", error), gr.skip()
        return "", gr.update(choices=self.choices(), value=run)

    def stop(self, run: str | None) -> str:
        """Ask a run to stop."""
        return self._tried("The run was not stopped", self._workspace.stop, run) or STOPPING

    def resume(self, run: str | None) -> str:
        """Have a run go on."""
        return self._tried("The run did not go on", self._workspace.resume, run)

    def look(self, run: str | None, seen: Any) -> tuple[Any, ...]:
        """Return a run as it is now; nothing where it is as it was seen last.

        Args:
            run: the run's id.
            seen: what this returned second, the last time.
        """
        if not run:
            return "", None, gr.skip(), *_buttons("")
        try:
            found = self._workspace.status(run)
        except ResumergeError as error:
            return _said("This run cannot be shown", error), None, gr.skip(), *_buttons("")
        label, events = _label(found), len(found["events"])
        now = [run, label, found["bytes"]["committed"], events, self._workspace.names()]
        if now == seen and found["state"] != "running":
            return (gr.skip(),) * 5
        listed = [*now[:2], now[-1]] == [*seen[:2], seen[-1]] if seen else False
        runs = gr.skip() if listed else gr.update(choices=self.choices())
        return run_fragment([found]), now, runs, *_buttons(found["state"])

    def _tried(self, title: str, act: Callable[[str], None], run: str | None) -> str:
        try:
            act(run or "")
        except ResumergeError as error:
            return _said(title, error)
        return ""


def _label(run: Mapping[str, Any]) -> str:
    return f"{run['id']}: {state_word(run)}, {committed_share(run):.0%}"


def _buttons(state: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what becomes of the buttons to stop and to resume."""
    return gr.update(interactive=state == "running"), gr.update(interactive=state == "interrupted")


def _said(title: str, error: ResumergeError) -> str:
    texts = error.problems if isinstance(error, InputError) else [error]
    return render("said.html.j2", title=title, texts=texts)
