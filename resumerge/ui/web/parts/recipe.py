"""The part of the page that writes, plans and merges a recipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from resumerge.documents.methods import methods_json
from resumerge.documents.new_recipe import new_recipe
from resumerge.errors import ResumergeError, refuse
from resumerge.options import Option
from resumerge.ui.html.plan import fragment
from resumerge.ui.web.parts.options import option_fields
from resumerge.ui.web.parts.run import RunPart, choices_of
from resumerge.ui.web.parts.shared import PRIVATE, QUIET, WorkspaceOf, error_html
from resumerge.ui.web.settings import options_from_fields

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


class RecipePart:
    """The fields for a recipe and its options, the plan, and the button that merges.

    Args:
        workspace_of: returns the workspace of the person who sends a request.
        declarations: the options that the page has fields for, as `settings` returns them.
    """

    def __init__(self, workspace_of: WorkspaceOf, declarations: Sequence[Option]) -> None:
        self._workspace_of, self._declarations = workspace_of, declarations

    def build(self) -> None:
        """Build the fields."""
        with gr.Row():
            with gr.Column(min_width=320):
                with gr.Accordion("Write a recipe", open=False):
                    self._build_writer()
                with gr.Accordion("Options of the merge", open=False):
                    self.options = option_fields(self._declarations)
                self._recipe = gr.Textbox(
                    label="Recipe (YAML)",
                    placeholder=RECIPE,
                    lines=14,
                    max_lines=40,
                    elem_classes="recipe",
                )
                self._name = gr.Textbox(label="Name of the output", placeholder="my-merge")
                self._merge = gr.Button("Merge", variant="primary")
                self.message = gr.HTML()
            with gr.Column(min_width=320):
                self._plan = gr.HTML()

    def _build_writer(self) -> None:
        method_documents = methods_json(None)["methods"]
        methods = [
            (f"{method['name']}: {method['summary']}", method["name"])
            for method in method_documents
        ]
        words = gr.Textbox(
            label="Find models", info="part of a name; empty finds those in the folder"
        )
        find_button = gr.Button("Find")
        found_models = gr.Radio(
            [], label="Found", info="the one that is chosen is added below", visible=False
        )
        models = gr.Textbox(label="Models, one in a line", lines=2, max_lines=12)
        self._parts: list[gr.components.Component] = [
            gr.Dropdown(methods, label="Method", value="linear"),
            models,
            gr.Textbox(label="Base model", info="that the others were trained from; or empty"),
            gr.Dropdown(["bfloat16", "float16", "float32"], label="Type of the numbers"),
        ]
        self._begin = gr.Button("Write it")
        self._not_found = gr.HTML()
        gr.on(
            [words.submit, find_button.click],
            self._find,
            words,
            [found_models, self._not_found],
            **PRIVATE,
        )
        found_models.input(self._add, [found_models, models], [found_models, models], **QUIET)

    def wire(self, run: RunPart) -> None:
        """Connect the fields and buttons to their functions.

        Args:
            run: the part that shows runs, in which a started run is chosen.
        """
        merge_fields = [self._recipe, self._name, *self.options]
        gr.on(
            [field.change for field in merge_fields],
            self._show_plan,
            merge_fields,
            self._plan,
            trigger_mode="always_last",  # after a plan, only the latest change is planned
            **QUIET,
        )
        self._begin.click(
            self._write, [self._recipe, *self._parts], [self._recipe, self._not_found], **PRIVATE
        )
        self._merge.click(self._start_merge, merge_fields, [self.message, run.run], **PRIVATE)

    def _find(self, request: gr.Request, words: str) -> tuple[Any, str]:
        """Return the update of the models to choose from, and a message if there are none."""
        try:
            model_names = self._workspace_of(request).search(words.strip())
            if not model_names:
                raise refuse("No model has such a name", found=words or "no models in the folder")
        except ResumergeError as error:
            return gr.update(choices=[], value=None, visible=False), error_html(
                "Nothing was found", error
            )
        return gr.update(choices=model_names, value=None, visible=True), ""

    def _add(self, found: str | None, models: str) -> tuple[Any, str]:
        """Add the chosen model to the list of models, and clear the choice."""
        lines = list(filter(None, [*models.splitlines(), found]))
        return gr.update(value=None), "\n".join(lines)

    def _write(self, text: str, method: str, models: str, base: str, dtype: str) -> tuple[Any, str]:
        """Return a new recipe with comments if the recipe's field is empty; else a message."""
        try:
            if text.strip():
                raise refuse("The recipe would be replaced", fix="empty it first")
            names = list(filter(None, map(str.strip, models.splitlines())))
            return new_recipe(method, names, base.strip() or None, dtype), ""
        except ResumergeError as error:
            return gr.skip(), error_html("The recipe was not written", error)

    def _show_plan(self, request: gr.Request, text: str, name: str, *options: Any) -> str:
        """Return the plan of a recipe, or its problems, as HTML."""
        if not text.strip():
            return ""
        try:
            merge_options = options_from_fields(self._declarations, options)
            plan = self._workspace_of(request).plan(text, name.strip(), merge_options)
            # The choices name Python arguments, which a page does not have.
            return fragment({**plan, "choices": []})
        except ResumergeError as error:
            return error_html("Problems to fix first", error)

    def _start_merge(
        self, request: gr.Request, text: str, name: str, *options: Any
    ) -> tuple[str, Any]:
        """Start a merge, and select its run; or return a message."""
        try:
            workspace = self._workspace_of(request)
            run = workspace.merge(
                text, name.strip(), options_from_fields(self._declarations, options)
            )
        except ResumergeError as error:
            return error_html("The merge did not begin", error), gr.skip()
        return "", gr.update(choices=choices_of(workspace), value=run)
