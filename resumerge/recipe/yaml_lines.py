"""The reader of YAML, which records the line of every value and refuses oversized documents.

Each value has a path: keys joined by dots, list indices in brackets, like ``slices[0].sources[1]``.
The empty path is the path of the whole document.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from resumerge.errors import InputError, Problem, refuse
from resumerge.recipe.invalid import InvalidValue

MOST_CHARS = 300_000
"""The largest size of a recipe in characters: enough for hundreds of slices."""
LARGEST_DEPTH = 40
"""The deepest nesting that is read; a recipe needs 8 levels."""
MOST_NODES = 100_000
"""The largest number of values with all aliases expanded, as a limit for aliases that multiply."""

MOST_DOCUMENTS = 100
"""The largest number of documents in a recipe: the stages and the result."""

_LOOK_ALIKE = frozenset({"Zs", "Cf", "Pi", "Pf", "Pd"})
"""The Unicode categories of spaces, invisible characters, quotation marks and dashes."""

_MAP, _SEQ, _MERGE, _NULL = (
    f"tag:yaml.org,2002:{kind}" for kind in ("map", "seq", "merge", "null")
)


def child(path: str, key: str | int) -> str:
    """Return the path of an entry of a list (by index) or of a mapping (by key)."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def descend(path: str, keys: Iterable[str | int]) -> str:
    """Return the path of the entry that several keys and indices, in order, lead to from `path`."""
    for key in keys:
        path = child(path, key)
    return path


def nearest_line(lines: Mapping[str, int], path: str) -> int | None:
    """Return the line of a path, or of its nearest parent with a line; None without such a line."""
    while path and path not in lines:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return lines.get(path)


@dataclass(frozen=True)
class Document:
    """A YAML document with the line of every value.

    Args:
        data: the top-level mapping; its values are dicts, lists and scalars.
        lines: the line of each YAML path, counted from 1. An entry of a mapping has the line of its
            key. A value from an alias or a merge key has the line on which it is written.
        problems: the duplicate keys; `data` contains the first value of such a key.
    """

    data: dict[Any, Any]
    lines: dict[str, int]
    problems: tuple[Problem, ...]

    def problem(self, error: InvalidValue, file: str) -> Problem:
        """Return the problem of an invalid value, with its path and line.

        Args:
            error: the mistake, located from the top of this document.
            file: the name of the recipe file, for messages.
        """
        path = descend("", error.at)
        line = nearest_line(self.lines, path)
        return Problem(
            error.what, file, path, line, error.expected, error.found, error.fix, error.paste
        )


def load_yaml(text: str, file: str) -> list[Document]:
    """Parse a YAML text with one or more documents, and leave out empty documents.

    Args:
        text: the whole text of a recipe file, already decoded.
        file: the name of the recipe file, for messages.

    Raises:
        InputError: the text is not YAML, has no document, contains a tag that recipes do not use,
            or exceeds `MOST_CHARS`, `MOST_DOCUMENTS`, `LARGEST_DEPTH` or `MOST_NODES`; or the top
            level of a document is not a mapping.
    """
    if len(text) > MOST_CHARS:
        raise refuse(
            "The file is too large for a recipe",
            where=file,
            expected=f"at most {MOST_CHARS:,} characters",
            found=f"{len(text):,} characters",
            fix="Check that the path names the recipe and not another file",
        )
    try:
        loader = _Loader(text)
        documents = []
        for root in loader.roots():
            if isinstance(root, yaml.MappingNode):
                documents.append(_Reader(loader, file).read(root))
            elif root.tag != _NULL:
                raise _not_a_recipe(
                    "The recipe is not a mapping at its top level",
                    "a list" if isinstance(root, yaml.SequenceNode) else "a single value",
                    file,
                    _line(root),
                )
            if len(documents) > MOST_DOCUMENTS:
                raise refuse(
                    "The recipe has too many documents",
                    where=file,
                    line=_line(root),
                    expected=f"at most {MOST_DOCUMENTS}",
                    found="more",
                    fix="Merge the first ones with a recipe of their own, and name its output",
                )
        if not documents:
            raise _not_a_recipe("The recipe is empty", "only comments or blank lines", file, None)
        return documents
    except yaml.YAMLError as error:
        raise _not_yaml(error, text, file) from None


class _TooMuch(yaml.MarkedYAMLError):
    """The error for valid YAML that exceeds `LARGEST_DEPTH` or `MOST_NODES`."""


class _Loader(yaml.SafeLoader):
    """A SafeLoader that does not recurse deeper than `LARGEST_DEPTH`."""

    depth = 0

    def roots(self) -> Iterator[yaml.Node]:
        """Yield the root node of each document."""
        while self.check_node():
            if (root := self.get_node()) is not None:
                yield root

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.depth += 1
        if self.depth > LARGEST_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call, unused-ignore]
            raise _TooMuch(problem="deeper nesting", problem_mark=mark)
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


class _Reader:
    """The conversion of nodes into data. It records lines, and counts values as aliases expand."""

    def __init__(self, loader: _Loader, file: str) -> None:
        self.loader = loader
        self.file = file
        self.nodes = 0
        self.lines: dict[str, int] = {}
        self.duplicates: dict[tuple[object, int], Problem] = {}

    def read(self, root: yaml.MappingNode) -> Document:
        self.lines[""] = _line(root)
        data = self.value(root, "", 0)
        return Document(data, self.lines, tuple(self.duplicates.values()))

    def value(self, node: yaml.Node, path: str, depth: int) -> Any:
        self.count(node, depth)
        if isinstance(node, yaml.MappingNode) and node.tag == _MAP:
            result: dict[Any, Any] = {}
            for key_node, value_node in self.entries(node, path, depth):
                key = self.scalar(key_node)
                if key in result:  # a merge key never overrides an entry of the mapping itself
                    continue
                entry_path = child(path, key if isinstance(key, str) else repr(key))
                self.lines[entry_path] = _line(key_node)
                result[key] = self.value(value_node, entry_path, depth + 1)
            return result
        if isinstance(node, yaml.SequenceNode) and node.tag == _SEQ:
            items = []
            for index, item in enumerate(node.value):
                self.lines[child(path, index)] = _line(item)
                items.append(self.value(item, child(path, index), depth + 1))
            return items
        return self.scalar(node)

    def entries(
        self, mapping: yaml.MappingNode, path: str, depth: int
    ) -> Iterator[tuple[yaml.Node, yaml.Node]]:
        """Yield the entries of a mapping itself, then the entries that its merge keys add."""
        first_lines: dict[Any, int] = {}
        merged_nodes: list[yaml.Node] = []
        for key_node, value_node in mapping.value:
            self.count(key_node, depth)
            if key_node.tag == _MERGE:
                merged_nodes.append(value_node)
                continue
            key = self.scalar(key_node)
            if key in first_lines:
                self.add_duplicate(key, path, first_lines[key], _line(key_node))
                continue
            first_lines[key] = _line(key_node)
            yield key_node, value_node
        for node in merged_nodes:
            for source in node.value if isinstance(node, yaml.SequenceNode) else [node]:
                if not isinstance(source, yaml.MappingNode):
                    raise _marked("'<<' takes a mapping, or a list of mappings", source)
                self.count(source, depth)
                yield from self.entries(source, path, depth + 1)

    def scalar(self, node: yaml.Node) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            kind = "a mapping" if isinstance(node, yaml.MappingNode) else "a list"
            raise _marked(f"{kind} (tag {node.tag}) is not allowed here", node)
        try:
            return self.loader.construct_object(node)
        except (ValueError, LookupError, AttributeError, OverflowError):
            raise _marked(
                f"'{node.value[:40]}' is not a valid value for its tag {node.tag}", node
            ) from None

    def count(self, node: yaml.Node, depth: int) -> None:
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise _TooMuch(
                problem="more values, with aliases expanded", problem_mark=node.start_mark
            )
        if depth > LARGEST_DEPTH:
            raise _TooMuch(problem="an alias that contains itself", problem_mark=node.start_mark)

    def add_duplicate(self, key: object, path: str, first: int, second: int) -> None:
        lines = f"lines {first} and {second}" if first != second else f"line {first}"
        self.duplicates[key, second] = Problem(
            f"The key '{key}' is written twice, on {lines}",
            where=self.file,
            path=child(path, str(key)),
            line=second,
            expected="each key once",
            found=lines,
            fix="Delete one of the two",
        )


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _marked(problem: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def _not_yaml(error: yaml.YAMLError, text: str, file: str) -> InputError:
    line: int | None = None
    description = "text that cannot be parsed"
    if isinstance(error, yaml.MarkedYAMLError):
        # If the text ended too early, the mistake is where the open quote or bracket began.
        is_cut_off = "end of stream" in (error.problem or "")
        marks = [error.problem_mark, error.context_mark][:: -1 if is_cut_off else 1]
        mark = marks[0] or marks[1]
        line = mark.line + 1 if mark else None
        description = (
            ", ".join(part for part in (error.context, error.problem) if part) or description
        )
    elif isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        description = f"the character U+{error.character:04X}, which YAML does not allow"
    if isinstance(error, _TooMuch):
        return refuse(
            "The YAML is too large or too deep for a recipe",
            where=file,
            line=line,
            expected=f"at most {MOST_NODES:,} values, nested at most {LARGEST_DEPTH} deep",
            found=description,
            fix="Write out what the aliases (*name) stand for, or check that this is a recipe",
        )
    last_lines = text.split("\n")[max(line - 2, 0) : line] if line else []
    fix = (
        "Check this line and the one above: indentation by spaces, closed quotes "
        "and brackets, a space after each ':' and '-'"
    )
    return refuse(
        "The recipe is not valid YAML",
        where=file,
        line=line,
        expected="YAML of mappings, lists, text and numbers",
        found=description,
        fix=_copied_from_a_page(last_lines) or fix,
    )


def _copied_from_a_page(lines: Sequence[str]) -> str:
    """Return the advice on lines that were copied from a formatted page; "" for other lines.

    Such lines contain a fence of Markdown, or characters that are letters to YAML: characters that
    look like a space, a quotation mark or a dash, or that are invisible.
    """
    if any(line.strip().startswith("```") for line in lines):
        return "Delete the lines with ```: they are around a recipe in Markdown, not in it"
    letter_names = {
        f"U+{ord(letter):04X} ({unicodedata.name(letter, 'no name').lower()})": None
        for line in lines
        for letter in line
        if not letter.isascii() and unicodedata.category(letter) in _LOOK_ALIKE
    }
    if not letter_names:
        return ""
    return (
        f"Type this line and the one above again: they have {', '.join(letter_names)}, "
        "which is a letter to YAML"
    )


def _not_a_recipe(what: str, found: str, file: str, line: int | None) -> InputError:
    return refuse(
        what,
        where=file,
        line=line,
        expected="keys like merge_method, models and dtype",
        found=found,
        fix="Write at least 'merge_method: linear' and a list of 'models:'",
    )
