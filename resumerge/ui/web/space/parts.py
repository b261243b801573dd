"""The additional part of a Space's page: login, resuming from mirrors, removal of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from resumerge.errors import ResumergeError, refuse
from resumerge.options import Option
from resumerge.ui.web.parts.options import Field
from resumerge.ui.web.parts.run import RunPart, choices_of
from resumerge.ui.web.parts.shared import PRIVATE, error_html, message_html
from resumerge.ui.web.settings import options_from_fields
from resumerge.ui.web.space.people import People


class SpacePart:
    """The login, and the buttons that resume a run from its mirror or remove a run.

    Args:
        people: finds the folder of the person who sends a request.
        declarations: the options that the page has fields for, as `declared_for_people` returns
            them.
    """

    def __init__(self, people: People, declarations: Sequence[Option]) -> None:
        self._people, self._declarations = people, declarations

    def build(self) -> None:
        """Build the fields."""
        gr.LoginButton(icon=None)  # an icon would be a file, and the page sends no files
        with gr.Accordion("Go on from a mirror, or remove a run", open=False):
            self._mirror = gr.Dropdown(
                [],
                label="Mirror",
                info="repos of yours with a run that is not finished, and not here",
            )
            with gr.Row():
                self._look = gr.Button("Look for mirrors")
                self._resume_button = gr.Button("Go on from it")
                self._remove = gr.Button("Remove the chosen run from here")
            self._message = gr.HTML()

    def wire(self, run: RunPart, options: Sequence[Field]) -> None:
        """Connect the buttons to their functions.

        Args:
            run: the part that shows the run.
            options: the fields of the options for resuming a run.
        """
        self._look.click(self._look_for_mirrors, None, [self._mirror, self._message], **PRIVATE)
        self._resume_button.click(
            self._continue_run, [self._mirror, *options], [self._message, run.run], **PRIVATE
        )
        self._remove.click(self._remove_run, run.run, [self._message, run.run], **PRIVATE)

    def _look_for_mirrors(self, request: gr.Request) -> tuple[Any, str]:
        """Return the update of the mirrors to choose from, and a message if there are none."""
        try:
            mirrors = self._people.folder_of(request).mirrors()
            if not mirrors:
                raise refuse("None of your repos has a run that is not finished, and not here")
        except ResumergeError as error:
            return gr.update(choices=[], value=None), error_html("No mirror was found", error)
        return gr.update(choices=mirrors, value=mirrors[0]), ""

    def _continue_run(
        self, request: gr.Request, name: str | None, *options: Any
    ) -> tuple[str, Any]:
        """Resume a run from its mirror, and select it; or return a message."""
        try:
            folder = self._people.folder_of(request)
            run = folder.resume_from_mirror(
                name or "", options_from_fields(self._declarations, options)
            )
        except ResumergeError as error:
            return error_html("The run did not go on", error), gr.skip()
        return "", gr.update(choices=choices_of(folder), value=run)

    def _remove_run(self, request: gr.Request, run: str | None) -> tuple[str, Any]:
        """Remove a run from this machine, and select the newest of the others."""
        try:
            folder = self._people.folder_of(request)
            folder.remove(run or "")
        except ResumergeError as error:
            return error_html("The run was not removed", error), gr.skip()
        choices = choices_of(folder)
        newest_run = choices[0][1] if choices else None
        return message_html("Removed from here", "Its mirror stays."), gr.update(
            choices=choices, value=newest_run
        )
