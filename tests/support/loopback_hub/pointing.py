"""The fixture `hub`: a loopback Hub that this process and its children use."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopback_hub.hub import Hub


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    server = Hub(tmp_path / "hf")
    for name in list(os.environ):
        if name.startswith(("HF_", "HUGGING", "TRANSFORMERS_OFFLINE")):
            monkeypatch.delenv(name)
    for name, value in server.settings.items():
        monkeypatch.setenv(name, value)
    point_client_at(server, monkeypatch)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Have nothing sleep in this test, and return the list of the seconds that were requested."""
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited


def point_client_at(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace what huggingface_hub read from the environment when it was imported.

    Only HF_TOKEN is read at each call; the endpoint, the cache's place and the switches are
    constants of its modules, copied from one to another.
    """
    import huggingface_hub.hf_api  # noqa: F401, it brings every module that is patched
    from huggingface_hub import constants

    replaced = {constants.ENDPOINT: server.url, constants.HF_HOME: str(server.home)}
    for module_name, module in list(sys.modules.items()):
        if module_name.split(".")[0] != "huggingface_hub":
            continue
        for name, value in list(vars(module).items()):
            for old, new in replaced.items():
                if isinstance(value, str) and name.isupper() and value.startswith(old):
                    monkeypatch.setattr(module, name, new + value[len(old) :])
    settings = {
        "HF_HUB_CACHE": str(server.home / "hub"),
        "HF_TOKEN_PATH": str(server.home / "token"),
        "HF_HUB_OFFLINE": False,
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_DISABLE_TELEMETRY": True,
    }
    for name, value in settings.items():
        monkeypatch.setattr(constants, name, value, raising=False)
    forget_connections()


def forget_connections() -> None:
    """Close all clients: they keep the proxy settings and connections that they were made with."""
    from huggingface_hub import utils

    for name in ("close_session", "reset_sessions"):  # from 1.0 on, and before
        if hasattr(utils, name):
            getattr(utils, name)()
