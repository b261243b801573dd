"""Promise: the identity of a user's method covers the code that its file imports, installed code
apart; where that cannot be known, no run is resumed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from resumerge.methods import imported_code
from resumerge.methods.imported_code import code_of_file, code_of_module, unknown_code
from resumerge.methods.registry import Registry

METHOD = """\
from resumerge.methods import Method
{imports}

class Mine(Method):
    name, summary, fewest = "mine", "mine", 2

    def block(self, tensor, inputs, block, statistics):
        {inside}
        return inputs[0]
"""
MODULES = {
    "direct.py": "import inner\nimport json, numpy",
    "inner.py": "",
    "late.py": "",
    "named.py": "",
    "pack/__init__.py": "",
    "pack/part.py": "from . import sibling\nfrom .deep.leaf import x",
    "pack/sibling.py": "",
    "pack/deep/__init__.py": "",
    "pack/deep/leaf.py": "from ..cousin import y\nx = 1",
    "pack/cousin.py": "y = 1",
    "pack/unused.py": "",
    "space/member.py": "",
    "space/inner/member.py": "",
    "unused.py": "",
}
IMPORTS = "import direct, importlib\nfrom pack import part\nimport space.member, space.inner.member"
INSIDE = "import late, absent; importlib.import_module('named')"


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def written(folder: Path, imports: str = IMPORTS, inside: str = INSIDE) -> Path:
    for name, text in MODULES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"# {name}\n{text}\n")
    (folder / "mine.py").write_text(METHOD.format(imports=imports, inside=inside))
    return folder / "mine.py"


def identity(file: Path) -> str:
    sys.path.insert(0, str(file.parent))
    try:
        return code_of_file(file)
    finally:
        sys.path.remove(str(file.parent))


@pytest.mark.parametrize("name", MODULES)
def test_every_module_that_is_imported_counts(name: str, tmp_path: Path) -> None:
    file = written(tmp_path)
    before = identity(file)
    assert identity(file) == before and unknown_code(before) == ""
    (tmp_path / name).write_text(f"# {name}, another\n{MODULES[name]}\n")
    assert (identity(file) != before) == ("unused" not in name)


def test_it_is_the_same_in_another_folder_and_names_its_modules(tmp_path: Path) -> None:
    """The machines of a cluster have the method's file in other folders."""
    first, second = (identity(written(tmp_path / name)) for name in ("a", "b/c"))
    assert first == second
    names = [part.partition(",")[0] for part in first.split("; ")]
    assert names == [
        *("mine.py", "direct", "inner", "late", "named", "pack", "pack.cousin", "pack.deep"),
        *("pack.deep.leaf", "pack.part", "pack.sibling", "space.inner.member", "space.member"),
    ]


def test_a_module_that_is_found_only_when_the_code_runs(tmp_path: Path) -> None:
    """The method may add its own folder to the path later."""
    file = written(tmp_path, imports="", inside="import late")
    assert "; late, sha256 " in code_of_file(file)


@pytest.mark.parametrize(
    "inside",
    [
        *("import importlib; importlib.import_module(tensor.name)", "exec('import late')"),
        *("eval('1')", "__import__(tensor.name)", "import runpy; runpy.run_path('late.py')"),
        "from importlib import import_module as load; load('late')",
    ],
)
def test_code_that_is_not_known_before_it_runs(
    inside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, imports="", inside=inside)
    before = code_of_file(file)
    assert unknown_code(before) == "line 8 of mine.py may run any code"
    monkeypatch.setattr(imported_code, "PROCESS", "another")
    assert code_of_file(file) != before, "no other process has the same code"


def test_evaluation_mode_of_torch_is_no_code(tmp_path: Path) -> None:
    file = written(tmp_path, imports="", inside="self.model.eval()")
    assert unknown_code(code_of_file(file)) == ""


def test_a_run_that_cannot_be_resumed_is_told_at_once(tmp_path: Path) -> None:
    registry = Registry()
    registry.load([written(tmp_path, imports="", inside="exec('')")])
    assert registry.notes_on("mine") == [
        "the run cannot be resumed, for the code of your method 'mine' may be another one then: "
        "line 8 of mine.py may run any code"
    ]
    assert Registry().notes_on("mine") == []


def test_packages_in_development_count_and_installed_ones_do_not(tmp_path: Path) -> None:
    written(tmp_path)
    sys.path.insert(0, str(tmp_path))
    assert code_of_module("pack.part").startswith("pack, sha256 ")
    assert "pack.cousin, sha256" in code_of_module("pack.part")
    for installed in ("numpy.linalg", "json.decoder", "resumerge.methods", "sys", "absent.x"):
        assert code_of_module(installed) == ""
