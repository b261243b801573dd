"""Callbacks of a download."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from resumerge.remote.file import Response


@dataclass
class DownloadCallbacks:
    """The functions that a download calls, in the downloading thread.

    Args:
        on_progress: called with the number of bytes of the file that are on disk.
        check: called often; may raise to end the download.
        sleep: called to wait for a number of seconds; may raise to end the download. None for
            `time.sleep`.
        on_start: called with the inode of the partial file, before the first request.
        on_event: called with an event's kind and facts when damage was found.
        response: the response that is being read, which another thread may abort; None if no
            response is being read.
    """

    on_progress: Callable[[int], None] = field(default=lambda nbytes: None)
    check: Callable[[], None] = field(default=lambda: None)
    sleep: Callable[[float], None] | None = None
    on_start: Callable[[int], None] = field(default=lambda inode: None)
    on_event: Callable[..., None] = field(default=lambda kind, **data: None)
    response: Response | None = None
