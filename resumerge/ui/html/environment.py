"""The Jinja environment. It escapes every value, and raises an error for a missing value."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import resumerge
from resumerge.documents.history import attempt_seconds
from resumerge.ledger import now
from resumerge.printable import printable
from resumerge.sizes import counted, show_seconds, show_size
from resumerge.ui.text.accounts import reason_line
from resumerge.ui.text.comparison import number, part_in_percent, tokens_sentence
from resumerge.ui.text.format import committed_share, format_event, format_time, state_word


def render(template: str, **context: Any) -> str:
    """Return a template of this package, filled in with values."""
    return TEMPLATES.get_template(template).render(context)


def render_page(template: str, start: str, **context: Any) -> str:
    """Return a page from a template that shows the time and the program's version.

    Args:
        template: the file name of the template.
        start: the first line of the page.
        context: the other values of the template.
    """
    text = render(template, **context, version=resumerge.__version__, now=now())
    return f"{start}\n{text}\n"


def _spell_out(value: object) -> object:
    """Return text with control characters escaped, so that a terminal can show a page safely."""
    if isinstance(value, Markup):
        return value
    return "\n".join(map(printable, str(value).split("\n")))


TEMPLATES = Environment(
    loader=PackageLoader("resumerge.ui.html"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_spell_out,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters |= {
    "attempt_seconds": attempt_seconds,
    "counted": counted,
    "event": format_event,
    "number": number,
    "part": part_in_percent,
    "share": committed_share,
    "known": lambda share: "" if share is None else f"{share:.1%}",
    "percent": lambda share: f"{share:.0%}",
    "reason": reason_line,
    "rate": lambda rate: f"{show_size(rate)}/s",
    "seconds": show_seconds,
    "size": show_size,
    "state": state_word,
    "time": format_time,
    "tokens": tokens_sentence,
}
