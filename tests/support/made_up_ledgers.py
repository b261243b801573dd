"""Ledgers of runs that never existed, as large or as unusual as a test needs them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import xxhash

from resumerge.ledger import Ledger
from resumerge.ledger.validity import RECIPE_TEXT, text_digest
from resumerge.planning import fingerprint

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> str:
    """Return a time of the run as the ledger writes it."""
    return (BEGIN + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def make_ledger(
    home: Path,
    attempts: list[dict[str, Any]],
    samples: Sequence[tuple[float, int, int, int, int, int, int]] = (),
    events: Sequence[tuple[int, str, dict[str, Any]]] = (),
    units: int = 10,
    **run: Any,
) -> Path:
    """Write a run's ledger.

    Args:
        attempts: the columns of their rows; started and ended in seconds.
        samples: at (seconds), attempt, rss, available, budget, batch bytes, bytes done.
        events: attempt, kind, data.
        run: the columns of its row.

    Returns:
        The run's folder.
    """
    folder = home / "made-up"
    folder.mkdir(parents=True)
    ledger = Ledger.create(folder / "ledger.db")
    names = [f"model.layers.{n // 9}.mlp.{n % 9}_proj.weight" for n in range(units)]
    parts = {"recipe": {}, RECIPE_TEXT: text_digest(run.get("config_text", ""))}
    operands = [{"source": n, "tensor": "", "params": {"weight": 0.5}} for n in range(3)]
    hashes = b"0123456789abcdef"
    ledger.begin(
        {"id": folder.name, "created": at(0), "config_path": "recipe.yaml", "config_text": "",
         "output": "merged", "options": "{}", "state": "interrupted", "versions": "{}",
         "fingerprint": fingerprint(parts), "fingerprint_parts": json.dumps(parts), **run},
        [{"number": 0, "model": "org/base", "kind": "hub", "revision": "ab" * 20,
          "folder": "cache", "identity": "{}"}],
        [{"number": 0, "name": "model.safetensors", "nbytes": units * 1000 + 8, "state": "open",
          "header_bytes": 8, "header_checksum": "0" * 32}],
        [
            {"number": n, "name": name, "shard": 0, "offset": n * 1000 + 8, "nbytes": 1000,
             "blocks": 1, "committed_blocks": 1, "block_hashes": hashes,
             "checksum": xxhash.xxh3_128_hexdigest(hashes), "attempt": 1, "batch": n // 10 + 1,
             "state": "committed", "seconds": 0.5, "dtype": "F32", "shape": "[25, 10]",
             "block_elements": 2**18,
             "expression": json.dumps({"method": "ties", "params": {"normalize": True}, "base": 0,
              "cast": None, "operands": [{**o, "tensor": name} for o in operands]})}
            for n, name in enumerate(names)
        ],
    )  # fmt: skip
    columns = ("at", "attempt", "rss", "available", "budget", "batch_bytes", "bytes_done")
    fixed = {"pid": 1, "host": "here", "units_committed": 1}
    ledger.fill(
        {
            "attempts": [
                {**fixed, "last_seen": at(row["ended"]), **row}
                | {key: at(row[key]) for key in ("started", "ended")}
                for row in attempts
            ],
            "samples": [dict(zip(columns, (at(when), *rest))) for when, *rest in samples],
            "events": [
                {"at": at(1), "attempt": attempt, "kind": kind, "data": json.dumps(data)}
                for attempt, kind, data in events
            ],
        }
    )
    ledger.close()
    return folder


def large_ledger(state: Path) -> Path:
    """Write a ledger of 10,000 tensors and of 100,000 samples, with one peak, in five attempts."""
    samples = []
    for n in range(100_000):
        rss = 900_000_000 if n == 54_321 else 300_000_000 + n % 7
        samples.append((float(n), n // 20_000 + 1, rss, 2**33, 10**9, 2**27, n * 5_000_000))
    attempts = [
        {"n": n + 1, "started": n * 20_000, "ended": n * 20_000 + 19_999, "outcome": "killed",
         "budget": 10**9, "peak_rss": 900_000_000, "bytes_committed": 10**11}
        for n in range(5)
    ]  # fmt: skip
    events = [(1 + n // 100, "batch_lowered", {"reason": "why"}) for n in range(500)]
    return make_ledger(state, attempts, samples, events, units=10_000)
