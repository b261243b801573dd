"""The stored notebook: valid, without outputs, and made of settings that somebody may change."""

from __future__ import annotations

import ast
import builtins
import re
from pathlib import Path

import nbformat
import pytest
from notebook_kernels import MERGES, NOTEBOOK, ROOT

NB = nbformat.read(NOTEBOOK, as_version=4)
CODE = [cell for cell in NB.cells if cell.cell_type == "code"]


def test_it_is_valid_and_as_nbformat_writes_it() -> None:
    nbformat.validate(NB)
    assert nbformat.writes(NB).strip() == NOTEBOOK.read_text().strip()
    assert len({cell["id"] for cell in NB.cells}) == len(NB.cells)


def test_nothing_of_a_run_is_stored() -> None:
    for cell in CODE:
        assert (cell.outputs, cell.execution_count) == ([], None)
        assert set(cell.metadata) <= {"cellView"}
    assert set(NB.metadata) == {"colab", "kernelspec", "language_info"}


def test_every_cell_is_told_of_in_words_before_it() -> None:
    told = False
    for cell in NB.cells:
        if cell.cell_type == "markdown":
            told = True
            assert cell.source.strip()
        assert told, "the first cell says what this is"
    headings = re.findall(r"^## (\d+)\. ", "\n".join(c.source for c in NB.cells), re.MULTILINE)
    assert headings == [str(n) for n in range(1, 11)]


def test_the_code_compiles_and_asks_for_no_line_to_be_changed() -> None:
    for cell in CODE:
        lines = [re.sub(r"^(\s*)%.*", r"\1pass", line) for line in cell.source.splitlines()]
        ast.parse("\n".join(lines))


def test_settings_are_a_form_and_the_environment_comes_first() -> None:
    (settings,) = (cell.source for cell in CODE if cell["id"] == "settings")
    fields = re.findall(r"^(\w+) = .*# ?@param", settings, re.MULTILINE)
    assert fields == ["output", "mirror", "memory", "shard_size", "prompt", "push_to"]
    for field in ("output", "mirror", "memory", "shard_size", "push_to"):
        assert f'os.environ.get("RESUMERGE_{field.upper()}", {field})' in settings


@pytest.mark.parametrize(
    "path", [NOTEBOOK, ROOT / "doors" / "kaggle.ipynb"], ids=["colab", "kaggle"]
)
def test_a_cell_needs_no_name_but_its_own_and_those_of_merging_cells_above(path: Path) -> None:
    known = set(dir(builtins))
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type != "code":
            continue
        nodes = list(ast.walk(ast.parse(cell.source)))
        names = [node for node in nodes if isinstance(node, ast.Name)]
        arguments = {node.arg for node in nodes if isinstance(node, ast.arg)}
        own = {node.id for node in names if isinstance(node.ctx, ast.Store)} | bound(nodes)
        used = {node.id for node in names if isinstance(node.ctx, ast.Load)}
        assert used <= known | own | arguments, cell["id"]
        if cell["id"] in MERGES:
            known |= own


def bound(nodes: list[ast.AST]) -> set[str]:
    """Return the names that functions, imports and handlers of errors bind."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.ExceptHandler) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
    return found
