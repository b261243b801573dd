"""Text for people, broken at spaces only: words that people copy or type stay whole."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text


class Prose:
    """Lines of text that fit into the width of the console.

    A word that is wider than the terminal, like a path, begins a line of its own. The terminal
    breaks it, and copies it whole.

    Args:
        label: stands before the text.
        style: the style of the label; the style of the text if there is no label.
        indent: columns before the lines into which a line is folded; by default, two more than the
            line begins with.
        whole: whether the text is one word, although it has spaces: a command.
    """

    def __init__(
        self,
        text: str,
        label: str = "",
        style: str = "",
        *,
        indent: int | None = None,
        whole: bool = False,
    ) -> None:
        self._label, self._style, self._indent = label, style, indent
        lines = [[text]] if whole else [line.split(" ") for line in text.split("\n")]
        self._lines = [[label, *lines[0]] if label else lines[0], *lines[1:]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = None if options.no_wrap else options.max_width
        lines = (line for words in self._lines for line in _fold(words, width, self._indent))
        text = Text("\n".join(lines), no_wrap=True, overflow="ignore")
        text.stylize(self._style, 0, len(self._label) or None)
        yield text


def say(
    console: Console, text: str, label: str = "", style: str = "", *, whole: bool = False
) -> None:
    """Print a message.

    On a terminal it is `Prose`; in a log, which is searched, each line is whole.
    """
    soft_wrap = not console.is_terminal
    console.print(Prose(text, label, style, whole=whole), crop=False, soft_wrap=soft_wrap)


def _fold(words: Sequence[str], width: int | None, indent: int | None) -> list[str]:
    """Return the words in lines; a word without room beside the indent gets a smaller indent."""
    if indent is None:
        first = " ".join(words)
        indent = len(first) - len(first.lstrip()) + 2
    lines = [words[0]]
    for word in words[1:]:
        if width is None or cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += " " + word
        else:
            lines.append(" " * max(0, min(indent, width - cell_len(word))) + word)
    return lines
