"""Recomputation: blocks of a run are computed again from its pinned sources and compared.

`verify` checks that the output still has the bytes that were computed. Recomputation checks that
these bytes are the result of the recipe for its models.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from resumerge.digests import HASH_BYTES
from resumerge.engine.checks.contents import touched_files
from resumerge.engine.checks.drift import check_same_plan
from resumerge.engine.context import RunContext
from resumerge.engine.evaluation.evaluator import Evaluator
from resumerge.engine.execute.budget import resource_budget
from resumerge.engine.opening.pinned_plan import pinned_plan
from resumerge.engine.opening.pins import pins_of, ranks_of
from resumerge.engine.recovery.open_ledger import read_ledger
from resumerge.engine.recovery.verification import Recomputation, Verification
from resumerge.engine.recovery.verify import verify_run
from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import InputError, refuse
from resumerge.kernels.hashes import hash_blocks
from resumerge.ledger import Ledger
from resumerge.ledger.run_store import RunStore
from resumerge.mirror.stores.registry import is_mirror_url
from resumerge.options import Options
from resumerge.output_path import OutputPath
from resumerge.planning import Estimate, Plan
from resumerge.planning.plan import Unit
from resumerge.recipe import parse_recipe
from resumerge.storage import Storage
from resumerge.tensors.target import BLOCK_RUN_BYTES

SAMPLED = 50
"""The number of blocks in a sample, one per tensor; fewer if there are fewer tensors."""


@dataclass(frozen=True)
class _CommittedBlocks:
    """Committed blocks of a unit to compute again, with their hashes in the ledger."""

    unit: Unit
    indices: range
    hashes: bytes


def verify_sources(
    run: str | None, options: Options, reporter: Reporter, *, every: bool
) -> Verification:
    """Verify a run's output like `verify_run`, and compute blocks of it again from its models.

    Args:
        run: the run's id or output; None for the newest run.
        options: the options of the command; those that it leaves out are taken from the run.
        reporter: receives the start of each phase, and the progress.
        every: whether every committed block is computed again; otherwise a random sample is.

    Raises:
        InputError: there is no such run on this machine; or its models, its recipe's meaning or the
            program have changed.
        Interrupted: a signal arrived.
        Resumable: the output, or a model, cannot be read now.
    """
    runs = RunStore(options.state_dir)
    if run is not None and is_mirror_url(run):
        raise refuse(
            "Only a run of this machine can be compared with its models",
            where=run,
            expected="the id or the output of a run",
            fix="name the run, or leave --sources out",
        )
    context = RunContext(options, reporter, Storage(), StopRequest(), runs)
    with context.working():
        verification = verify_run(folder := runs.find(run), context.storage)
        return replace(verification, recomputed=recompute(context, folder, every=every))


def recompute(context: RunContext, folder: Path, *, every: bool) -> Recomputation:
    """Compute committed blocks again from the pinned sources, and compare them with the ledger.

    The ledger is only read, so another process may work on the run at the same time. Models that
    are not on this disk are read by ranges if possible, and are not stored.

    Args:
        context: the command's context. Options that the command leaves out are set to the run's.
        folder: the folder of the run's ledger, which is read and not locked.
        every: whether all committed blocks are compared; otherwise a random sample is.

    Raises:
        InputError: the sources, the recipe's meaning or the program have changed since the run was
            created.
        Interrupted: a signal arrived.
        Resumable: a source cannot be read now.
    """
    with closing(read_ledger(folder)) as ledger:
        context.run_id = folder.name
        plan, estimate = _planned(context, ledger)
        chosen_blocks = list(_committed(plan, ledger))
        committed_count = sum(len(blocks.indices) for blocks in chosen_blocks)
        seed = None if every else random.randrange(1 << 32)
        if seed is not None:
            chosen_blocks = _sample(chosen_blocks, random.Random(seed))
        budget = resource_budget(context, plan, estimate)
        with closing(context.reader(plan.sources)) as reader:
            evaluator = Evaluator(plan, estimate, reader, budget.device, hashes=False)
            first_differences = _compare(context, evaluator, chosen_blocks, budget.threads)
        return Recomputation(
            blocks=sum(len(blocks.indices) for blocks in chosen_blocks),
            committed=committed_count,
            nbytes=sum(blocks.unit.bytes_of(blocks.indices) for blocks in chosen_blocks),
            seed=seed,
            differing=first_differences,
            changed=tuple(
                sorted(str(plan.sources[n].path(f)) for n, f in touched_files(plan, ledger))
            ),
        )


def _planned(context: RunContext, ledger: Ledger) -> tuple[Plan, Estimate]:
    """Plan a run again from its pinned sources; stream sources that are not on this disk."""
    record = ledger.run()
    created_with = json.loads(record["options"])
    context.options = context.options.inherit(created_with, None)
    recipe = parse_recipe(record["config_text"], record["config_path"])
    output, pins = OutputPath(Path(record["output"])), pins_of(ledger, reopen_local=False)
    ranks = ranks_of(ledger, recipe)
    plan, estimate = pinned_plan(context, recipe, output, pins, created_with, ranks)
    if estimate.missing and not context.options.offline:
        context.options = replace(context.options, stream=True, evict=None)
        try:
            plan, estimate = pinned_plan(context, recipe, output, pins, created_with, ranks)
        except InputError as error:
            fix = "download the model into the cache first"
            raise InputError([replace(problem, fix=fix) for problem in error.problems]) from error
    check_same_plan(context, record, plan, ledger)
    return plan, estimate


def _committed(plan: Plan, ledger: Ledger) -> Iterator[_CommittedBlocks]:
    """Yield the committed blocks of each unit, in the plan's order."""
    for shard in plan.shards:
        for row in ledger.units.all(shard.number):
            if row["committed_blocks"]:
                indices = range(row["committed_blocks"])
                yield _CommittedBlocks(plan.units[row["number"]], indices, row["block_hashes"])


def _sample(committed: list[_CommittedBlocks], draw: random.Random) -> list[_CommittedBlocks]:
    """Draw `SAMPLED` units at random, weighted by size, and return a random block of each.

    The weighted drawing is algorithm A of Efraimidis and Spirakis, "Weighted random sampling with a
    reservoir", 2006.
    """
    by_drawn_weight = sorted(
        committed, key=lambda blocks: draw.random() ** (1 / max(1, blocks.unit.nbytes))
    )
    return [_single(blocks, draw.choice(blocks.indices)) for blocks in by_drawn_weight[-SAMPLED:]]


def _single(blocks: _CommittedBlocks, index: int) -> _CommittedBlocks:
    block_hash = blocks.hashes[index * HASH_BYTES : (index + 1) * HASH_BYTES]
    return _CommittedBlocks(blocks.unit, range(index, index + 1), block_hash)


def _compare(
    context: RunContext, evaluator: Evaluator, chosen: list[_CommittedBlocks], threads: int
) -> dict[str, int]:
    """Return the number of the first differing block of each differing unit, by unit name."""
    total_bytes = sum(blocks.unit.bytes_of(blocks.indices) for blocks in chosen)
    done, lock = 0, threading.Lock()

    def on_progress(nbytes: int) -> None:
        nonlocal done
        with lock:
            done += nbytes
            context.reporter.reading(done, total_bytes)
        context.stop.check()

    context.reporter.doing("computing again from the models")
    with ThreadPoolExecutor(threads, "block", evaluator.start_thread) as pool:
        try:
            differing_blocks = pool.map(
                lambda blocks: _first_difference(evaluator, blocks, on_progress), chosen
            )
            pairs = zip(chosen, differing_blocks)
            return {blocks.unit.name: index for blocks, index in pairs if index is not None}
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _first_difference(
    evaluator: Evaluator, blocks: _CommittedBlocks, on_progress: Callable[[int], None]
) -> int | None:
    """Compute blocks of a unit again; return the number of the first block that differs."""
    unit, first_index = blocks.unit, blocks.indices.start
    blocks_at_once, preparation = unit.blocks_at_once(BLOCK_RUN_BYTES), evaluator.prepare(unit)
    for run_start in range(first_index, blocks.indices.stop, blocks_at_once):
        indices = range(run_start, min(run_start + blocks_at_once, blocks.indices.stop))
        computed_bytes, _ = evaluator.compute(unit, indices, preparation)
        new_hashes = hash_blocks(computed_bytes, unit.bytes_of(range(run_start, run_start + 1)))
        expected_hashes = blocks.hashes[(run_start - first_index) * HASH_BYTES :][: len(new_hashes)]
        on_progress(unit.bytes_of(indices))
        if new_hashes != expected_hashes:
            offsets = range(0, len(new_hashes), HASH_BYTES)
            offset = next(
                n
                for n in offsets
                if new_hashes[n:][:HASH_BYTES] != expected_hashes[n:][:HASH_BYTES]
            )
            return run_start + offset // HASH_BYTES
    return None
