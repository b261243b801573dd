"""Logging for maintainers: the program's decisions and actions, step by step.

Modules log with ``logging.getLogger(__name__)``: at INFO a few lines in a run, at DEBUG lines for
every batch. Nothing is shown without ``--verbose`` or the environment variable RESUMERGE_LOG.
Messages that users must see are printed, not logged.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import TextIO

from resumerge.errors import refuse

VARIABLE = "RESUMERGE_LOG"
"""The environment variable: ``debug`` or ``info`` logs to stderr; ``debug:FILE`` appends to a file.
"""

_FORMAT = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"


class _StderrHandler(logging.StreamHandler[TextIO]):
    """A handler that logs to the present `sys.stderr`.

    A progress bar replaces `sys.stderr`, and draws itself below the logged lines.
    """

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, stream: TextIO) -> None:
        """Ignore the stream, because the handler always uses `sys.stderr`."""


def log_verbosely(times: int) -> None:
    """Log to stderr: at INFO for ``-v``, at DEBUG for ``-vv``; do nothing for 0 times."""
    if times:
        _add(_StderrHandler(), logging.INFO if times == 1 else logging.DEBUG)


def set_up_logging(environment: Mapping[str, str] = os.environ) -> None:
    """Log at the level, and to the place, that RESUMERGE_LOG names; do nothing if it is not set.

    Raises:
        InputError: the variable names no level, or a file that cannot be written.
    """
    text = environment.get(VARIABLE, "")
    if not text:
        return
    name, _, file = text.partition(":")
    level = logging.getLevelNamesMapping().get(name.upper())
    if not level:
        raise refuse(
            f"{VARIABLE} does not name a log level",
            expected="debug, info, warning or error; debug:FILE writes to a file",
            found=repr(text),
        )
    try:
        _add(logging.FileHandler(file) if file else _StderrHandler(), level)
    except OSError as error:
        raise refuse(f"{VARIABLE} names a file that cannot be written", found=error) from None


def _add(handler: logging.Handler, level: int) -> None:
    logger = logging.getLogger("resumerge")
    handler.setFormatter(logging.Formatter(_FORMAT))
    handler.setLevel(level)
    logger.addHandler(handler)
    logger.setLevel(min(level, logger.level or level))
