"""Merges of models in a bucket, by processes as a user starts them."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from loopback_s3 import Bucket, Proxy, Server
from waiting import wait_until

ROOT = Path(__file__).parents[2]

CONFIG = {"model_type": "llama", "num_hidden_layers": 2, "architectures": ["LlamaForCausalLM"]}

SMALL_BATCHES = """
from resumerge.engine.resources import governor
governor.LARGEST_UNCOMMITTED_LIMIT = governor.SMALLEST_UNCOMMITTED_LIMIT = 1
"""
"""Code before a merge: each tensor is a batch, whose commit does not wait for the next tensor."""

Files = dict[str, bytes]


def shard(number: int, count: int) -> str:
    return f"model-{number:05}-of-{count:05}.safetensors"


def safetensors(shapes: Mapping[str, tuple[int, ...]], seed: int, dtype: str = "F32") -> bytes:
    """Return a safetensors file of small random numbers of 4 bytes (F32) or 2 (BF16)."""
    draw = random.Random(seed)
    width = {"F32": 4, "BF16": 2}[dtype]
    header: dict[str, Any] = {}
    data, end = bytearray(), 0
    for name, shape in shapes.items():
        numel = 1
        for length in shape:
            numel *= length
        raw = bytearray(draw.randbytes(width * numel))
        raw[width - 1 :: width] = bytes([0x3C]) * numel  # exponents of small numbers
        data += raw
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(raw)]}
        end += len(raw)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(data)


def shapes_of_layer(layer: int, numel: int) -> dict[str, tuple[int, ...]]:
    at = f"model.layers.{layer}"
    return {f"{at}.mlp.up_proj.weight": (numel // 10, 10), f"{at}.input_layernorm.weight": (10,)}


def whole(seed: int, layers: int = 2, numel: int = 4000) -> Files:
    """Return the files of a model whose weights are in one file."""
    shapes = {k: v for layer in range(layers) for k, v in shapes_of_layer(layer, numel).items()}
    config = json.dumps(CONFIG | {"num_hidden_layers": layers}).encode()
    return {"config.json": config, "model.safetensors": safetensors(shapes, seed)}


def sharded(seed: int, layers: int = 2, numel: int = 4000) -> Files:
    """Return the files of a model: one for each layer, an index and a tokenizer."""
    files, weight_map = {}, {}
    for layer in range(layers):
        shapes, name = shapes_of_layer(layer, numel), shard(layer + 1, layers)
        files[name] = safetensors(shapes, 100 * seed + layer)
        weight_map |= dict.fromkeys(shapes, name)
    return {
        **files,
        "config.json": json.dumps(CONFIG | {"num_hidden_layers": layers}).encode(),
        "model.safetensors.index.json": json.dumps({"weight_map": weight_map}).encode(),
        "tokenizer.json": b"{}",
        "tokenizer_config.json": b'{"a": 1}',
    }


def adapter(seed: int, numel: int = 4000) -> Files:
    """Return the files of a LoRA adapter for the first layer."""
    at = "base_model.model.model.layers.0.mlp.up_proj"
    shapes = {f"{at}.lora_A.weight": (2, 10), f"{at}.lora_B.weight": (numel // 10, 2)}
    config = {"peft_type": "LORA", "lora_alpha": 4, "r": 2, "target_modules": ["up_proj"]}
    return {
        "adapter_config.json": json.dumps(config).encode(),
        "adapter_model.safetensors": safetensors(shapes, seed),
    }


def upload(bucket: Bucket, prefix: str, files: Files) -> str:
    """Upload the files of a model into a bucket, and return its address."""
    for name, data in files.items():
        bucket.put(f"{prefix}/{name}", data)
    return f"s3://{bucket.name}/{prefix}"


def write(folder: Path, files: Files) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def linear(*models: object) -> str:
    """Return a linear recipe of models."""
    lines = [f"  - {{model: {model}, parameters: {{weight: 1}}}}" for model in models]
    return "\n".join(["merge_method: linear", "models:", *lines, ""])


class Place:
    """A working folder with a recipe `merge.yaml`, and a cache of its own.

    Args:
        folder: a new folder, or that of another place.
        proxy: the proxy before the server; None for the server itself.
        env: further variables of the processes, besides those that direct them to the server.
    """

    def __init__(
        self, server: Server, folder: Path, recipe: str, proxy: Proxy | None = None, **env: str
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "merge.yaml").write_text(recipe)
        outside = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "HF_"))}
        self.env = {
            **outside,
            **server.env(proxy.endpoint if proxy else ""),
            "PYTHONPATH": str(ROOT),
            "HF_HUB_OFFLINE": "1",  # says nothing of buckets
            "HF_HOME": str(folder / "hf"),
            **env,
        }

    def start(self, *words: object, before: str = "") -> subprocess.Popen[str]:
        """Start a command; a merge runs in one process, so that a signal to it reaches the worker.

        Args:
            before: code that the process runs before the command.
        """
        program = f"{before}\nfrom resumerge.__main__ import main\nmain()"
        alone = ["--no-supervise"] if words[0] in ("run", "resume") else []
        return subprocess.Popen(
            [sys.executable, "-c", program, *map(str, words), *alone],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def call(self, *words: object, expect: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        process = self.start(*words)
        out, err = process.communicate()
        assert process.returncode == expect, err + out
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def document(self, *words: object, expect: int = 0) -> Any:
        """Run a command with ``--json``, and return the document that it prints."""
        return json.loads(self.call(*words, "--json", expect=expect).stdout)

    def output(self, name: str = "out") -> Files:
        """Return every file of a merge's output except those that name the recipe or the folder."""
        folder = self.folder / name
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name not in ("README.md", "mergekit_config.yml")
        }

    def cached(self, name: str) -> Path:
        """Return the path of the content of the only file of this name in the cache."""
        [found] = {path.resolve() for path in (self.folder / "hf").rglob(f"snapshots/*/{name}")}
        return found

    def committed(self) -> int:
        """Count the units that the newest run has committed."""
        ledgers = sorted(p for p in self.folder.glob("state/*/ledger.db") if ".new" not in str(p))
        if not ledgers:
            return 0
        with closing(sqlite3.connect(f"file:{ledgers[-1]}?mode=ro", uri=True)) as db:
            return int(
                db.execute("SELECT count(*) FROM units WHERE state = 'committed'").fetchone()[0]
            )

    def events(self, kind: str) -> list[Mapping[str, Any]]:
        """Return the data of all events of a kind in the newest run."""
        runs = self.document("status")["runs"]
        return [event["data"] for event in runs[0]["events"] if event["kind"] == kind]


def interrupt_while_held(place: Place, proxy: Proxy, part: str, before: str) -> None:
    """Merge, and send SIGINT while the server does not answer: the merge ends at once.

    Args:
        part: a part of the path of the requests to which the proxy sends no answer.
        before: code that lets the client wait for long.
    """
    proxy.hold("GET", part)
    process = place.start("run", "merge.yaml", "out", before=before)
    wait_until(lambda: proxy.wrong["held"], process)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate()
    assert process.returncode == 130, told
    assert not (place.folder / "out").exists()


def sent(proxy: Proxy) -> Counter[str]:
    """Count the bytes of objects that were sent, by the last part of their keys."""
    found: Counter[str] = Counter()
    for path, count in proxy.sent.items():
        if path.count("/") > 1:  # no listing
            found[path.rpartition("/")[2]] += count
    return found


def forget(proxy: Proxy) -> None:
    proxy.requests.clear()
    proxy.sent.clear()
