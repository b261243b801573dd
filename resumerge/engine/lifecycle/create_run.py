"""A new run's ledger: the plan, written down whole before anything else is."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import resumerge
from resumerge.engine.checks.drift import samples
from resumerge.engine.execute.checksums import hash_block
from resumerge.host.machine import hostname
from resumerge.ledger import LEDGER_FILE, Ledger, now, take_snapshot
from resumerge.ledger.run_store import RECIPE_FILE, RunStore
from resumerge.mirror.stores.registry import open_store
from resumerge.options import Options
from resumerge.planning import NUMERICS, Plan, fingerprint, fingerprint_parts
from resumerge.sources import Source
from resumerge.storage import Storage


def create_run(
    plan: Plan,
    config: Path,
    out: Path,
    options: Options,
    unborn: Path,
    home: RunStore,
    storage: Storage,
) -> Path:
    """Fill a new run's folder with its ledger; it appears whole or not at all.

    Args:
        unborn: the folder, of `RunStore.new`.

    Returns:
        The folder under its final name.
    """
    name = unborn.stem
    parts = fingerprint_parts(plan)
    ledger = Ledger.create(unborn / LEDGER_FILE)
    ledger.begin(
        {
            "id": name,
            "created": now(),
            "config_path": str(config.absolute()),
            "config_text": plan.recipe.text,
            "output": str(out),
            "fingerprint": fingerprint(parts),
            "fingerprint_parts": json.dumps(parts),
            "options": json.dumps(options.kept(seed=plan.seed, shard_size=plan.shard_size)),
            "versions": json.dumps(versions()),
            "host": hostname(),
            "state": "planned",
        },
        (
            {
                "number": number,
                "model": source.ref.text,
                "kind": source.kind,
                "revision": source.revision,
                "folder": str(source.folder),
                "identity": json.dumps({**source.identity(), "samples": samples(source)}),
            }
            for number, source in enumerate(_with_parts(plan.sources))
        ),
        (
            {
                "number": shard.index,
                "name": shard.name,
                "nbytes": shard.nbytes,
                "header_bytes": len(shard.header),
                "header_checksum": hash_block(shard.header).hex(),
                "state": "open",
            }
            for shard in plan.shards
        ),
        (
            {
                "number": unit.index,
                "name": unit.name,
                "shard": unit.shard,
                "offset": unit.offset,
                "nbytes": unit.nbytes,
                "dtype": unit.dtype,
                "shape": json.dumps(unit.shape),
                "block_elements": unit.block_elements,
                "expression": json.dumps(unit.expression.as_json()),
                "blocks": unit.blocks,
                "state": "pending",
                "committed_blocks": 0,
            }
            for unit in plan.units
        ),
    )
    if options.mirror:
        ledger.set_mirror(open_store(options.mirror).url)
    take_snapshot(ledger, storage)
    ledger.close()
    storage.write_file(unborn / RECIPE_FILE, plan.recipe.text.encode())
    storage.sync_file(unborn / LEDGER_FILE)
    return home.born(unborn, storage)


def _with_parts(sources: Iterable[Source]) -> list[Source]:
    """The sources, then what those with an adapter consist of, each of which is pinned."""
    plan = list(sources)
    named = {source.ref.text for source in plan}
    parts = {
        part.ref.text: part
        for source in plan
        for part in source.parts.values()
        if part.ref.text not in named
    }
    return [*plan, *parts.values()]


def versions() -> dict[str, Any]:
    """What computes: recorded, so that a change on the way can be told."""
    return {
        "resumerge": resumerge.__version__,
        "numerics": NUMERICS,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
