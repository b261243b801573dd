"""Counts the bytes that a merge reads from each weight file, and fetches from streamed files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from resumerge.planning.plan import SourceFileKey, Unit
from resumerge.planning.reads import Read, is_kept, passes_of_unit, reads_once
from resumerge.remote.forecast import Forecast, Range
from resumerge.sources.types import Source
from resumerge.tensors import Merged, Step, Stored, Tensor
from resumerge.tensors.dtypes import nbytes


class FileReads:
    """A counter of the bytes that the units of a plan read from files.

    Attributes:
        read: bytes that are read from each file, counting each tensor once.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self.read: dict[SourceFileKey, int] = {}
        self._names: dict[SourceFileKey, set[str]] = {}
        """The names of the tensors that `read` counts, by file."""
        streamed_keys = [
            (number, name)
            for number, source in enumerate(sources)
            for name in source.files
            if source.is_streamed(name)
        ]
        self._streamed: Counter[SourceFileKey] = Counter(dict.fromkeys(streamed_keys, 0))
        self._once: set[Tensor] = set()
        """The nodes of all units, if files are streamed. Some of them read values that are held for
        many blocks; these reads count once."""

    def add(self, unit: Unit, nodes: Sequence[Tensor]) -> None:
        """Add the next unit, with the nodes of its expression."""
        for node in nodes:
            if isinstance(node, Stored):
                file_key = (node.source, node.file)
                counted_names = self._names.setdefault(file_key, set())
                if node.name not in counted_names:
                    counted_names.add(node.name)
                    self.read[file_key] = self.read.get(file_key, 0) + node.nbytes
        if not self._streamed:
            return
        if _is_plain(unit):
            for stored, fetched_bytes in _fetched_of_plain(unit):
                self._fetch((stored.source, stored.file), fetched_bytes)
        else:
            for pass_reads in passes_of_unit(unit):
                self._expect(pass_reads)
        self._once.update(nodes)

    def streamed(self, steps: Iterable[Step]) -> dict[SourceFileKey, int]:
        """Return the bytes that are fetched from each streamed file. Repeated reads are counted.

        A selection by magnitude reads its operands once or twice more if its guess is wrong. This
        is rare, cannot be predicted, and is not counted.

        Args:
            steps: the steps of the plan, after all its units were added.
        """
        if self._streamed:
            for read in reads_once(self._once, steps):
                self._expect([[read]])
        return {key: fetched for key, fetched in self._streamed.items() if key in self.read}

    def _expect(self, steps: Iterable[Iterable[Read]]) -> None:
        for piece in Forecast(map(_ranges, steps)):
            self._fetch(piece.file, piece.nbytes)

    def _fetch(self, file: SourceFileKey, fetched: int) -> None:
        if file in self._streamed:
            self._streamed[file] += fetched


def _is_plain(unit: Unit) -> bool:
    """Return whether all operands of a unit are different stored tensors.

    Most units of a large model are plain. Their bytes are counted without visiting each block.
    """
    leaves = _leaves(unit)
    return all(isinstance(leaf, Stored) for leaf in leaves) and len(set(leaves)) == len(leaves)


def _fetched_of_plain(unit: Unit) -> Iterator[tuple[Stored, int]]:
    """Yield (operand, bytes that are fetched for it) of a plain unit."""
    tensor, full_passes, sampled_elements = unit.expression, 1, 0
    if isinstance(tensor, Merged) and tensor.needs_statistics and not is_kept(unit):
        sample_passes = tensor.merge_method.samples(tensor.context)
        full_passes = tensor.merge_method.passes(tensor.context) - sample_passes
        sampled_elements = (
            sample_passes * tensor.block_run(range(tensor.blocks), sample=True).length
        )
    for leaf in _leaves(unit):
        if isinstance(leaf, Stored):
            yield leaf, full_passes * leaf.nbytes + nbytes(leaf.dtype, sampled_elements)


def _leaves(unit: Unit) -> list[Tensor]:
    tensor = unit.expression
    return [o.unrounded for o in tensor.operands] if isinstance(tensor, Merged) else [tensor]


def _ranges(reads: Iterable[Read]) -> Iterator[Range[SourceFileKey]]:
    for stored, first, last in reads:
        start, length = stored.byte_range(first, last)
        yield (stored.source, stored.file), start, start + length
