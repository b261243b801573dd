"""The page, built with Gradio from its parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import gradio as gr
from fastapi import FastAPI

from resumerge.options import Option
from resumerge.ui.web.parts.comparison import ComparisonPart
from resumerge.ui.web.parts.options import Field
from resumerge.ui.web.parts.recipe import RecipePart
from resumerge.ui.web.parts.run import RunPart
from resumerge.ui.web.parts.shared import WorkspaceOf

CSS = """
.gradio-container { max-width: 1280px !important; }
.recipe textarea { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.resumerge.resumerge { padding: 0; background: none; max-width: none; }
.resumerge.resumerge :is([role=alert], [role=status]) { margin: 0; }
.resumerge.resumerge :is([role=alert], [role=status]) pre { white-space: pre-wrap; }
.resumerge.resumerge :is(table, tr, th, td) { border-width: 0; }
.resumerge.resumerge :is(th, td) { border-bottom-width: 1px; }
"""
"""The style rules of the page. They undo Gradio's own rules for tables and margins."""


def app_of(page: gr.Blocks) -> FastAPI:
    """Return the application that serves a page. It sends no files of this machine.

    Args:
        page: the page, from `build`.
    """
    return gr.mount_gradio_app(
        FastAPI(openapi_url=None),
        page,
        path="/",
        css=CSS,
        footer_links=[],
        run_history=False,
        blocked_paths=["/"],
        max_file_size="1kb",  # nothing is uploaded
        show_error=False,
        mcp_server=False,
        ssr_mode=False,
    )


class Part(Protocol):
    """An additional part of a page, below the heading."""

    def build(self) -> None:
        """Build the fields."""

    def wire(self, run: RunPart, options: Sequence[Field]) -> None:
        """Connect the buttons to their functions."""


def build(
    workspace_of: WorkspaceOf,
    declarations: Sequence[Option],
    heading: str,
    first: Part | None = None,
) -> gr.Blocks:
    """Return the page.

    Args:
        workspace_of: returns the workspace of the person who sends a request.
        declarations: the options that the page has fields for, as `settings` returns them.
        heading: the text at the top of the page, in Markdown.
        first: an additional part below the heading; None without one.
    """
    recipe, run = RecipePart(workspace_of, declarations), RunPart(workspace_of, declarations)
    with gr.Blocks(title="resumerge", analytics_enabled=False) as page:
        gr.Markdown(heading)
        if first is not None:
            first.build()
        recipe.build()
        run.build()
        ComparisonPart(workspace_of).build()
        run.build_picture()
        if first is not None:
            first.wire(run, recipe.options)
        recipe.wire(run)
        run.wire(page, recipe.options, recipe.message)
    return page
