"""A streamed GET with the client, the headers and the credentials of huggingface_hub."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

READ = 16384
"""Bytes that a chunk has at most where the library asks for a size."""


@dataclass(frozen=True)
class Answer:
    """A response whose body has not been read.

    Args:
        status: after redirects.
        headers: case does not matter.
        chunks: the body, as it arrives.
    """

    status: int
    headers: Any
    chunks: Iterator[bytes]
    _response: Any

    def cut(self) -> None:
        """End the connection from another thread; whoever reads it gets an error."""
        with suppress(Exception):
            stream = self._response.extensions["network_stream"]
            stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


@contextmanager
def get(url: str, headers: dict[str, str]) -> Iterator[Answer]:
    """Ask for a URL; redirects are followed, and the token stays with the host it is meant for.

    Raises:
        HfHubHTTPError: the answer says no.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

    headers = {
        **build_hf_headers(library_name="resumerge"),
        "Accept-Encoding": "identity",
        **headers,
    }
    session: Any = get_session()
    timeout = float(constants.HF_HUB_DOWNLOAD_TIMEOUT)
    if callable(getattr(session, "stream", None)):  # httpx, from huggingface_hub 1.0 on
        with session.stream("GET", url, headers=headers, timeout=timeout) as response:
            if response.status_code != 416:
                hf_raise_for_status(response)
            yield Answer(response.status_code, response.headers, response.iter_bytes(), response)
    else:  # requests
        with session.get(url, headers=headers, timeout=timeout, stream=True) as response:
            if response.status_code != 416:
                hf_raise_for_status(response)
            chunks = response.iter_content(READ)
            yield Answer(response.status_code, response.headers, chunks, response)
