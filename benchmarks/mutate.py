"""Do a room's tests notice when its code is wrong?

Makes small wrong changes in the Python files of one room, one at a time, drawn at random: a
comparison turned round, a condition dropped, a call left out, another number. After each, the
room's own quick tests are run, or those that `--tests` names. A change that they do not notice is a
promise without a test, or code that is not needed, or now and then a change that changes nothing.

    python -m benchmarks.mutate ledger --count 20 --seed 1
    python -m benchmarks.mutate mirror --files lease.py --tests tests/mirror/leases

The changes are made in a copy of the working tree. Exits with 1 where a change survived.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).parents[1]
PACKAGE = "resumerge"
OURS = (PACKAGE, "benchmarks")
"""Packages that tests import from the copy of the tree."""

ELSEWHERE = {
    "api": ("cli",),
    "engine/mirror_session": ("mirror",),
    "options": ("cli",),
    "sources/remote": ("remote", "hub"),
    "tensor_uses": ("accounts",),
}
"""Where the tests of a room are that has no folder of its name in tests/."""

LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "site", "build", "dist", "state", "__pycache__", "*_cache", ".hypothesis"
)

WORDS = {
    *("refuse", "problem", "Problem", "Resumable", "InputError"),
    *("note", "_note", "print", "debug", "info"),
}
"""Calls whose arguments are what a person reads: other tests hold those."""

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}


@dataclass(frozen=True)
class Mutant:
    """One wrong change.

    Args:
        path: the file, from the root of the tree.
        line: from 1.
        start, stop: the bytes of the file that are replaced.
        before, after: what stood there, and what stands there now.
    """

    path: Path
    line: int
    start: int
    stop: int
    before: str
    after: str

    def __str__(self) -> str:
        before, after = (" ".join(text.split()) for text in (self.before, self.after))
        return f"{self.path}:{self.line}: {before}  ->  {after}"

    def applied(self, source: bytes) -> bytes:
        """The file's bytes with the change."""
        return source[: self.start] + self.after.encode() + source[self.stop :]


def mutants_of(path: Path) -> list[Mutant]:
    """Every change of one file, `path` from the root of the tree."""
    source = (ROOT / path).read_bytes()
    begins = [0]
    for line in source.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    found = []
    for node, wrong in _changes(ast.parse(source)):
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = begins[node.lineno - 1] + node.col_offset
        stop = begins[node.end_lineno - 1] + node.end_col_offset
        text = ast.unparse(wrong)
        after = f"({text})" if isinstance(wrong, ast.expr) else text
        found.append(Mutant(path, node.lineno, start, stop, source[start:stop].decode(), after))
    return found


def _changes(
    node: ast.AST,
) -> Iterator[tuple[ast.expr | ast.stmt, ast.expr | ast.stmt]]:
    """Nodes below one, each with what replaces it."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_for_readers(child):
                if isinstance(child, ast.expr | ast.stmt):
                    yield from ((child, wrong) for wrong in _wrong(child))
                yield from _changes(child)


def _is_for_readers(node: ast.AST) -> bool:
    """Docstrings, messages, imports."""
    match node:
        case ast.JoinedStr() | ast.Import() | ast.ImportFrom():
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name in WORDS
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="_log")))):
            return True
    return False


def _wrong(node: ast.expr | ast.stmt) -> Iterator[ast.expr | ast.stmt]:
    """What a node may wrongly be."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            yield ast.Compare(left, [COMPARISONS[type(operator)]()], [right])
        case ast.BoolOp(op=operator, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
            for left_out in values:
                rest = [value for value in values if value is not left_out]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(operator, rest)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATORS:
            yield ast.BinOp(left, OPERATORS[type(operator)](), right)
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1 if abs(value) < 8 else 10 * value)
        case ast.IfExp(body=body, orelse=other):
            yield body
            yield other
        case ast.If(test=test, orelse=[]) if not _guards_types(test):
            yield ast.Pass()
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            yield from _unfiltered(node)
        case ast.Call():
            yield from _wrong_calls(node)
        case ast.Expr(value=ast.Call() | ast.Yield()) | ast.Raise() | ast.Continue() | ast.Break():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.AugAssign():
            yield ast.Pass()


def _guards_types(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _unfiltered(
    node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp,
) -> Iterator[ast.expr]:
    """A comprehension without one of its conditions."""
    for number, loop in enumerate(node.generators):
        for left_out in range(len(loop.ifs)):
            wrong = copy.deepcopy(node)
            del wrong.generators[number].ifs[left_out]
            yield wrong


def _wrong_calls(node: ast.Call) -> Iterator[ast.expr]:
    """A call of the opposite function, or without one of its named arguments."""
    if isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
        keywords = node.keywords if node.func.id != "sorted" else []
        yield ast.Call(ast.Name(FUNCTIONS[node.func.id]), node.args, keywords)
    for left_out in node.keywords:
        keywords = [keyword for keyword in node.keywords if keyword is not left_out]
        yield ast.Call(node.func, node.args, keywords)


@dataclass(frozen=True)
class Tests:
    """The tests of a room, run in a copy of the tree.

    Args:
        arguments: of pytest: paths from the root of the tree, and options.
        seconds: that a run may take; longer counts as noticed.
    """

    arguments: Sequence[str]
    seconds: float = math.inf

    def pass_in(self, tree: Path) -> bool:
        """Whether they find nothing wrong with a copy of the tree.

        They run in a fork of this process, which has loaded the large libraries that tests use:
        that takes most of the time of a test of a room.
        """
        process = os.fork()
        if process == 0:
            _test(tree, self.arguments)
        ends = time.monotonic() + self.seconds
        while (ended := os.waitpid(process, os.WNOHANG)) == (0, 0) and time.monotonic() < ends:
            time.sleep(0.02)
        with suppress(ProcessLookupError):  # what a test started ends with it
            os.killpg(process, signal.SIGKILL)
        if ended == (0, 0):
            os.waitpid(process, 0)
            return False
        return os.waitstatus_to_exitcode(ended[1]) == 0


def tests_of_room(room: str) -> list[str]:
    """Return the folders with the tests of a room, or of the room that a folder or file is in.

    Args:
        room: a folder or file of the package, like ``engine/recovery``.

    Raises:
        LookupError: there are none.
    """
    place = Path(room).with_suffix("")
    for name in (place.as_posix(), *(parent.as_posix() for parent in place.parents[:-1])):
        folders = [f"tests/{folder}" for folder in ELSEWHERE.get(name, (name,))]
        if all((ROOT / folder).is_dir() for folder in folders):
            return folders
    raise LookupError(f"{room} has no folder of tests: name them with --tests")


def _load_libraries() -> None:
    """Load what tests use of others; nothing of this package."""
    for name in ("hypothesis", "pytest", "safetensors.torch", "transformers"):
        with suppress(ImportError):
            importlib.import_module(name)


def _test(tree: Path, arguments: Sequence[str]) -> NoReturn:
    """Run tests in this process, and end it."""
    code = 1
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(nowhere, fd)
        os.chdir(tree)
        os.environ |= {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
        sys.dont_write_bytecode = True
        sys.path[:] = [str(tree), *(path for path in sys.path if path not in ("", str(ROOT)))]
        for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
            del sys.modules[name]
        pytest = importlib.import_module("pytest")
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-W", "ignore", *arguments])
    finally:
        os._exit(code)


def survivors(mutants: Sequence[Mutant], tests: Tests, tree: Path) -> list[Mutant]:
    """The changes that tests do not notice; each is printed as soon as it is known."""
    found = []
    for mutant in mutants:
        path = tree / mutant.path
        source = path.read_bytes()
        try:
            path.write_bytes(mutant.applied(source))
            survived = tests.pass_in(tree)
        finally:
            path.write_bytes(source)
        print(f"{'SURVIVED' if survived else 'noticed '} {mutant}", flush=True)
        found += [mutant] * survived
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("room", help=f"a folder or file of {PACKAGE}/, like `engine/recovery`")
    parser.add_argument("--count", type=int, default=20, help="changes to make (20)")
    parser.add_argument("--seed", type=int, default=0, help="of the draw (0)")
    parser.add_argument("--files", default="*.py", help="names of the files that are changed")
    parser.add_argument("--tests", nargs="+", help="instead of the quick ones of the room")
    parser.add_argument("--list", action="store_true", help="list the changes, and test nothing")
    given = parser.parse_args(arguments)

    room = ROOT / PACKAGE / given.room
    files = sorted(room.rglob(given.files)) if room.is_dir() else [room]
    mutants = [mutant for file in files for mutant in mutants_of(file.relative_to(ROOT))]
    drawn = random.Random(given.seed).sample(mutants, min(given.count, len(mutants)))
    drawn.sort(key=lambda mutant: (mutant.path, mutant.line))
    if given.list:
        print(*drawn, sep="\n")
        return 0
    try:
        tests = given.tests or ["--suite", "quick", *tests_of_room(given.room)]
    except LookupError as error:
        parser.error(str(error))
    _load_libraries()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=LEFT_OUT)
        began = time.monotonic()
        if not Tests(tests).pass_in(tree):
            print(f"Without a change these fail: {sys.executable} -m pytest {' '.join(tests)}")
            return 2
        calm = time.monotonic() - began
        print(f"{len(drawn)} of {len(mutants)} changes, {calm:.0f} s each at most", flush=True)
        survived = survivors(drawn, Tests(tests, 3 * calm + 60), tree)
    print(f"{len(drawn) - len(survived)} of {len(drawn)} changes were noticed")
    print(*(f"survived: {mutant}" for mutant in survived), sep="\n")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
