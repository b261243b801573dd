"""Hashes of what was read from local models: xxh3-128 of every operand of every block.

A file of the Hub is pinned by its content. A local file is pinned by its header alone, and by what
the filesystem says of it, which a copy changes too. These hashes decide whether a file whose stamp
differs still has the content that committed blocks were computed from, and they name the content
of a local model in the model card.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import xxhash

from resumerge.digests import HASH_BYTES
from resumerge.ledger import Ledger
from resumerge.planning.plan import Plan, SourceFileKey, Unit
from resumerge.planning.written.models import WrittenModel
from resumerge.tensors import Merged


def hashed_operands(plan: Plan, unit: Unit) -> dict[int, frozenset[SourceFileKey]]:
    """Return the operands of a unit whose bytes are hashed, with their local files, by number."""
    tensor = unit.expression
    operands = tensor.operands if isinstance(tensor, Merged) else (tensor,)
    files = {number: plan.files_of(operand, "local") for number, operand in enumerate(operands)}
    return {number: some for number, some in files.items() if some}


def are_hashed(ledger: Ledger) -> bool:
    """Return whether a run hashes what it reads, which is decided once for all its attempts.

    Nothing is hashed if ``--trust-sources`` was given when the run began.
    """
    run = ledger.run_or_none()
    return not (run and json.loads(run["options"]).get("trust_sources"))


def known_hashes(unit: Unit, row: Mapping[str, bytes | None]) -> bytes:
    """Return the hashes of what a unit's committed blocks were computed from.

    Each block in order has 16 bytes for each of `hashed_operands`. What is copied has the bytes of
    the output, whose hashes are not kept twice.

    Args:
        unit: the unit.
        row: the unit's row of the ledger's table `units`.
    """
    return row["input_hashes" if isinstance(unit.expression, Merged) else "block_hashes"] or b""


def operand_hashes(hashes: bytes, place: int, count: int) -> Iterator[bytes]:
    """Yield the hashes of the blocks of operand number `place`, out of `count` operands."""
    step = count * HASH_BYTES
    for start in range(place * HASH_BYTES, len(hashes), step):
        yield hashes[start : start + HASH_BYTES]


def content_hashes(plan: Plan, ledger: Ledger, model: WrittenModel | None = None) -> dict[str, str]:
    """Return a hash of what a finished run read of each local model, by the text of its reference.

    The hash is the same for any two runs of one recipe that read the same bytes, whatever happened
    meanwhile, and another one if a byte that was read differs. In another role of another recipe, a
    model is read in other blocks and has another hash.

    Args:
        plan: the plan.
        ledger: the run's ledger.
        model: the one of the models that are written that is asked about; None for all together.

    Returns:
        xxh3-128 of the hashes of all blocks that were read from the model, 32 hex digits; nothing
        for a run whose sources are trusted.
    """
    if not are_hashed(ledger):
        return {}
    folder, units = (model.folder, model.units) if model else ("", range(len(plan.units)))
    digests: dict[str, xxhash.xxh3_128] = {}
    for shard in plan.shards:
        for row in ledger.units.all(shard.index):
            if row["number"] not in units:
                continue
            unit = plan.units[row["number"]]
            name = unit.name.removeprefix(folder)
            files, hashes = hashed_operands(plan, unit), known_hashes(unit, row)
            for place, (operand, some) in enumerate(files.items()):
                read = {plan.sources[n].part_of(name)[0].ref.text for n, name in some}
                for ref in sorted(read):
                    digest = digests.setdefault(ref, xxhash.xxh3_128())
                    digest.update(f"{name}\0{operand}\0".encode())
                    if len(read) > 1:  # all have a part in what was hashed
                        digest.update(ref.encode())
                    for block in operand_hashes(hashes, place, len(files)):
                        digest.update(block)
    return {ref: digest.hexdigest() for ref, digest in digests.items()}
