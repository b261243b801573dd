"""Refuses what a page of another origin has a browser send, with the cookies of its user."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

READS = ("GET", "HEAD", "OPTIONS")


class SameOrigin:
    """An application that answers requests of its own origin, and those that name none.

    The session's cookie is sent from every page, since a Space is shown within another one.

    Args:
        app: the application.
        hosts: its names, beside that of the request.
    """

    def __init__(self, app: Application, hosts: frozenset[str]) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http" and not self._may(scope):
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": b"This came from another page."})
            return
        await self._app(scope, receive, send)

    def _may(self, scope: Scope) -> bool:
        headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
        origin = headers.get("origin")
        if scope["method"] in READS or origin is None:
            return True
        return urlsplit(origin).netloc in {headers.get("host"), *self._hosts}
