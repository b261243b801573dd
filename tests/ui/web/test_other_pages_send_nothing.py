"""Promise: what a page of another origin has a browser send is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from resumerge.ui.web.same_origin import SameOrigin


@pytest.mark.parametrize(
    ("method", "origin", "answered"),
    [
        ("POST", None, True),
        ("POST", "https://me.hf.space", True),
        ("POST", "http://127.0.0.1:7860", True),
        ("POST", "https://proxied.example", True),
        ("POST", "https://evil.example", False),
        ("POST", "null", False),
        ("DELETE", "https://evil.example", False),
        ("GET", "https://evil.example", True),
    ],
)
def test_what_another_page_sends_is_refused(
    method: str, origin: str | None, answered: bool
) -> None:
    reached, sent = [], []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope)

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {}

    headers = [(b"host", b"127.0.0.1:7860"), (b"x-forwarded-host", b"proxied.example")]
    headers += [(b"origin", origin.encode())] if origin is not None else []
    scope = {"type": "http", "method": method, "headers": headers}
    asyncio.run(SameOrigin(app, ["me.hf.space"])(scope, receive, send))
    assert bool(reached) is answered
    assert answered or sent[0]["status"] == 403
