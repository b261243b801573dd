"""Jobs as Hugging Face runs them: a server that accepts them, and containers that are killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
from loopback_hub import Hub
from uv_wheels import UV, Wheels

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MERGE = ROOT / "doors" / "merge.py"
TOKEN = "hf_of_the_job"


class JobServer:
    """The server that `hf jobs` uses: it answers who the user is, and records submitted jobs."""

    def __init__(self) -> None:
        jobs: list[dict[str, Any]] = []

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

            def answer(self, document: Mapping[str, Any]) -> None:
                body = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:
                self.answer({"name": "me", "type": "user"})

            def do_POST(self) -> None:
                jobs.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                owner = {"id": "1", "name": "me", "type": "user"}
                self.answer({"id": "job", "owner": owner, "status": {"stage": "RUNNING"}})

        self.jobs = jobs
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def submit(server: JobServer, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `hf` in a folder that also contains the bucket, and require that it succeeds."""
    done = subprocess.run(
        [sys.executable, str(HERE / "submit.py"), str(folder / "bucket"), *words],
        cwd=folder,
        env={
            **{k: v for k, v in os.environ.items() if not k.startswith("HF_")},
            "HF_ENDPOINT": server.url,
            "HF_HOME": str(folder / "hf-of-me"),
            "HF_TOKEN": TOKEN,
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


class Containers:
    """Simulated containers of a job, each with an empty folder and an empty cache of the Hub.

    Args:
        job: the submitted job.
        folder: the folder of the bucket and of the containers.
        hub: the Hub with the models.
        wheels: the wheels that uv installs.
    """

    def __init__(self, job: Mapping[str, Any], folder: Path, hub: Hub, wheels: Wheels) -> None:
        self._folder, self._job = folder, job
        [volume] = job["volumes"]
        mounted = folder / "bucket" / volume["source"] / volume["path"]
        at = volume["mountPath"]
        self.command = [word.replace(f"{at}/", f"{mounted}/") for word in job["command"]]
        assert self.command[0] == "uv"
        self.command[0] = str(UV)
        self._environment = {
            **{k: v for k, v in wheels.environment.items() if not k.startswith("RESUMERGE_")},
            **hub.settings,
            **job["environment"],
            **job["secrets"],
            "HF_HUB_OFFLINE": "0",
        }
        self._count = 0

    def start(self) -> subprocess.Popen[str]:
        """Start the job's command in a new container."""
        self._count += 1
        self.place = self._folder / f"container-{self._count}"
        self.place.mkdir()
        return subprocess.Popen(
            self.command,
            cwd=self.place,
            env={**self._environment, "HF_HOME": str(self.place / "hf")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def kill(container: subprocess.Popen[str]) -> None:
    """Kill a container and every process in it."""
    inside = psutil.Process(container.pid)
    inside.suspend()  # it starts none meanwhile
    for process in [*inside.children(recursive=True), inside]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    container.communicate()
