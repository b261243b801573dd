"""Callbacks of a download."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from resumerge.remote.file import Response


@dataclass
class DownloadCallbacks:
    """The functions that a download calls while it runs, in the thread that downloads.

    Args:
        on_progress: called with the number of bytes of the file that are on disk so far.
        check: called often; an exception that it raises ends the download.
        sleep: waits the given number of seconds, or raises to end the download; `time.sleep` if
            None.
        on_start: called with the inode of the partial file, before its first byte is requested.
        on_event: called with an event's kind and facts when a fault was found and repaired.
        response: the response that is being read now, which another thread may abort.
    """

    on_progress: Callable[[int], None] = field(default=lambda nbytes: None)
    check: Callable[[], None] = field(default=lambda: None)
    sleep: Callable[[float], None] | None = None
    on_start: Callable[[int], None] = field(default=lambda inode: None)
    on_event: Callable[..., None] = field(default=lambda kind, **data: None)
    response: Response | None = None
