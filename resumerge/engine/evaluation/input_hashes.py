"""Input hashes: xxh3-128 of every operand of every block that was read from local models.

A file of the Hub is pinned by its content. A local file is pinned only by its header and its stamp
(size, times, inode), and copying it changes the stamp, too. The input hashes decide whether a file
whose stamp differs still has the content that committed blocks were computed from. A hash of them
names the content of a local model in the model card.
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
    """Return the local files of each operand of a unit that is hashed, by the operand's number."""
    tensor = unit.expression
    operands = tensor.operands if isinstance(tensor, Merged) else (tensor,)
    files = {number: plan.files_of(operand, "local") for number, operand in enumerate(operands)}
    return {number: local for number, local in files.items() if local}


def are_hashed(ledger: Ledger) -> bool:
    """Return whether a run hashes its inputs, which all its attempts do or none.

    Inputs are not hashed if ``--trust-sources`` was given when the run began.
    """
    run = ledger.run_or_none()
    return not (run and json.loads(run["options"]).get("trust_sources"))


def committed_input_hashes(unit: Unit, row: Mapping[str, bytes | None]) -> bytes:
    """Return the input hashes of a unit's committed blocks.

    Each block in order has 16 bytes for each of `hashed_operands`. The input of a copied unit is
    its output, so the ledger keeps these hashes once, as those of the output.

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
    """Return a hash of the bytes that a finished run read of each local model, by its reference.

    Two runs of one recipe that read the same bytes have the same hash, whatever interrupted them;
    if one byte differs, the hash differs. Another recipe may read a model in other blocks, which
    gives another hash.

    Args:
        plan: the plan.
        ledger: the run's ledger.
        model: hash only the inputs of this written model; None for the whole output.

    Returns:
        for each reference the xxh3-128 of the hashes of all blocks that were read from the model,
        32 hex digits; empty for a run whose sources are trusted.
    """
    if not are_hashed(ledger):
        return {}
    folder, units = (model.folder, model.units) if model else ("", range(len(plan.units)))
    digests: dict[str, xxhash.xxh3_128] = {}
    for shard in plan.shards:
        for row in ledger.units.all(shard.number):
            if row["number"] not in units:
                continue
            unit = plan.units[row["number"]]
            name = unit.name.removeprefix(folder)
            files, hashes = hashed_operands(plan, unit), committed_input_hashes(unit, row)
            for place, (operand, of_operand) in enumerate(files.items()):
                refs = {plan.sources[n].part_of(name)[0].ref.text for n, name in of_operand}
                for ref in sorted(refs):
                    digest = digests.setdefault(ref, xxhash.xxh3_128())
                    digest.update(f"{name}\0{operand}\0".encode())
                    if len(refs) > 1:  # the hashed bytes are of all these models together
                        digest.update(ref.encode())
                    for block in operand_hashes(hashes, place, len(files)):
                        digest.update(block)
    return {ref: digest.hexdigest() for ref, digest in digests.items()}
