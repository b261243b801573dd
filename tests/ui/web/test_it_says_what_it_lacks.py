"""Promise: a page that cannot be served is refused with what to do, before it is built."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from resumerge.errors import InputError
from resumerge.ui.web import server

WITHOUT_GRADIO = """
import sys
sys.modules["gradio"] = None
from resumerge.cli.main import main
main()
"""


@pytest.fixture
def with_gradio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Gradio count as installed, because the refusals after this one do not need it."""
    monkeypatch.setattr(server, "find_spec", lambda name: name)


def test_without_gradio_the_command_to_install_it_is_told(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_GRADIO, "ui", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "pip install 'resumerge[ui]'" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("with_gradio")
def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="This cannot be the page's folder"):
        server.serve(tmp_path / "missing", "127.0.0.1", 0, print)


@pytest.mark.usefixtures("with_gradio")
def test_a_port_that_is_taken_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(InputError, match="--port 0 takes one that is free"):
            server.serve(tmp_path, "127.0.0.1", port, print)
