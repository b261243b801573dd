"""A streamed GET with the client, the headers and the credentials of huggingface_hub."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from resumerge.remote.file import Response

CHUNK = 16384
"""The bytes of a body that are read at once with requests. (httpx chooses the size itself.)"""

REDIRECT_SECONDS = 300.0
"""The seconds for which the target of a redirect is used again, to make fewer requests to the Hub.

The targets are valid for longer.
"""

_redirects: dict[str, tuple[str, float]] = {}
"""The target of the Hub's redirect for each requested URL, and the time until which it is used.

The targets are secrets, because they are signed.
"""


@contextmanager
def get(url: str, headers: dict[str, str]) -> Iterator[Response]:
    """Request a URL and follow redirects. The token is not sent to another host.

    Args:
        url: the address of a file on the Hub.
        headers: headers in addition to those of huggingface_hub.

    Raises:
        HfHubHTTPError: the status is an error other than 416 (range not satisfiable).
    """
    with _opened(url, headers) as response:
        yield _as_response(response)


@contextmanager
def get_at_known_server(url: str, headers: dict[str, str]) -> Iterator[Response]:
    """Request a URL like `get`, but directly from the target of an earlier redirect if possible.

    Args:
        url: the address of a file on the Hub, whose redirects are remembered.
        headers: headers in addition to those of huggingface_hub.

    Raises:
        HfHubHTTPError: the status is an error other than 416 (range not satisfiable).
    """
    with ExitStack() as stack:
        redirect_target, valid_until = _redirects.get(url, ("", 0.0))
        if time.monotonic() < valid_until:
            try:
                response = stack.enter_context(_opened(redirect_target, headers, token=False))
            except Exception:  # expired, or its server fails: the Hub may redirect elsewhere
                _redirects.pop(url, None)
            else:
                yield _as_response(response)
                return
        response = stack.enter_context(_opened(url, headers))
        if urlsplit(str(response.url)).netloc != urlsplit(url).netloc:
            _redirects[url] = str(response.url), time.monotonic() + REDIRECT_SECONDS
        yield _as_response(response)


@contextmanager
def _opened(url: str, headers: dict[str, str], token: bool | None = None) -> Iterator[Any]:
    """Request a URL, and yield the HTTP library's response.

    Args:
        url: the address, on the Hub or on the server that a redirect named.
        headers: headers in addition to those of huggingface_hub.
        token: False to send no token, to hosts other than the Hub; None to send the user's token.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

    headers = {
        **build_hf_headers(library_name="resumerge", token=token),
        "Accept-Encoding": "identity",
        **headers,
    }
    session: Any = get_session()
    options = {"headers": headers, "timeout": float(constants.HF_HUB_DOWNLOAD_TIMEOUT)}
    with (
        session.stream("GET", url, **options)
        if _is_httpx(session)
        else session.get(url, **options, stream=True)
    ) as response:
        if response.status_code != 416:
            hf_raise_for_status(response)
        yield response


def _as_response(response: Any) -> Response:
    chunks = (
        response.iter_bytes() if hasattr(response, "iter_bytes") else response.iter_content(CHUNK)
    )

    def abort() -> None:
        with suppress(Exception):
            stream = response.extensions["network_stream"]
            stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    return Response(response.status_code, response.headers, chunks, abort)


def _is_httpx(session: Any) -> bool:
    """Return whether a session is httpx's (huggingface_hub 1.0 and later), not requests'."""
    return callable(getattr(session, "stream", None))
