"""``resumerge demo``: a merge that is killed halfway and resumed."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console

from resumerge.cli.parsing.command import Command
from resumerge.documents.status import status_json
from resumerge.kernels.elementwise import round_to
from resumerge.ledger.run_store import RunStore
from resumerge.native import BF16, Vector
from resumerge.sizes import show_size
from resumerge.ui.terminal.status import show_run
from resumerge.ui.terminal.terminal import out as stdout

LAYERS, HIDDEN, INNER, VOCABULARY = 6, 1024, 2816, 16000
"""The shape of a Llama of 95 M parameters: made in a second, and large enough to kill halfway."""

KILL_AT = 0.4
"""The share of the output that is committed before the kill."""

RECIPE = """\
# TIES-merging of two fine-tunes of one base.
merge_method: ties
base_model: {folder}/base
models:
  - model: {folder}/math
    parameters: {{weight: 0.6, density: 0.5}}
  - model: {folder}/code
    parameters: {{weight: 0.4, density: 0.5}}
dtype: bfloat16
"""


@click.command("demo", cls=Command)
def command() -> None:
    """Show a merge that is killed and resumed. It uses small models that it makes itself."""
    raise click.exceptions.Exit(run_demo(stdout))


def run_demo(console: Console) -> int:
    """Run the six steps of the demonstration in a temporary folder, and return the exit code."""
    folder = Path(tempfile.mkdtemp(prefix="resumerge-demo-"))
    try:
        return _demonstrate(console, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _demonstrate(console: Console, folder: Path) -> int:
    def say(text: str) -> None:
        console.print(f"\n[bold cyan]{text}[/bold cyan]", markup=True, highlight=False)

    say(f"1. A base model and two fine-tunes of it, in {folder}")
    for seed, name in enumerate(("base", "math", "code")):
        nbytes = make_model(folder / name, seed)
        console.print(f"   {name}: {show_size(nbytes)}", highlight=False)
    recipe = folder / "recipe.yaml"
    recipe.write_text(RECIPE.format(folder=folder))

    say("2. resumerge run recipe.yaml merged --no-supervise, then SIGKILL when 40% is committed")
    runs = RunStore(folder / "state")
    share = kill_halfway(recipe, folder / "merged", runs)
    console.print(f"   killed with {share:.0%} committed", highlight=False)

    say("3. resumerge status")
    console.print(show_run(_status(runs)), crop=False)

    say("4. resumerge resume")
    _resumerge("resume", "--state-dir", str(runs.folder))
    console.print(show_run(_status(runs)), crop=False)

    say("5. resumerge verify")
    _resumerge("verify", "--state-dir", str(runs.folder))

    say("6. The same recipe without interruption, compared byte for byte")
    _resumerge(
        "run",
        str(recipe),
        str(folder / "uninterrupted" / "merged"),
        "--state-dir",
        str(folder / "b"),
    )
    are_identical = same_files(folder / "merged", folder / "uninterrupted" / "merged")
    file_count = len([path for path in (folder / "merged").rglob("*") if path.is_file()])
    if are_identical and share < 1.0:
        console.print(
            f"\n[green]All {file_count} files are identical.[/green]", markup=True, highlight=False
        )
        return 0
    explanation = (
        "The merge had finished before it was killed. Run the demo again."
        if are_identical
        else "The files differ. This is a bug in resumerge: please report it."
    )
    console.print(f"\n[red]{explanation}[/red]", markup=True, highlight=False)
    return 1


def make_model(folder: Path, seed: int) -> int:
    """Write a random Llama: the base for seed 0, otherwise the base with small random changes.

    Returns:
        The size of its weights in bytes.
    """
    shape_by_name: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN)}
    for layer in range(LAYERS):
        stem = f"model.layers.{layer}"
        shape_by_name |= {
            f"{stem}.self_attn.{part}_proj.weight": (HIDDEN, HIDDEN) for part in "qkvo"
        }
        shape_by_name |= {
            f"{stem}.mlp.{part}_proj.weight": (INNER, HIDDEN) for part in ("gate", "up")
        }
        shape_by_name[f"{stem}.mlp.down_proj.weight"] = (HIDDEN, INNER)
        shape_by_name |= {
            f"{stem}.{part}_layernorm.weight": (HIDDEN,) for part in ("input", "post_attention")
        }
    shape_by_name |= {"model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCABULARY, HIDDEN)}
    folder.mkdir()
    weight_bytes = _write_weights(folder / "model.safetensors", shape_by_name, seed)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "vocab_size": VOCABULARY,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    words = {"type": "WordLevel", "vocab": {f"w{number}": number for number in range(VOCABULARY)}}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {**words, "unk_token": "w0"}}))
    return weight_bytes


def _write_weights(path: Path, shapes: Mapping[str, tuple[int, ...]], seed: int) -> int:
    """Write random tensors in bfloat16 to a file, and return its size in bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    base_rng, change_rng = np.random.default_rng(0), np.random.default_rng(seed)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for shape in shapes.values():
            count = math.prod(shape)
            values = base_rng.standard_normal(count, np.float32) * np.float32(0.02)
            if seed:
                values += change_rng.standard_normal(count, np.float32) * np.float32(0.002)
            bfloat16_bits = np.empty(count, np.uint16)
            round_to(Vector(values), Vector(bfloat16_bits, BF16))
            file.write(bfloat16_bits.data)
        return file.tell()


def kill_halfway(recipe: Path, out: Path, runs: RunStore) -> float:
    """Start a merge, kill it once 40 % is committed, and return the committed share."""
    worker = subprocess.Popen(
        [
            *_command("run", str(recipe), str(out)),
            "--no-supervise",
            "--state-dir",
            str(runs.folder),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while worker.poll() is None:
        if runs.runs() and _share(runs) >= KILL_AT:
            os.kill(worker.pid, signal.SIGKILL)
            break
        time.sleep(0.02)
    worker.wait()
    return _share(runs)


def same_files(a: Path, b: Path) -> bool:
    """Return whether two folders hold the same files with the same bytes."""
    names = [
        sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())
        for root in (a, b)
    ]
    return names[0] == names[1] and all(
        (a / name).read_bytes() == (b / name).read_bytes() for name in names[0]
    )


def _status(runs: RunStore) -> dict[str, Any]:
    run: dict[str, Any] = status_json(runs, None)["runs"][0]
    return run


def _share(runs: RunStore) -> float:
    done = _status(runs)["bytes"]
    return float(done["committed"] / done["total"])


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "resumerge", *words]


def _resumerge(*words: str) -> None:
    """Run a command, with its messages in order after the earlier output of this process."""
    sys.stdout.flush()
    subprocess.run(_command(*words), check=True, stderr=subprocess.STDOUT)
