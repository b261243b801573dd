"""The part of the page that shows, stops, resumes and pushes a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from resumerge.errors import ResumergeError
from resumerge.options import Option
from resumerge.ui.html.page import fragment
from resumerge.ui.text.format import committed_share, state_word
from resumerge.ui.text.pushed import pushed_sentence
from resumerge.ui.web.parts.options import Field
from resumerge.ui.web.parts.shared import (
    PRIVATE,
    QUIET,
    Follower,
    WorkspaceOf,
    error_html,
    message_html,
)
from resumerge.ui.web.settings import options_from_fields
from resumerge.ui.web.workspace import Workspace

SECONDS = 1.0
"""The seconds between two updates of the shown run."""


def choices_of(workspace: Workspace) -> list[tuple[str, str]]:
    """Return (label, id) of each run to choose from, newest first."""
    return [(_label(run), run["id"]) for run in workspace.all_runs()]


@dataclass(frozen=True)
class _Seen:
    """The state of a run as it is shown, to detect changes.

    Args:
        run: the id of the run that is shown.
        label: the run's text in the list of runs.
        committed: the number of committed bytes.
        events: the number of the run's events so far.
        names: the ids of all runs.
    """

    run: str
    label: str
    committed: int
    events: int
    names: tuple[str, ...]

    def has_same_list(self, other: _Seen | None) -> bool:
        """Return whether an earlier state has the same list of runs and the same chosen run."""
        if other is None:
            return False
        return (self.run, self.label, self.names) == (other.run, other.label, other.names)


class RunPart:
    """The chosen run, its display, and the buttons that stop, resume and push it.

    Args:
        workspace_of: returns the workspace of the person who sends a request.
        declarations: the options that the page has fields for; those of ``resume`` have an effect
            here.
    """

    def __init__(self, workspace_of: WorkspaceOf, declarations: Sequence[Option]) -> None:
        self._workspace_of, self._declarations = workspace_of, declarations
        self._pushes = Follower(
            "The push", lambda found: message_html("Pushed", pushed_sentence(found))
        )

    def build(self) -> None:
        """Build the fields."""
        self.run = gr.Dropdown(label="Run", choices=[], value=None)
        with gr.Row():
            self._stop = gr.Button("Stop", interactive=False)
            self._resume = gr.Button("Resume", interactive=False)
        with gr.Accordion("Upload to the Hub", open=False):
            self._repo = gr.Textbox(
                label="Repo",
                placeholder="your-name/my-merge",
                info="a model repo; if it is new, it is private",
            )
            with gr.Row():
                self._push = gr.Button("Push", interactive=False)
                self._stop_push = gr.Button("Interrupt the push")
            self._pushed = gr.HTML()

    def build_picture(self) -> None:
        """Build the display of the run, which is long and so is built last."""
        self._shown = gr.HTML()
        self._seen = gr.State()

    def wire(self, page: gr.Blocks, options: Sequence[Field], message_field: Field) -> None:
        """Connect the fields, the buttons and the timer to their functions.

        Args:
            page: the page that contains this part; as it is loaded, the newest run is chosen.
            options: the fields of the options for resuming a run.
            message_field: the field for messages about refused actions.
        """
        page.load(self._newest, None, self.run, **QUIET)
        self._stop.click(self._ask_to_stop, self.run, message_field, **PRIVATE)
        self._resume.click(self._continue_run, [self.run, *options], message_field, **PRIVATE)
        self._push.click(self._push_model, [self.run, self._repo], self._pushed, **QUIET)
        self._stop_push.click(self._pushes.stop, None, None, **QUIET)
        buttons = [self._stop, self._resume, self._push]
        refresh_event: dict[str, Any] = {
            "fn": self._refresh,
            "inputs": [self.run, self._seen],
            "outputs": [self._shown, self._seen, self.run, *buttons],
        }
        gr.Timer(SECONDS).tick(**refresh_event, **QUIET)
        self.run.change(**refresh_event, **QUIET)

    def _newest(self, request: gr.Request) -> Any:
        """Return the update that selects the newest run, if there is one."""
        try:
            choices = choices_of(self._workspace_of(request))
        except ResumergeError:
            return gr.skip()
        return gr.update(choices=choices, value=choices[0][1] if choices else None)

    def _ask_to_stop(self, request: gr.Request, run: str | None) -> str:
        """Ask a run to stop, and return a message as HTML."""
        refusal = _tried(
            "The run was not stopped", lambda: self._workspace_of(request).stop(run or "")
        )
        return refusal or message_html(
            "The run was asked to stop", "It commits first; it can be resumed."
        )

    def _continue_run(self, request: gr.Request, run: str | None, *options: Any) -> str:
        """Resume a run; return the refusal as HTML, or empty text."""

        def resume() -> None:
            self._workspace_of(request).resume(
                run or "", options_from_fields(self._declarations, options)
            )

        return _tried("The run did not go on", resume)

    def _push_model(self, request: gr.Request, run: str | None, repo: str) -> Iterator[str]:
        """Yield the progress of an upload, and its result, as HTML."""
        yield from self._pushes.follow(
            request, lambda began: self._workspace_of(request).push(run or "", repo.strip(), began)
        )

    def _refresh(self, request: gr.Request, run: str | None, seen: _Seen | None) -> tuple[Any, ...]:
        """Return updates that show the present state of a run.

        Fields that have not changed are not updated.

        Args:
            request: the request of a browser, which tells whose workspace is shown.
            run: the id of the chosen run; None without one.
            seen: the state that the previous call returned.
        """
        if not run:
            return "", None, gr.skip(), *_buttons("")
        try:
            workspace = self._workspace_of(request)
            document = workspace.status(run)
        except ResumergeError as error:
            return error_html("This run cannot be shown", error), None, gr.skip(), *_buttons("")
        present_state = _Seen(
            run,
            _label(document),
            document["bytes"]["committed"],
            len(document["events"]),
            tuple(workspace.names()),
        )
        if present_state == seen and document["state"] != "running":
            return (gr.skip(),) * 6
        runs = (
            gr.skip()
            if present_state.has_same_list(seen)
            else gr.update(choices=choices_of(workspace))
        )
        return fragment([document]), present_state, runs, *_buttons(document["state"])


def _tried(title: str, act: Callable[[], None]) -> str:
    """Do an action, and return its refusal as HTML; empty text if it succeeded."""
    try:
        act()
    except ResumergeError as error:
        return error_html(title, error)
    return ""


def _label(run: Mapping[str, Any]) -> str:
    return f"{run['id']}: {state_word(run)}, {committed_share(run):.0%}"


def _buttons(state: str) -> tuple[Any, ...]:
    """Return the updates of the buttons that stop, resume and push, for the state of a run."""
    states = ("running", "interrupted", "done")
    return tuple(gr.update(interactive=state == wanted) for wanted in states)
