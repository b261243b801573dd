"""The part of the page that compares models."""

from __future__ import annotations

from collections.abc import Iterator

import gradio as gr

from resumerge.ui.html.comparison import comparison_fragment
from resumerge.ui.web.parts.shared import PRIVATE, QUIET, Follower, WorkspaceOf


class ComparisonPart:
    """The fields for the names of models, and the result of their comparison.

    Args:
        workspace_of: returns the workspace of the person who sends a request.
    """

    def __init__(self, workspace_of: WorkspaceOf) -> None:
        self._workspace_of = workspace_of
        self._comparisons = Follower("The comparison", comparison_fragment)

    def build(self) -> None:
        """Build the fields, and connect them to their functions."""
        with gr.Accordion("Compare models", open=False):
            models = gr.Textbox(
                label="Models to compare, one in a line",
                info="as in a recipe; the others are compared with the first",
                lines=2,
                max_lines=12,
            )
            base = gr.Textbox(label="Base model of these", info="that they were made of; or empty")
            with gr.Row():
                begin_button = gr.Button("Compare them")
                stop_button = gr.Button("Interrupt the comparison")
            result = gr.HTML()
        begin_button.click(self._compare, [models, base], result, **QUIET)
        stop_button.click(self._comparisons.stop, None, None, **PRIVATE)

    def _compare(self, request: gr.Request, models: str, base: str) -> Iterator[str]:
        """Yield the progress of a comparison, and its result, as HTML."""
        names = list(filter(None, map(str.strip, models.splitlines())))
        yield from self._comparisons.follow(
            request, lambda began: self._workspace_of(request).compare(names, base.strip(), began)
        )
