"""Promise: opened from a link, with no checkout beside it, the notebook installs the package."""

from __future__ import annotations

import runpy
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import nbformat
import pytest
from fresh_venv import CHECKOUT, FreshVenv, copy_checkout
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from notebook_kernels import NOTEBOOK, text_of

with_address = runpy.run_path(str(NOTEBOOK.with_name("repository.py")))["with_address"]


@pytest.fixture
def fresh(tmp_path: Path) -> FreshVenv:
    """Return a fresh environment for the notebook's kernel."""
    return FreshVenv(tmp_path / "venv")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "checkout").mkdir()
    return copy_checkout(tmp_path / "checkout")


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Path]:
    """Serve a folder to pip as PyPI does, with a folder for each package, and yield it."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    folder = tmp_path / "index"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        (tmp_path / "address").write_text(f"http://127.0.0.1:{server.server_port}/")
        yield folder
        server.shutdown()


def execute(fresh: FreshVenv, folder: Path, repository: str = "") -> str:
    """Execute the cell that installs the package in a folder, and return what it prints."""
    project = f'[project]\nurls = {{Repository = "{repository}"}}'
    notebook = nbformat.reads(with_address(NOTEBOOK.read_text(), project), as_version=4)
    notebook.cells = [cell for cell in notebook.cells if cell["id"] in ("settings", "install")]
    folder.mkdir(exist_ok=True)
    place = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, kernel_name="python3", resources=place)
    client.create_kernel_manager()
    assert client.km is not None
    client.km.kernel_spec.argv[0] = str(fresh.python)  # type: ignore[union-attr]
    client.execute(env=fresh.environment)
    return text_of(notebook, "install")


def test_the_address_is_that_of_the_project() -> None:
    stored, project = NOTEBOOK.read_text(), (CHECKOUT / "pyproject.toml").read_text()
    assert stored == with_address(stored, project), "make notebook"
    there = '[project.urls]\nRepository = "https://host.example/a/b"\n[project]\n'
    named = with_address(stored, there)
    [line] = set(named.splitlines()) - set(stored.splitlines())
    assert 'repository = \\"https://host.example/a/b\\"  #' in line
    assert with_address(named, project) == stored


def test_from_the_index_of_packages(
    fresh: FreshVenv, checkout: Path, index: Path, tmp_path: Path
) -> None:
    words = ["wheel", "--no-deps", "--wheel-dir", index / "resumerge", "."]
    fresh.pip(*words, cwd=checkout)
    fresh.environment["PIP_INDEX_URL"] = (tmp_path / "address").read_text()
    said = execute(fresh, tmp_path / "elsewhere", "file:///there/is/none")
    assert said.startswith("Installing resumerge\nresumerge "), said


def test_from_the_repository_where_the_index_lacks_it(
    fresh: FreshVenv, checkout: Path, tmp_path: Path
) -> None:
    commit = ["-c", "user.name=a", "-c", "user.email=a@b.example", "commit", "-qm", "All"]
    for words in (["init", "-q"], ["add", "."], commit):
        subprocess.run(["git", *words], cwd=checkout, check=True)
    said = execute(fresh, tmp_path / "elsewhere", checkout.as_uri())
    tried = f"Installing resumerge\nInstalling git+{checkout.as_uri()}\nresumerge "
    assert said.startswith(tried), said


def test_from_the_checkout_that_it_lies_in(fresh: FreshVenv, checkout: Path) -> None:
    said = execute(fresh, checkout / "colab")
    assert said.startswith(f"Installing {checkout}\nresumerge "), said


def test_from_nowhere_it_says_what_to_write(fresh: FreshVenv, tmp_path: Path) -> None:
    with pytest.raises(CellExecutionError) as failed:
        execute(fresh, tmp_path / "elsewhere")
    assert "No matching distribution found for resumerge" in str(failed.value)
    assert "%pip install git+ADDRESS" in str(failed.value)
