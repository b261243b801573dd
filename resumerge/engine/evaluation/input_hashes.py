"""Input hashes: the xxh3-128 of every operand of every block that was read from local models.

A remote file is pinned by its content. A local file is pinned only by its header and its stamp
(size, times, inode), and a mere copy of the file has another stamp. If the stamp differs, the input
hashes show whether the file still has the content that committed blocks were computed from. A hash
over the input hashes identifies the content of a local model in the model card.
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
    """Return the local files of each operand of a unit, by the operand's number.

    Operands without local files are omitted: they are not hashed.
    """
    expression = unit.expression
    operands = expression.operands if isinstance(expression, Merged) else (expression,)
    local_files = {
        number: plan.files_of(operand, "local") for number, operand in enumerate(operands)
    }
    return {number: operand_files for number, operand_files in local_files.items() if operand_files}


def are_hashed(ledger: Ledger) -> bool:
    """Return whether the attempts of a run hash their inputs.

    They do not if the run began with ``--trust-sources``.
    """
    run = ledger.run_or_none()
    return not (run and json.loads(run["options"]).get("trust_sources"))


def committed_input_hashes(unit: Unit, row: Mapping[str, bytes | None]) -> bytes:
    """Return the input hashes of a unit's committed blocks.

    Each block, in order, has 16 bytes for each of `hashed_operands`. The inputs of a copied unit
    are the same bytes as its output, so for such units the block hashes are returned.

    Args:
        unit: the unit of the row; if it is copied, the ledger has no input hashes of it.
        row: the row of the unit in the ledger's table ``units``.
    """
    return row["input_hashes" if isinstance(unit.expression, Merged) else "block_hashes"] or b""


def operand_hashes(hashes: bytes, place: int, count: int) -> Iterator[bytes]:
    """Yield the hash of each block of one operand.

    Args:
        hashes: the result of `committed_input_hashes`.
        place: the index of the operand among the hashed operands.
        count: the number of hashed operands.
    """
    bytes_per_block = count * HASH_BYTES
    for start in range(place * HASH_BYTES, len(hashes), bytes_per_block):
        yield hashes[start : start + HASH_BYTES]


def content_hashes(plan: Plan, ledger: Ledger, model: WrittenModel | None = None) -> dict[str, str]:
    """Return a hash of the bytes that a finished run read from each local model.

    Runs of one recipe have the same hash if and only if they read the same bytes, whether they were
    interrupted or not. Another recipe may read a model in other blocks, which gives another hash.

    Args:
        plan: the plan of the run; its sources give the models of the files.
        ledger: the ledger of the run, in which every unit is committed.
        model: the written model whose inputs are hashed; None for the whole output.

    Returns:
        the hashes by the text of the model's reference: the xxh3-128 (32 hex digits) of the hashes
        of all blocks that were read from the model. Empty for a run with ``--trust-sources``.
    """
    if not are_hashed(ledger):
        return {}
    model_folder, unit_numbers = (
        (model.folder, model.units) if model else ("", range(len(plan.units)))
    )
    digests: dict[str, xxhash.xxh3_128] = {}
    for shard in plan.shards:
        for row in ledger.units.all(shard.number):
            if row["number"] not in unit_numbers:
                continue
            unit = plan.units[row["number"]]
            name = unit.name.removeprefix(model_folder)
            files_of_operands = hashed_operands(plan, unit)
            input_hashes = committed_input_hashes(unit, row)
            for position, (operand, operand_files) in enumerate(files_of_operands.items()):
                model_texts = {
                    plan.sources[n].part_of(name)[0].ref.text for n, name in operand_files
                }
                for model_text in sorted(model_texts):
                    digest = digests.setdefault(model_text, xxhash.xxh3_128())
                    digest.update(f"{name}\0{operand}\0".encode())
                    if len(model_texts) > 1:  # the operand was computed from all these models
                        digest.update(model_text.encode())
                    for block_hash in operand_hashes(
                        input_hashes, position, len(files_of_operands)
                    ):
                        digest.update(block_hash)
    return {model_text: digest.hexdigest() for model_text, digest in digests.items()}
