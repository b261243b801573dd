"""Promise: every file and folder that a folder's docstring or the lists of rooms name exists.

Every folder is named, too: in the docstring of the one around it, or in one of the lists. A
folder's docstring names each of its files.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import resumerge
from resumerge.methods.base import MergeMethod
from resumerge.tensors import Tensor
from resumerge.tensors.generated import Drawn, Filled, Literal

PACKAGE = Path(resumerge.__file__).parent
CHECKOUT = PACKAGE.parent
FOLDERS = [init.parent for init in sorted(PACKAGE.rglob("__init__.py"))]
ROOMS = [folder for folder in FOLDERS if folder.parent == PACKAGE]

NAME = re.compile(r"[a-z_][a-z_0-9]*(?:[./][a-z_0-9]+)*(?:\.pyi?|\.[ch]|/)?")


def docstring(folder: Path) -> str:
    return ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""


def names_in(text: str) -> Iterator[str]:
    """Yield the words between backquotes that may name a module, a file or a folder."""
    for quoted in re.findall(r"`([^`\s]+)`", text):
        if NAME.fullmatch(quoted):
            yield quoted.removeprefix("resumerge.")


def is_there(name: str, *places: Path) -> bool:
    """Return whether one of the places has a file, folder or module of this name."""
    path = name if "/" in name or name.endswith((".py", ".pyi", ".c", ".h")) else None
    dotted = name.replace(".", "/")
    candidates = [path] if path else [dotted, f"{dotted}.py"]
    return any((place / each).exists() for place in places for each in candidates)


def is_defined(name: str, folder: Path) -> bool:
    """Return whether a folder's files define a function, class or method of this name."""
    defined = re.compile(rf"^\s*(def|class) {re.escape(name.rpartition('.')[2])}\b", re.MULTILINE)
    return any(defined.search(file.read_text(encoding="utf-8")) for file in folder.rglob("*.py"))


def section(file: str, begins: str, ends: str) -> str:
    """Return what is between two texts of a document."""
    return (CHECKOUT / file).read_text(encoding="utf-8").partition(begins)[2].partition(ends)[0]


TABLE = section("docs/architecture.md", "### The rooms", "\n### ")
LISTED = section("CONTRIBUTING.md", "## The rooms", "## How a command works")
ROOM_LIST, _, ENGINE_LIST = LISTED.partition("Inside `engine/`")
DECISIONS = section("docs/architecture.md", "### Where is it decided", "\n### ")
ADDITIONS = section("CONTRIBUTING.md", "## How to add", "\n## ").replace("\n- ", "; ")
PHASES = section("CONTRIBUTING.md", "## How a command works", "\n## ")


def test_the_list_of_things_to_add_has_every_entry() -> None:
    text = section("CONTRIBUTING.md", "## How to add", "\n## ")
    anchors = {
        re.sub(r"[^\w\s-]", "", title.lower()).strip().replace(" ", "-")
        for title in re.findall(r"^### (.*)$", text, re.MULTILINE)
    }
    assert set(re.findall(r"\(#([\w-]+)\)", text.partition("\n### ")[0])) == anchors


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.relative_to(CHECKOUT).as_posix())
def test_a_docstring_names_what_is_there(folder: Path) -> None:
    around = [place for place in folder.parents if place.is_relative_to(CHECKOUT)]
    missing = [
        name
        for name in names_in(docstring(folder))
        if not is_there(name, folder, *around) and not is_defined(name, folder)
    ]
    assert missing == []


def test_the_table_of_rooms_names_what_is_there() -> None:
    rows = re.findall(r"^\| (`.*) \| (.*) \|$", TABLE, re.MULTILINE)
    assert len(rows) > 10
    for room, text in rows:
        rooms = list(names_in(room))
        assert [name for name in rooms if not is_there(name, PACKAGE)] == []
        inside = [PACKAGE, *(PACKAGE / name for name in rooms)]
        assert [name for name in names_in(text) if not is_there(name, *inside)] == []


def test_the_lists_for_contributors_name_what_is_there() -> None:
    places = PACKAGE, PACKAGE / "engine"
    named = re.findall(r"\b[a-z_]+(?:/[a-z_]+)*(?:/|\.py)(?!\w)", ROOM_LIST + PHASES)
    assert len(named) > 20
    inside = [*places, *ROOMS]
    assert [name for name in named if not is_there(name, *inside)] == []
    listed = re.findall(r"^  ([a-z_]+) ", ENGINE_LIST, re.MULTILINE)
    assert [name for name in listed if not is_there(name, PACKAGE / "engine")] == []


def test_a_name_of_a_decision_is_in_the_file_beside_it() -> None:
    """A file contains the name that a text gives with it, as in: `Tries` (`cluster/retries.py`)."""
    of_files = re.findall(
        r"((?:[^()|;.]|\.(?=\w))*)\(`([a-z_0-9/]+\.[pyhc]+)`", DECISIONS + ADDITIONS
    )
    of_files += re.findall(r"((?:`\w+`(?:, | and )?)+) (?:in|of)\s`([a-z_0-9/]+\.py)`", ADDITIONS)
    pairs = {
        (name.rpartition(".")[2], path)
        for text, path in of_files
        for name in re.findall(r"`([A-Za-z_][\w.]*)`", text)
    }
    assert len(pairs) > 60
    assert {pair for pair in pairs if not _is_in(*pair)} == set()


@cache
def _our_files() -> dict[str, list[Path]]:
    """Return the checkout's files, by their names without folders."""
    files = defaultdict(list)
    for folder in ("resumerge", "tests", "benchmarks", "docs", "state"):
        for file in (CHECKOUT / folder).rglob("*.*"):
            files[file.name].append(file)
    return files


def _is_in(name: str, path: str) -> bool:
    files = [f for f in _our_files()[Path(path).name] if f.as_posix().endswith(f"/{path}")]
    return any(re.search(rf"\b{name}\b", file.read_text(encoding="utf-8")) for file in files)


def test_what_a_class_is_said_to_have_is_there() -> None:
    """A file that defines the class contains the name, as in `Tries.record_failure`."""
    texts_by_class = defaultdict(list)
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for name in re.findall(r"^class (\w+)", text, re.MULTILINE):
            texts_by_class[name].append(text)
    pages = [*(CHECKOUT / "docs").rglob("*.md"), CHECKOUT / "CONTRIBUTING.md"]
    named = {
        (name, member)
        for page in pages
        for name, member in re.findall(r"`([A-Z]\w+)\.(\w+)`", page.read_text(encoding="utf-8"))
        if name in texts_by_class
    }
    assert len(named) > 60
    assert [
        f"{name}.{member}"
        for name, member in named
        if not any(re.search(rf"\b{member}\b", text) for text in texts_by_class[name])
    ] == []


ONE_FILE_FOR_EACH = {
    "cli": "command",
    "experts/upcycling/architectures": "architecture",
    "methods/averages": "method",
    "methods/pairs": "method",
    "methods/spherical": "method",
    "methods/task_vectors": "method",
    "quantisation": "scheme",
    "sources/adapter_programs": "program",
    "sources/formats": "format",
    "ui/terminal": "command",
}
"""The folders whose docstring says of what they have a file each, and need not name them."""


def test_the_docstring_of_a_folder_names_each_file() -> None:
    unnamed = []
    for folder in FOLDERS[1:]:
        text, path = docstring(folder), folder.relative_to(PACKAGE).as_posix()
        if path in ONE_FILE_FOR_EACH:
            assert re.search(
                rf"\b(?:one|each)\b.*\b{ONE_FILE_FOR_EACH[path]}", text, re.I | re.S
            ), path
            continue
        named = set(re.findall(r"`(\w+)[`.]", text))
        stems = {file.stem for file in folder.glob("[!_]*.py")}
        unnamed += [f"{path}/{stem}.py" for stem in sorted(stems - named)]
    assert unnamed == []


def test_every_folder_is_named() -> None:
    """The table names each room; a room's row or the docstring around a folder names the folder."""
    unnamed = []
    for folder in FOLDERS[1:]:
        around = folder.parent
        texts = [TABLE] if around == PACKAGE else [docstring(around)]
        if around in ROOMS:
            texts += re.findall(rf"^\| .*`{around.name}/`.* \|$", TABLE, re.MULTILINE)
        names = [name.rstrip("/") for text in texts for name in names_in(text)]
        if folder.name not in names:
            unnamed.append(folder.relative_to(PACKAGE).as_posix())
    assert unnamed == []


def test_every_room_is_in_the_lists_for_contributors() -> None:
    engine = {folder.name for folder in FOLDERS if folder.parent == PACKAGE / "engine"}
    engine |= {file.stem for file in (PACKAGE / "engine").glob("[!_]*.py")}
    assert engine - set(re.findall(r"^  ([a-z_]+) ", ENGINE_LIST, re.MULTILINE)) == set()
    assert {room.name for room in ROOMS} - set(re.findall(r"\b([a-z_]+)/", ROOM_LIST)) == set()


def test_the_table_of_methods_names_what_a_method_may_declare() -> None:
    table = section("docs/extending.md", "## What a method declares", "\n`inputs` are")
    named = re.findall(r"`(\w+)[`(]", "".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE)))
    declared = {name for name in vars(MergeMethod) if not name.startswith("_")}
    declared |= {name for name in MergeMethod.__annotations__ if not name.startswith("_")}
    assert declared - set(named) == set()


def test_the_table_of_tensors_names_every_kind() -> None:
    table = section("docs/architecture.md", "### The algebra of tensors", "\nA model (")
    named = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE)))
    kinds: list[type[Tensor]] = [Tensor, Drawn, Filled, Literal]
    for kind in kinds:
        kinds += kind.__subclasses__()
    ours = {k.__name__ for k in kinds if k.__module__.startswith("resumerge.")}
    ours -= {k.__name__ for k in kinds if inspect.isabstract(k)}
    assert ours - set(named) == set()
