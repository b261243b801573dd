"""HTML from Python, escaped unless it is known to be HTML already."""

from __future__ import annotations

from html import escape

from resumerge.printable import printable

_VOID = {"meta", "br", "hr", "rect", "path", "line"}


class Html(str):
    """Text that is HTML."""


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """An element; whatever is not `Html` is escaped, in the children and in the attributes.

    Args:
        children: None is left out.
        attributes: ``class_`` is class, ``stroke_width`` is stroke-width; None is left out.
    """
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = join(*children)
    if name in _VOID and not inner:
        return Html(f"<{name}{words}/>")
    return Html(f"<{name}{words}>{inner}</{name}>")


def join(*children: object) -> Html:
    """One after the other, escaped unless `Html`."""
    return Html("".join(c if isinstance(c, Html) else _text(c) for c in children if c is not None))


def _text(value: object) -> str:
    """Escaped; what could drive a terminal that the page is printed on is spelled out."""
    return escape("\n".join(printable(line) for line in str(value).split("\n")))
