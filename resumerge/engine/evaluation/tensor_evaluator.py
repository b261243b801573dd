"""The computation of ranges of tensors, of every kind in `tensors/`.

An evaluator reads the sources, and changes neither ledger nor output. Every process, on every
machine, computes the same bits of a range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from resumerge.engine.evaluation.kernel_backend import KernelBackend
from resumerge.engine.evaluation.method_failures import (
    failures_named,
    kept_inputs_error,
    refers_to_inputs,
)
from resumerge.engine.evaluation.scratch import Scratch
from resumerge.engine.evaluation.shared_statistics import SharedStatistics
from resumerge.kernels.blocks import MapFunction, Scan
from resumerge.sources.reader import SourceReader
from resumerge.tensors import Merged, ScratchFile, Spilled, Tensor
from resumerge.tensors.buffers import Buffers
from resumerge.tensors.dtypes import nbytes
from resumerge.tensors.evaluation import NO_HASHES, Evaluation, HeldValues, InputHashes

if TYPE_CHECKING:
    from resumerge.engine.evaluation.torch_backend import TorchBackend

Preparation = Mapping[Tensor, Any]
"""The results about whole tensors that a unit's blocks need, computed before the blocks.

For a `Merged`, the value is its statistics: the results of the reductions over its operands. For a
`Spilled`, the value is the scratch file with its elements.
"""

Pass = Callable[[Merged | Spilled, Callable[[range], Any], bool], Iterator[Any]]
"""A pass over a tensor: a function that maps another function over all blocks of the tensor.

Its arguments are the tensor, the function to map, and whether that function reads only samples of
the blocks. The mapped function is called with the numbers of several blocks at once, and with more
blocks if it reads samples. Its results are yielded in order.
"""


def serial_pass(
    tensor: Merged | Spilled, function: Callable[[range], Any], sample: bool
) -> Iterator[Any]:
    """Run a pass in the calling thread, block by block, and yield its results."""
    for index in range(tensor.blocks):
        yield function(range(index, index + 1))


class TensorEvaluator:
    """An evaluator of tensors. Several threads may use it at once.

    Every thread reads and computes in its own buffers, which it reuses for the next blocks. So the
    memory depends on the depth of the expressions and on the numbers of operands and threads, not
    on the size of a tensor. torch is imported only if a tensor is computed with torch.

    Args:
        reader: the reader of the sources' files, which the caller closes.
        held_bytes: the most bytes of values that are held from block to block.
        needs_torch: whether tensors are computed with torch, which the constructor then imports.
        device: the device on which torch computes.
        shared: a cache of statistics that tensors of several outputs share; None to compute the
            statistics for each output.
    """

    def __init__(
        self,
        reader: SourceReader,
        *,
        held_bytes: int,
        needs_torch: bool,
        device: str = "cpu",
        shared: SharedStatistics | None = None,
    ) -> None:
        self._reader = reader
        self.device = device
        self._buffers = Buffers()
        self._held = HeldValues(held_bytes)
        self._shared = shared
        self._prepare_thread = _prepared(needs_torch)
        self._backend = lru_cache(16)(self._choose_backend)

    def start_thread(self) -> None:
        """Prepare the calling thread. Every thread has to call this before it evaluates."""
        self._prepare_thread()

    def evaluation_of(self, tensors: Iterable[Tensor], run_pass: Pass = serial_pass) -> Evaluation:
        """Prepare these tensors, and return the evaluation to read them with.

        Args:
            tensors: the tensors that will be read; those that they are computed from are prepared,
                too.
            run_pass: runs the passes that compute statistics.
        """
        return self._evaluation(self._prepare(tensors, run_pass))

    def _evaluation(
        self,
        preparation: Preparation,
        hashes: InputHashes = NO_HASHES,
        measurements: list[np.ndarray] | None = None,
        block_elements: int = 0,
    ) -> Evaluation:
        return Evaluation(
            self._reader,
            self._buffers,
            self._held,
            self._backend,
            preparation,
            hashes=hashes,
            measurements=measurements,
            block_elements=block_elements,
            device=self.device,
        )

    def _prepare(
        self,
        tensors: Iterable[Tensor],
        run_pass: Pass = serial_pass,
        scratch: Scratch | None = None,
    ) -> Preparation:
        """Prepare these tensors, and before them the tensors that they are computed from."""
        preparation: dict[Tensor, Any] = {}
        for node in dict.fromkeys(chain.from_iterable(tensor.nodes() for tensor in tensors)):
            if isinstance(node, Merged) and node.needs_statistics:
                compute_statistics = partial(self._statistics_of, node, dict(preparation), run_pass)
                # A unit of one block, or one that is computed again, shares with no variant.
                if self._shared is None or run_pass is serial_pass:
                    preparation[node] = compute_statistics()
                else:
                    preparation[node] = self._shared.get(node.statistics_key, compute_statistics)
            elif isinstance(node, Spilled) and scratch is not None:
                scratch_file = self._spill(node, preparation, run_pass, scratch)
                preparation |= {node: scratch_file} if scratch_file else {}
        return preparation

    def _statistics_of(self, merged: Merged, preparation: Preparation, run_pass: Pass) -> Any:
        """Compute the statistics of a tensor whose inner tensors are prepared."""
        with failures_named(merged):
            scan = self._scan(merged, preparation, run_pass)
            return merged.merge_method.statistics(merged.context, scan)

    def _scan(self, merged: Merged, preparation: Preparation, run_pass: Pass) -> Scan[Any]:
        def scan(function: MapFunction[Any], sample: bool = False) -> Iterator[Any]:
            def evaluate(indices: range) -> list[Any]:
                return self._map_blocks(merged, preparation, indices, function, sample)

            for partials in run_pass(merged, evaluate, sample):
                yield from partials

        return scan

    def _map_blocks(
        self,
        merged: Merged,
        preparation: Preparation,
        indices: range,
        function: MapFunction[Any],
        sample: bool = False,
    ) -> list[Any]:
        """Return the partial results of `function` for consecutive blocks, or for their samples.

        Args:
            merged: the tensor whose inputs are read.
            preparation: the preparation of the tensors that `merged` is computed from.
            indices: the numbers of the blocks.
            function: a map function of the merge method.
            sample: whether to read only samples of the blocks.

        Raises:
            Resumable: a user's method fails, or keeps a reference to its inputs.
        """
        run, backend = merged.block_run(indices, sample=sample), self._backend(merged)
        inputs = merged.inputs(self._evaluation(preparation), run)
        with failures_named(merged):
            partials = backend.map(function, inputs, run)
        if backend.is_users and refers_to_inputs(partials, backend.given(inputs, run)):
            raise kept_inputs_error(merged)
        return partials

    def _spill(
        self, spilled: Spilled, preparation: Preparation, run_pass: Pass, scratch: Scratch
    ) -> ScratchFile | None:
        """Write a tensor's elements to a scratch file; return None if the disk refuses the file."""
        file = scratch.begin()
        if file is None:
            return None
        evaluation, size = self._evaluation(preparation), spilled.block_elements

        def write(indices: range) -> bool:
            start, stop = indices.start * size, min(indices.stop * size, spilled.numel)
            element_bytes = elements_of(spilled.tensor, start, stop, evaluation)
            return scratch.write(file, element_bytes, nbytes(spilled.dtype, start))

        return file if all(run_pass(spilled, write, False)) else None

    def _choose_backend(self, merged: Merged) -> KernelBackend | TorchBackend:
        if not merged.uses_torch:
            return KernelBackend(merged)
        from resumerge.engine.evaluation.torch_backend import TorchBackend

        return TorchBackend(merged, self._buffers, self.device)


def _prepared(needs_torch: bool) -> Callable[[], None]:
    """Return a function that prepares a thread for evaluating.

    If torch is needed, this call imports it, because in the main thread a signal can stop the
    import.
    """
    if not needs_torch:
        return lambda: None
    from resumerge.engine.evaluation.torch_backend import use_one_thread

    return use_one_thread


def elements_of(tensor: Tensor, start: int, stop: int, evaluation: Evaluation) -> memoryview:
    """Return the bytes of elements ``start:stop``, in a buffer that the next call overwrites."""
    out = evaluation.take("out", nbytes(tensor.dtype, stop - start))
    tensor.read(evaluation, start, stop, out)
    return out.data
