"""A search killed at random times, against the same search left alone.

For each sampler: a search of `--trials` trials, in batches of `--batch`, then the same search whose
whole process group is killed (SIGKILL) at `--kills` random times, and started again by the same
command. What was suggested and measured must be the same, for one seed. An evaluation has a session
of its own and outlives such a kill: the next command has to find and kill it.

    python -m benchmarks.search_soak
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

SAMPLERS = ("tpe", "cmaes", "nsga2", "grid", "random")

SPACE = """\
merge_method: linear
models:
  - {model: a, parameters: {weight: {suggest: float, low: 0, high: 1, step: 0.125}}}
  - {model: b, parameters: {weight: {suggest: float, low: 0.25, high: 2, step: 0.25}}}
"""

SCORE = """\
import json, struct, sys, time
with open(sys.argv[1] + "/model.safetensors", "rb") as file:
    size, = struct.unpack("<Q", file.read(8))
    begin, _ = json.loads(file.read(size))["model.norm.weight"]["data_offsets"]
    file.seek(8 + size + begin)
    first, second = struct.unpack("<ff", file.read(8))
time.sleep(0.2)
print(json.dumps({"one": -(first - 0.3) ** 2, "two": -(second - 0.7) ** 2}))
"""


def write_models(place: Path) -> None:
    """Write two models of two tensors, the space and the evaluation."""
    draw = np.random.default_rng(3)
    for name in ("a", "b"):
        (place / name).mkdir()
        tensors = {
            "model.norm.weight": draw.random(64, dtype=np.float32),
            "model.embed_tokens.weight": draw.random((512, 64), dtype=np.float32),
        }
        save_file(tensors, place / name / "model.safetensors", {"format": "pt"})
        config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
        (place / name / "config.json").write_text(json.dumps(config))
    (place / "space.yaml").write_text(SPACE)
    (place / "score.py").write_text(SCORE)


def start(
    place: Path, out: str, sampler: str, seed: int, given: Sequence[str]
) -> subprocess.Popen[bytes]:
    """Start a search in a process group of its own."""
    score = f"{shlex.quote(sys.executable)} -I -S score.py {{model}}"
    words = ["search", "space.yaml", out, "--evaluate", score, "--sampler", sampler, "--json"]
    words += [*given, "--seed", str(seed), "--state-dir", f"{out}.state"]
    for metric in ("one", "two") if sampler == "nsga2" else ("one",):
        words += ["--metric", metric]
    with (place / f"{out}.json").open("wb") as said, (place / f"{out}.err").open("ab") as err:
        return subprocess.Popen(
            [sys.executable, "-m", "resumerge", *words],
            cwd=place, stdout=said, stderr=err, start_new_session=True,
        )  # fmt: skip


def history(place: Path, out: str) -> list[Any]:
    """Return what a finished search suggested and measured."""
    document = json.loads((place / f"{out}.json").read_bytes())
    keys = ("number", "state", "values", "parameters")
    return [[row[key] for key in keys] for row in document["trials"]]


def soak(place: Path, sampler: str, kills: int, seed: int, given: Sequence[str]) -> bool:
    """Kill a search at random times; print and return whether its history is that of a calm one."""
    calm, began = start(place, f"{sampler}-calm", sampler, seed, given), time.monotonic()
    if calm.wait() != 0:
        raise SystemExit((place / f"{sampler}-calm.err").read_text())
    seconds = time.monotonic() - began
    wanted = history(place, f"{sampler}-calm")
    draw, killed, round_, times, same = random.Random(seed), 0, 0, [], True
    while True:
        out = f"{sampler}-{round_}"
        process = start(place, out, sampler, seed, given)
        if killed < kills:
            times.append(draw.uniform(0, seconds / 2))
            try:
                process.wait(times[-1])
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                killed += 1
                continue
        if process.wait() != 0:
            raise SystemExit((place / f"{out}.err").read_text())
        same = same and history(place, out) == wanted
        round_ += 1
        if killed >= kills:
            break
    seen = "same" if same else "DIFFERENT"
    print(
        f"{sampler}: seed {seed}, {' '.join(given)}, {seconds:.1f} s calm, {killed} kills in "
        f"{round_} searches, at {', '.join(f'{t:.1f}' for t in times)} s: {seen}",
        flush=True,
    )
    return same


def main() -> None:
    """Soak the samplers that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("samplers", nargs="*", default=SAMPLERS)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=7)
    asked = parser.parse_args()
    names = ("trials", "batch", "jobs")
    given = [word for name in names for word in (f"--{name}", str(getattr(asked, name)))]
    with tempfile.TemporaryDirectory() as folder:
        write_models(Path(folder))
        results = [
            soak(Path(folder), sampler, asked.kills, asked.seed, given)
            for sampler in asked.samplers
        ]
    raise SystemExit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
