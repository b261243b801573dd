"""Promise: an address where another program than Ray listens does not block a run."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tiny_models import LLAMA, write_family

import resumerge
from resumerge.engine.cluster import probe
from resumerge.errors import Resumable

RECIPE = """
merge_method: linear
models: [{{model: {0}/math}}, {{model: {0}/code}}]
parameters: {{weight: 1}}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'resumerge[ray]'")
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE.format(write_family(tmp_path / "models", LLAMA)))
    return path


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Yield a server that accepts connections, and sends nothing.

    Ray uses the machine's own address for 127.0.0.1.
    """
    with socket.create_server(("0.0.0.0", 0)) as listening:
        yield listening


@pytest.fixture
def web() -> Iterator[socket.socket]:
    """Yield a server that answers HTTP, as Ray's dashboard does."""
    with ThreadingHTTPServer(("0.0.0.0", 0), BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.socket
        server.shutdown()
        thread.join()


def address_of(listening: socket.socket) -> str:
    return f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("kind", ["silent", "web"])
def test_the_run_stops_with_what_to_do(
    recipe: Path,
    tmp_path: Path,
    kind: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probe, "ANSWER_SECONDS", 2)
    address, out = address_of(request.getfixturevalue(kind)), tmp_path / "model"
    with pytest.raises(Resumable) as stopped:
        resumerge.run(recipe, out, state_dir=tmp_path / "state", ray=address)
    assert stopped.value.exit_code == 75 and stopped.value.reason == "cluster"
    assert address in str(stopped.value) and "`ray start --head` prints" in str(stopped.value)
    resumerge.resume(str(out), state_dir=tmp_path / "state")
    assert [*out.glob("*.safetensors")]


def test_a_signal_ends_the_waiting(recipe: Path, tmp_path: Path, silent: socket.socket) -> None:
    words = ["run", str(recipe), str(tmp_path / "model"), "--ray", address_of(silent)]
    process = subprocess.Popen(
        [sys.executable, "-m", "resumerge", *words, "--state-dir", str(tmp_path / "state")]
    )
    for _ in range(2):  # the check that something listens, and the question
        connection, _ = silent.accept()
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    connection.close()
