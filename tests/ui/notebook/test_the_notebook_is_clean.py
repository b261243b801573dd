"""The stored notebook: valid, without outputs, and made of settings that somebody may change."""

from __future__ import annotations

import ast
import re

import nbformat
from notebook_kernels import NOTEBOOK

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
