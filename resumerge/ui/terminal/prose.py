"""Text for people. Lines are broken only at spaces, so that words can be copied."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text


class Prose:
    """Text that is folded to the width of the console.

    A word that is wider than the terminal, such as a path, begins a new line. The terminal wraps
    such a word, and can still copy it in one piece.

    Args:
        text: the text, with any number of lines.
        label: a word before the text; empty for none.
        style: the style of the label; the style of the text if there is no label.
        indent: columns before the continuation lines; by default, two more than the first line
            has.
        whole: whether the text is a command, which is never folded.
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
    """Print a message: as `Prose` on a terminal, with unbroken lines in a log.

    Lines of a log are not folded, so that they can be searched.
    """
    soft_wrap = not console.is_terminal
    console.print(Prose(text, label, style, whole=whole), crop=False, soft_wrap=soft_wrap)


def _fold(words: Sequence[str], width: int | None, indent: int | None) -> list[str]:
    """Return the words as lines. The indent of a line shrinks if a long word needs the space."""
    if indent is None:
        one_line = " ".join(words)
        indent = len(one_line) - len(one_line.lstrip()) + 2
    lines = [words[0]]
    for word in words[1:]:
        if width is None or cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += " " + word
        else:
            lines.append(" " * max(0, min(indent, width - cell_len(word))) + word)
    return lines
