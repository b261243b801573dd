"""The table of docs/methods.md, from what the methods declare.

python tests/methods/methods_table.py      # writes it into the document
"""

from __future__ import annotations

from pathlib import Path

from resumerge.methods import Method, Parameter
from resumerge.methods.registry import METHODS

DOCUMENT = Path(__file__).parents[2] / "docs" / "methods.md"
BEGIN, END = "<!-- generated: table -->\n", "<!-- end of table -->\n"
BASE = {"none": "", "optional": "optional", "required": "yes"}


def table() -> str:
    """Return the table, with a row for each built-in method."""
    lines = [
        "| method | what it does | base | models | of each model | of the merge |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for method in map(METHODS.__getitem__, METHODS.built_in):
        summary = f"{method.summary} {' '.join(f'[[{n}]]({p.url})' for n, p in _papers(method))}"
        cells = [
            f"`{method.name}`",
            summary.strip(),
            BASE[method.base],
            _count(method),
            _parameters(p for p in method.parameters if p.per_model),
            _parameters(p for p in method.parameters if not p.per_model),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _papers(method: Method) -> list[tuple[int, object]]:
    return list(enumerate(method.papers, start=1))


def _count(method: Method) -> str:
    if method.most is None:
        return f"{method.fewest} or more"
    return str(method.most)


def _parameters(parameters: object) -> str:
    return ", ".join(_parameter(p) for p in parameters)  # type: ignore[attr-defined]


def _parameter(parameter: Parameter) -> str:
    if parameter.required:
        return f"**`{parameter.name}`**"
    default = str(parameter.default).lower() if parameter.kind == "bool" else parameter.default
    return f"`{parameter.name}` {default}"


def updated(text: str) -> str:
    """Return the document with the current table."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + "\n" + table() + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    DOCUMENT.write_text(updated(DOCUMENT.read_text()))
