"""What is said while a file is downloaded, without what it takes to download one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from resumerge.hub.http import Answer


@dataclass
class Watch:
    """What a download tells, and is told, as it goes; called in the thread that downloads.

    Args:
        tell: the bytes that are there so far.
        check: raises what shall end the download.
        pause: waits for so many seconds, or raises what shall end the download.
        began: the inode of the partial file, before the first byte of it is asked for.
        event: a kind and facts, when something is not as it should be.
        answer: the answer that is being read, for whoever wants to cut it off.
    """

    tell: Callable[[int], None] = field(default=lambda nbytes: None)
    check: Callable[[], None] = field(default=lambda: None)
    pause: Callable[[float], None] | None = None
    began: Callable[[int], None] = field(default=lambda inode: None)
    event: Callable[..., None] = field(default=lambda kind, **data: None)
    answer: Answer | None = None
