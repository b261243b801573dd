"""The refusal of requests that a page of another origin makes a browser send."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

READS = ("GET", "HEAD", "OPTIONS")


class SameOrigin:
    """An application that answers requests of its own origin, and requests without an origin.

    Any page can make a browser send requests to this machine, with the user's cookies: the cookie
    of a Space is also sent from other sites, since a Space is shown in a frame. But a page cannot
    choose the ``Origin`` that the browser sends.

    Args:
        app: the application behind the check.
        hosts: names of its host, besides the host in the request.
    """

    def __init__(self, app: Application, hosts: Collection[str] = ()) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, with status 403 if its origin is another page."""
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
        own_hosts = (headers.get("host"), headers.get("x-forwarded-host"), *self._hosts)
        return urlsplit(origin).netloc in filter(None, own_hosts)
