"""Whole merges of models on the hub: processes, as a user starts them."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from hub_models import CONFIG, shard
from loopback_hub import Hub

from resumerge.hub.file import HubFile

ROOT = Path(__file__).parents[2]

RECIPE = """
merge_method: linear
dtype: bfloat16
models:
  - {model: org/math, parameters: {weight: 1}}
  - {model: org/code, parameters: {weight: 1}}
"""

COPIES = """
merge_method: passthrough
dtype: bfloat16
slices:
  - sources: [{model: org/math, layer_range: [0, 8]}]
  - sources: [{model: org/code, layer_range: [0, 8]}]
"""
"""All layers of both models, in order: nothing is computed, so the merge starts quickly."""


def layered(seed: int, shards: int = 8, numel: int = 100_000, tensors: int = 2) -> dict[str, bytes]:
    """Return a sharded model of random BF16 weights: in each shard a layer of `tensors` tensors."""
    draw = random.Random(seed)
    weight_map: dict[str, str] = {}
    files: dict[str, bytes] = {"tokenizer.json": b"{}", "tokenizer_config.json": b'{"a": 1}'}
    for layer in range(shards):
        names = [f"model.layers.{layer}.{part}.weight" for part in ("up", "down", "gate")[:tensors]]
        header: dict[str, Any] = {
            name: {
                "dtype": "BF16",
                "shape": [numel],
                "data_offsets": [i * 2 * numel, (i + 1) * 2 * numel],
            }
            for i, name in enumerate(names)
        }
        text = json.dumps(header).encode()
        # small numbers: a positive exponent byte that never makes NaN or Inf
        data = bytearray(draw.randbytes(2 * numel * tensors))
        data[1::2] = bytes([0x3C]) * (numel * tensors)
        file = shard(layer + 1, shards)
        files[file] = len(text).to_bytes(8, "little") + text + bytes(data)
        weight_map |= dict.fromkeys(names, file)
    config = json.loads(CONFIG) | {"num_hidden_layers": shards}
    index = {"metadata": {}, "weight_map": weight_map}
    return files | {
        "config.json": json.dumps(config).encode(),
        "model.safetensors.index.json": json.dumps(index).encode(),
    }


class Place:
    """A working folder with a recipe `merge.yaml`, and a cache of its own.

    Args:
        hub: the server.
        folder: a new folder.
        env: variables for the processes, besides those that lead to the hub.
    """

    def __init__(self, hub: Hub, folder: Path, recipe: str = RECIPE, **env: str) -> None:
        self.hub, self.folder = hub, folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "merge.yaml").write_text(recipe)
        self.env = {
            **hub.env(PYTHONPATH=str(ROOT)),
            "HF_HUB_OFFLINE": "0",
            "HF_HOME": str(folder / "hf"),
            **env,
        }

    def start(self, *words: object) -> subprocess.Popen[str]:
        """Start a command; a merge runs in one process, so that signals reach the worker."""
        alone = ["--no-supervise"] if words[0] in ("run", "resume") else []
        return subprocess.Popen(
            [sys.executable, "-m", "resumerge", *map(str, words), *alone],
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
        assert process.returncode == expect, err
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def document(self, *words: object, expect: int = 0) -> Any:
        """Run a command, and return the JSON that it prints."""
        return json.loads(self.call(*words, "--json", expect=expect).stdout)

    def events(self, kind: str) -> list[Mapping[str, Any]]:
        """Return the data of all events of a kind, of the newest run."""
        runs = self.document("status")["runs"]
        return [event["data"] for event in runs[0]["events"] if event["kind"] == kind]

    def committed(self) -> int:
        """Return how many units the newest run has committed."""
        runs = [run for run in self.folder.glob("state/*") if (run / "ledger.db").exists()]
        ledgers = sorted(run / "ledger.db" for run in runs if run.suffix != ".new")
        if not ledgers:
            return 0
        with closing(sqlite3.connect(f"file:{ledgers[-1]}?mode=ro", uri=True)) as db:
            return int(
                db.execute("SELECT count(*) FROM units WHERE state = 'committed'").fetchone()[0]
            )

    def blob(self, repo: str, name: str) -> Path:
        """Return the path in this place's cache of a file of a repo's main branch."""
        store = self.hub.repos[repo]
        commit = store.branches["main"]
        file = HubFile(repo, commit, name, 0, store.commits[commit][name].etag)
        relative = file.blob.relative_to(file.blob.parents[2])
        return self.folder / "hf" / "hub" / relative


def output(folder: Path) -> dict[str, bytes]:
    """Return every file of a merge's output except the card, which names the folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "README.md"
    }
