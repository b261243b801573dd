"""The C sources compile without a warning, each header for itself, and export one name."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sysconfig
import tomllib
from pathlib import Path

import pytest

from resumerge.native import _kernels

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "resumerge" / "native"
[EXTENSION] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
    "ext-modules"
]
HEADERS = [path.name for path in sorted(NATIVE.glob("*.h"))]


@pytest.fixture(params=["gcc", "clang"])
def compiler(request: pytest.FixtureRequest) -> str:
    if not shutil.which(request.param):
        pytest.skip(f"{request.param} is not installed")
    return str(request.param)


def _warnings(compiler: str, source: Path, *options: str) -> str:
    include = f"-I{sysconfig.get_path('include')}"
    flags = [*EXTENSION["extra-compile-args"], "-Werror", *options]
    words = [compiler, include, *flags, "-x", "c", "-"]
    # Included, since alone a header is warned about for being one.
    done = subprocess.run(words, input=f'#include "{source}"', capture_output=True, text=True)
    assert (done.returncode != 0) == bool(done.stderr)
    return done.stderr


@pytest.mark.parametrize("source", EXTENSION["sources"])
def test_a_source_has_no_warnings(source: str, compiler: str) -> None:
    """Some warnings come only when code is generated, which is slow only with -O3."""
    assert not _warnings(compiler, ROOT / source, "-O2", "-c", "-o/dev/null")


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_includes_what_it_uses(header: str, compiler: str) -> None:
    assert not _warnings(compiler, NATIVE / header, "-fsyntax-only", "-Wno-unused")


def test_headers_that_change_are_compiled_again() -> None:
    assert [Path(path).name for path in EXTENSION["depends"]] == HEADERS


def test_one_name_is_exported() -> None:
    library = ctypes.CDLL(_kernels.__file__)
    assert hasattr(library, "PyInit__kernels")
    assert not hasattr(library, "resumerge_baseline")
