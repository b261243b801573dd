"""Steps: inputs of units that cannot be computed range by range. They are computed first."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import xxhash

from resumerge.engine.context import RunContext
from resumerge.engine.evaluation.evaluator import Evaluator
from resumerge.engine.execute.work_queue import POLL_SECONDS
from resumerge.engine.resources.allocator import freed_memory_returned
from resumerge.event_kinds import EventKind
from resumerge.ledger import Ledger
from resumerge.planning.plan import Plan, SourceFileKey, Unit
from resumerge.sources.remote.prefetch import Prefetcher
from resumerge.storage import Storage
from resumerge.tensors import Step, steps_of, stored_in
from resumerge.tensors.computed import State

PREFIX, SUFFIX = "step-", ".safetensors"


@dataclass(frozen=True)
class StepRunner:
    """The computation of a plan's steps, in pieces; a kill costs at most one piece.

    The state after each piece is saved in a file in the run's folder. The ledger stores the file's
    checksum. If the file is damaged, its step starts over.
    """

    context: RunContext
    plan: Plan
    ledger: Ledger
    evaluator: Evaluator
    threads: int

    def run(self, pending: Iterable[Unit], prefetcher: Prefetcher) -> None:
        """Compute the steps that pending units need, and store the results in the evaluator.

        Args:
            pending: the units with uncommitted blocks.
            prefetcher: downloads the files that steps read.

        Raises:
            Interrupted: a signal arrived.
            Resumable: a file cannot be downloaded or read.
        """
        needed_steps = {step for unit in pending for step in steps_of(unit.expression)}
        for step in sorted(needed_steps, key=lambda step: step.key):
            files = self._files_of(step)
            self._wait_for(files, prefetcher)
            with freed_memory_returned():
                self._compute(step, self._key(step, files))

    def _compute(self, step: Step, key: str) -> None:
        evaluation = self.evaluator.evaluation_of_steps()
        with self.context.stop.between_imports():
            self.evaluator.start_thread()
            compute_piece = step.prepare(evaluation, self.threads)
        saved_pieces, state = self._saved_state(key, step)
        if state is None:
            state = step.begin(evaluation)
        for piece in range(saved_pieces, step.pieces):
            self.context.reporter.doing(f"computing {step.title} {piece + 1} of {step.pieces}")
            state = compute_piece(state, piece)
            with self.context.stop.deferred():
                self._save(key, piece + 1, state)
            self.context.stop.check()
        result = step.result(state)
        for note in step.notes(result):
            self.context.reporter.note(note)
        self.evaluator.hold(step, result)

    def _wait_for(self, files: frozenset[SourceFileKey], prefetcher: Prefetcher) -> None:
        sources = self.plan.sources
        while not all(prefetcher.is_ready(sources[number], name) for number, name in files):
            prefetcher.wait(POLL_SECONDS)
            self.context.reporter.heartbeat()
            self.context.stop.check()

    def _files_of(self, step: Step) -> frozenset[SourceFileKey]:
        tensors = step.tensors(step.pieces)
        return frozenset((s.source, s.file) for tensor in tensors for s in stored_in(tensor))

    def _key(self, step: Step, files: frozenset[SourceFileKey]) -> str:
        """Return a key that changes if the step, the stamps of its files, or the device changes."""
        device, file_stamps = self.evaluator.device, []
        for source_number, file_name in sorted(files):
            stamp = self.plan.sources[source_number].files[file_name].stamp
            file_stamps.append([source_number, file_name, stamp and stamp.as_json()])
        return xxhash.xxh3_128_hexdigest(json.dumps([step.key, file_stamps, device]).encode())

    def _saved_state(self, key: str, step: Step) -> tuple[int, State | None]:
        """Return the number of saved pieces and the state after them; 0 and None if none are."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        pieces_done, checksum = self.ledger.steps.done().get(key, (0, ""))
        if not 0 < pieces_done <= step.pieces:
            return 0, None
        try:
            state_bytes = self._path(key, pieces_done).read_bytes()
            if xxhash.xxh3_128_hexdigest(state_bytes) == checksum:
                return pieces_done, {
                    name: array.copy() for name, array in load(state_bytes).items()
                }
        except (OSError, SafetensorError):
            pass
        self.ledger.events.add(EventKind.STEP_LOST, pieces=pieces_done)
        return 0, None

    def _save(self, key: str, done: int, state: State) -> None:
        from safetensors.numpy import save

        state_bytes = save(dict(state))
        self.context.storage.write_file(self._path(key, done), state_bytes)
        self.ledger.steps.record(key, done, xxhash.xxh3_128_hexdigest(state_bytes))
        self.context.storage.remove(self._path(key, done - 1))

    def _path(self, key: str, done: int) -> Path:
        return self.ledger.path.with_name(f"{PREFIX}{key}-{done}{SUFFIX}")


def remove_steps(ledger: Ledger, storage: Storage) -> None:
    """Remove the files of steps, whose results are in the output by now."""
    for path in ledger.path.parent.glob(f"{PREFIX}*{SUFFIX}*"):
        storage.remove(path)
