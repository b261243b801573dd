"""Code that the parts of the page share: workspaces, messages, commands in progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from resumerge.errors import InputError, ResumergeError
from resumerge.ui.html.environment import render
from resumerge.ui.web.commands import Process, ask_to_stop
from resumerge.ui.web.workspace import Began, Lines, Workspace

WorkspaceOf = Callable[[gr.Request], Workspace]
"""A function that returns the workspace of a request's sender, or raises InputError."""

AT_ONCE = 4
"""The most events of one kind that are handled at the same time, over all open pages."""

PRIVATE: dict[str, Any] = {"api_visibility": "private", "concurrency_limit": AT_ONCE}
QUIET: dict[str, Any] = {**PRIVATE, "show_progress": "hidden"}


def error_html(title: str, error: ResumergeError) -> str:
    """Return an error as HTML."""
    return message_html(title, *(error.problems if isinstance(error, InputError) else [error]))


def message_html(title: str, *texts: object, role: str = "alert") -> str:
    """Return a message with a title as HTML.

    Args:
        title: the heading, as plain text; if it is empty, there is no message.
        texts: the paragraphs below the title.
        role: the ARIA role. A screen reader reads an ``alert`` at once, a ``status`` later.
    """
    return render("message.html.j2", title=title, texts=texts, role=role)


class Follower:
    """The long-running commands of one kind, at most one for each open page."""

    def __init__(self, what: str, shown: Callable[[dict[str, Any]], str]) -> None:
        """Store the descriptions of the command.

        Args:
            what: the name of the work in messages, like ``The comparison``.
            shown: converts the command's document to HTML.
        """
        self._what, self._shown = what, shown
        self._working: dict[str, Process] = {}

    def follow(self, request: gr.Request, begin: Callable[[Began], Lines]) -> Iterator[str]:
        """Yield the progress of a command, and then its result, as HTML.

        Args:
            request: the request of a browser's page, which follows one command at a time.
            begin: starts the command, and returns its lines and its document.
        """
        page = str(request.session_hash)
        if page in self._working:
            yield message_html(f"{self._what} of before is still under way", "Interrupt it first.")
            return
        try:
            for line in begin(lambda process: self._working.update({page: process})):
                if isinstance(line, dict):
                    yield self._shown(line)
                elif line:
                    yield message_html(f"{self._what} is under way", line, role="status")
        except ResumergeError as error:
            yield error_html(f"{self._what} did not end", error)
        finally:
            self._working.pop(page, None)

    def stop(self, request: gr.Request) -> None:
        """Ask the command of a page to stop, if a command is in progress."""
        if (process := self._working.get(str(request.session_hash))) is not None:
            ask_to_stop(process)
