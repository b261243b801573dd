"""A streamed GET with the client, the headers and the credentials of huggingface_hub."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from resumerge.remote.file import Response

CHUNK = 16384
"""Largest piece of a body, in bytes, where the HTTP library asks for a size."""


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

        def abort() -> None:
            with suppress(Exception):
                stream = response.extensions["network_stream"]
                stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

        yield Response(response.status_code, response.headers, chunks, abort)
