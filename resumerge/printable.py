"""Text from elsewhere, made fit for a terminal: names, paths and messages that others chose."""

from __future__ import annotations


def printable(text: object) -> str:
    r"""The text in one line; what could drive a terminal is spelled out, like ``\x1b``."""
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown)
