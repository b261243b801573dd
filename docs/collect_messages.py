"""Every text that the program shows a person, in one file, so that it can be read in one go.

    python docs/collect_messages.py [FILE]

A string constant of the package counts as a message if it has at least two words and is neither a
docstring nor SQL nor a regular expression. Help texts, pages, new recipes and the notebook follow.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

Message = tuple[str, str]
"""Where a text is, and the text."""

_WORD = re.compile(r"[A-Za-z][a-z'’]+")
_EXPRESSION = re.compile(r"\{[^{}]*\}")
_NOT_FOR_PEOPLE = re.compile(
    r"\(\?|\\[dswSbAZ]|\[\^"  # regular expressions
    r"|^\s*\(?(SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA|ALTER|DROP|WITH|FROM|WHERE|AND|ORDER|VACUUM)\b"
)


def is_for_people(text: str) -> bool:
    """Whether a text is a sentence or a part of one: two words, or a word and an {expression}."""
    constant = _EXPRESSION.sub("", text)
    words = len(_WORD.findall(constant))
    both = words + len(_EXPRESSION.findall(text)) > 1 and " " in constant.strip("\n")
    return words > 0 and both and not _NOT_FOR_PEOPLE.search(text)


def strings_of(path: Path) -> list[Message]:
    """The messages of a Python file, in its order; what an f-string computes stays in braces."""
    context: dict[ast.AST, str] = {}
    done: set[ast.AST] = set()
    found: list[tuple[int, Message]] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):  # parents come first
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            done.add(node.value)  # a docstring
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func).rpartition(".")[2]
            context |= dict.fromkeys(node.args, called)
            context |= {k.value: f"{called} {k.arg}" for k in node.keywords}
        elif isinstance(node, ast.JoinedStr | ast.Constant) and node not in done:
            text = _text(node)
            if isinstance(node, ast.JoinedStr):
                done |= {p for p in node.values if isinstance(p, ast.Constant)}
            if is_for_people(text):
                place = f"{path.relative_to(ROOT)}:{node.lineno} {context.get(node, '')}"
                found.append((node.lineno, (place.strip(), text)))
    return [message for _, message in sorted(found, key=lambda f: f[0])]


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.FormattedValue(value=value):
            return f"{{{ast.unparse(value)}}}"
        case ast.JoinedStr(values=values):
            return "".join(map(_text, values))
    return ""


def pages() -> Iterator[Message]:
    """Texts of the HTML templates, without their tags."""
    for path in sorted(ROOT.glob("resumerge/**/*.j2")):
        text = re.sub(r"\{#.*?#\}", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        text = re.sub(r"<(?:[^<>{}]|\{\{.*?\}\}|\{%.*?%\})*>", "\n", text)
        for line in text.splitlines():
            if is_for_people(re.sub(r"\{[{%].*?[}%]\}", "", line)):
                yield str(path.relative_to(ROOT)), line.strip()


def help_texts() -> Iterator[Message]:
    """What ``--help`` prints for each command, on 80 columns."""
    os.environ["COLUMNS"] = "80"
    from click.testing import CliRunner

    from resumerge.cli.main import COMMANDS, app

    for words in [[], *([name] for name in COMMANDS), ["cache", "check"], ["cache", "repair"]]:
        shown = CliRunner().invoke(app, [*words, "--help"], terminal_width=80).output
        yield " ".join(["resumerge", *words, "--help"]), shown


def new_recipes() -> Iterator[Message]:
    """What ``init`` writes, for every method."""
    from resumerge.documents.new_recipe import new_recipe
    from resumerge.methods import METHODS

    for name, method in METHODS.items():
        base = None if method.base == "none" else "org/base"
        models = ["org/a", "org/b"][: (method.most or 3) - (method.base == "required")]
        yield f"resumerge init --method {name}", new_recipe(name, models, base, "bfloat16")


def notebooks() -> Iterator[Message]:
    """The cells of the notebooks: their text, and their code for its comments."""
    for path in sorted([*ROOT.glob("colab/*.ipynb"), *ROOT.glob("doors/*.ipynb")]):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        for number, cell in enumerate(cells, 1):
            yield f"{path.relative_to(ROOT)} cell {number}", "".join(cell["source"])


def collect() -> dict[str, list[Message]]:
    """All messages, by kind."""
    files = sorted(ROOT.glob("resumerge/**/*.py"))
    strings = [message for path in files for message in strings_of(path)]
    return {
        "strings": strings,
        "pages": list(pages()),
        "help": list(help_texts()),
        "new recipes": list(new_recipes()),
        "notebooks": list(notebooks()),
    }


def main() -> None:
    """Write the messages to a file, and print how many there are of each kind."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "messages.txt"
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", encoding="utf-8") as file:
        for kind, messages in collect().items():
            print(f"{kind:<12}{len(messages):>6}")
            file.write(f"\n===== {kind}\n\n")
            file.writelines(f"{place}\n{text}\n\n" for place, text in messages)
    print(target)


if __name__ == "__main__":
    main()
