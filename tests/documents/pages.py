"""Reading a page back: its elements, and the values that its drawings show."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "br", "hr"}


@dataclass
class Element:
    name: str
    attributes: dict[str, str]
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def all(self, name: str, class_: str | None = None) -> list[Element]:
        """Return the elements of a name (and a class) below this one, in order."""
        found = []
        for child in self.children:
            mine = child.attributes.get("class", "").split()
            if child.name == name and (class_ is None or class_ in mine):
                found.append(child)
            found += child.all(name, class_)
        return found

    @property
    def whole_text(self) -> str:
        return self.text + "".join(child.whole_text for child in self.children)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {key: value or "" for key, value in attrs})
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Element(tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].name == tag, f"</{tag}> closes <{self.open[-1].name}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].text += data


def read_page(text: str) -> Element:
    """Return the root of a page, and check that its elements are closed in order."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert [element.name for element in reader.open] == [""]
    return reader.root


def drawing(page: Element, kind: str) -> Element:
    """Return the first drawing of a kind."""
    return page.all("svg", kind)[0]


def drawn_values(svg: Element, kind: str = "line") -> list[tuple[float, float]]:
    """Return (column, value) of every point of a drawing's lines, in the ledger's unit."""
    top = float(svg.attributes["data-top"])
    return [
        (float(x), top * (1 - float(y) / 100))
        for path in svg.all("path", kind)
        for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path.attributes["d"])
    ]
