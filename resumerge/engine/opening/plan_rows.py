"""The rows that store a plan in a ledger."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from resumerge.accounts import Accounts, ModelAccount
from resumerge.engine.recovery.touched_sources import stamps_of
from resumerge.kernels.hashes import hash_block
from resumerge.layout import collapse
from resumerge.ledger import Row
from resumerge.planning import Plan
from resumerge.sources import Source


def source_rows(plan: Plan) -> Iterator[Row]:
    """Yield the rows of ``sources``: the plan's models, then the parts of adapted models."""
    for number, source in enumerate(_with_parts(plan.sources)):
        yield {
            "number": number,
            "model": source.ref.text,
            "kind": source.kind,
            "revision": source.revision,
            "folder": str(source.folder),
            "identity": json.dumps(source.identity()),
            "stamps": stamps_of(source),
        }


def shard_rows(plan: Plan) -> Iterator[Row]:
    """Yield the rows of ``shards``. All shards are open."""
    for shard in plan.shards:
        yield {
            "number": shard.number,
            "name": shard.name,
            "nbytes": shard.nbytes,
            "header_bytes": len(shard.header),
            "header_checksum": hash_block(shard.header).hex(),
            "copied": int(shard.copied is not None),
            "state": "open",
        }


def unit_rows(plan: Plan) -> Iterator[Row]:
    """Yield the rows of ``units``. All units are pending."""
    for unit in plan.units:
        yield {
            "number": unit.number,
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


def account_rows(accounts: Accounts) -> Iterator[Row]:
    """Yield the rows of ``accounts``: one for each use, and each reason, of a model's tensors."""
    rows = (row for model in accounts.models for row in _rows_of(model))
    for number, row in enumerate(rows):
        yield {"number": number, **row}


def _rows_of(model: ModelAccount) -> Iterator[Row]:
    empty_row = dict.fromkeys(("use", "reason", "folded", "names")) | {"model": model.model}
    for use, tensors in model.used.items():
        yield {**empty_row, "use": use.slug, "tensors": tensors}
    for reason, names in model.unused.items():
        assert reason is not None, "refused before anything is written"
        listed_names = {"folded": json.dumps(collapse(names)), "names": json.dumps(names)}
        yield {**empty_row, "reason": reason.value, "tensors": len(names), **listed_names}


def _with_parts(sources: Iterable[Source]) -> list[Source]:
    """Return the sources, then the base and adapter of adapted models, which are pinned too."""
    models = list(sources)
    model_texts = {source.ref.text for source in models}
    unnamed_parts = {
        part.ref.text: part
        for source in models
        for part in source.parts.values()
        if part.ref.text not in model_texts
    }
    return [*models, *unnamed_parts.values()]
