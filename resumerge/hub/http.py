"""A streamed GET with the client, the headers and the credentials of huggingface_hub."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

CHUNK = 16384
"""Largest piece of a body, in bytes, where the HTTP library asks for a size."""


@dataclass(frozen=True)
class Response:
    """A response whose body has not been read.

    Args:
        status: the HTTP status after redirects.
        headers: looked up without regard to case.
        chunks: the body, as it arrives.
    """

    status: int
    headers: Any
    chunks: Iterator[bytes]
    _response: Any

    def abort(self) -> None:
        """Close the connection from another thread; the reading thread gets an error."""
        with suppress(Exception):
            stream = self._response.extensions["network_stream"]
            stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


@contextmanager
def get(url: str, headers: dict[str, str]) -> Iterator[Response]:
    """Request a URL and follow redirects. The token is sent only to the host that it is meant for.

    Raises:
        HfHubHTTPError: the status is an error other than 416 (range not satisfiable).
    """
    from huggingface_hub import constants
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

    headers = {
        **build_hf_headers(library_name="resumerge"),
        "Accept-Encoding": "identity",
        **headers,
    }
    session: Any = get_session()
    options = {"headers": headers, "timeout": float(constants.HF_HUB_DOWNLOAD_TIMEOUT)}
    is_httpx = callable(getattr(session, "stream", None))  # from huggingface_hub 1.0 on
    with (
        session.stream("GET", url, **options)
        if is_httpx
        else session.get(url, **options, stream=True)
    ) as response:
        if response.status_code != 416:
            hf_raise_for_status(response)
        chunks = response.iter_bytes() if is_httpx else response.iter_content(CHUNK)
        yield Response(response.status_code, response.headers, chunks, response)
