"""Promise: `uv run merge.py CONFIG OUT` merges, from a file or an address, without PyTorch."""

from __future__ import annotations

import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from jobs import MERGE
from uv_wheels import UV, Wheels

RECIPE = """
merge_method: linear
models: [{{model: {0}/math}}, {{model: {0}/code}}]
parameters: {{weight: 0.5}}
"""


def uv_run(
    wheels: Wheels, place: Path, *words: object, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run `uv run` with some words in a folder, and require that it ends with the code."""
    done = subprocess.run(
        [str(UV), "run", *map(str, words)],
        cwd=place,
        env=wheels.environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_a_file_and_an_address_give_what_the_command_gives(
    wheels: Wheels, family: Path, tmp_path: Path
) -> None:
    (tmp_path / "merge.yaml").write_text(RECIPE.format(family))
    uv_run(wheels, tmp_path, MERGE, "merge.yaml", "merged", "--shard-size", "1MB")
    handler = partial(SimpleHTTPRequestHandler, directory=str(MERGE.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/{MERGE.name}"
        # The address itself is the one thing that has to be fetched.
        online = ["--no-offline", address]
        uv_run(wheels, tmp_path, *online, "merge.yaml", "again", "--shard-size", "1MB")
        server.shutdown()
    made, again = (
        {path.name: path.read_bytes() for path in (tmp_path / name).glob("model*")}
        for name in ("merged", "again")
    )
    assert len(made) > 3
    assert made == again


def test_the_exit_code_and_the_words_are_the_command_s(wheels: Wheels, tmp_path: Path) -> None:
    refused = uv_run(wheels, tmp_path, MERGE, "missing.yaml", "merged", code=2)
    assert "missing.yaml" in refused.stderr
    shown = uv_run(wheels, tmp_path, MERGE, "--help")
    assert shown.stdout.startswith("Usage: resumerge run [OPTIONS] CONFIG OUT\n")
