"""Shared by the parts of the page: the type of workspaces, messages, commands under way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from resumerge.errors import InputError, ResumergeError
from resumerge.ui.html.environment import render
from resumerge.ui.web.commands import Process, ask_to_stop
from resumerge.ui.web.workspace import Began, Lines, Workspace

WorkspaceOf = Callable[[gr.Request], Workspace]
"""Returns the folder of the person who sends a request; raises InputError without one."""

AT_ONCE = 4
"""The events of one kind that are handled at once, for all open pages together."""

PRIVATE: dict[str, Any] = {"api_visibility": "private", "concurrency_limit": AT_ONCE}
QUIET: dict[str, Any] = {**PRIVATE, "show_progress": "hidden"}


def error_html(title: str, error: ResumergeError) -> str:
    """Return an error as HTML."""
    return message_html(title, *(error.problems if isinstance(error, InputError) else [error]))


def message_html(title: str, *texts: object, role: str = "alert") -> str:
    """Return texts under a title as HTML.

    Args:
        title: the title.
        texts: the texts.
        role: how a screen reader takes it: ``alert`` at once, ``status`` when there is time.
    """
    return render("message.html.j2", title=title, texts=texts, role=role)


class Follower:
    """Follows commands that work for long, one for each page that is open, and stops them."""

    def __init__(self, what: str, shown: Callable[[dict[str, Any]], str]) -> None:
        """Describe the command.

        Args:
            what: the name of the work, like ``The comparison``.
            shown: returns the command's document as HTML.
        """
        self._what, self._shown = what, shown
        self._working: dict[str, Process] = {}

    def follow(self, request: gr.Request, begin: Callable[[Began], Lines]) -> Iterator[str]:
        """Yield the progress of a command, and then its result, as HTML.

        Args:
            request: the request of the page.
            begin: starts the command.
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
        """Ask the command of a page to stop, if there is one."""
        if (process := self._working.get(str(request.session_hash))) is not None:
            ask_to_stop(process)
