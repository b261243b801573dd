"""Fixtures of several rooms' tests: a Hub on loopback and no other network, large models."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGTERM
from typing import Any

import pytest
from choosing_kernels import use_kernels
from hypothesis import settings
from loopback_hub.pointing import hub, sleeps
from tiny_models import LLAMA, write_family

from resumerge.sources.reader import SourceReader

os.environ["HF_HUB_OFFLINE"] = "1"  # before huggingface_hub reads it, once for all tests
importlib.import_module("huggingface_hub.constants")

# A shell has its background jobs ignore Ctrl-C, and what they start, which tests send it to.
if signal.getsignal(SIGINT) is signal.SIG_IGN:
    signal.signal(SIGINT, signal.default_int_handler)
signal.signal(SIGHUP, signal.SIG_DFL)  # which nohup, and some runners of CI, have ignored

__all__ = [
    "hub",  # these two are fixtures of whoever talks to the Hub
    "sleeps",
    "use_kernels",
]

pytest_plugins = ["missing_libraries", "suites.selection", "warm_start"]

settings.register_profile("unhurried", deadline=None)  # a busy machine is no failure
settings.load_profile("unhurried")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="many more draws, for hours")


@pytest.fixture(autouse=True)
def signal_handlers_are_restored() -> Iterator[None]:
    """Restore the signal handlers: a merge that runs as a command leaves some signals ignored."""
    before = {number: signal.getsignal(number) for number in (SIGHUP, SIGINT, SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def source_readers_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the readers that a test has opened: a process has few descriptors, and many tests."""
    opened: list[SourceReader] = []
    init = SourceReader.__init__

    def noted(self: SourceReader, *given: Any) -> None:
        init(self, *given)
        opened.append(self)

    monkeypatch.setattr(SourceReader, "__init__", noted)
    yield
    for reader in opened:
        reader.close()


@pytest.fixture(scope="session")
def soak(request: pytest.FixtureRequest) -> bool:
    """Return whether `--soak` was passed, which allows many more draws."""
    return bool(request.config.getoption("--soak"))


@pytest.fixture(scope="session")
def workplace() -> Iterator[Path]:
    """Yield a folder, in memory if that has room: these tests only simulate durability."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 2 << 30
    with tempfile.TemporaryDirectory(dir=memory if roomy else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def large_llamas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a folder with the Llamas `base`, `math` and `code`: 134 M parameters, bfloat16, 267 MB.

    The embeddings are many blocks long, and a model has several shards of 100 MB.
    """
    config = {
        **LLAMA,
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_hidden_layers": 6,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "vocab_size": 32000,
        "dtype": "bfloat16",
    }
    folder = write_family(tmp_path_factory.mktemp("large"), config, dtype="bfloat16")
    yield folder
    shutil.rmtree(folder)
