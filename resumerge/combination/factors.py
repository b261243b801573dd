"""The matrices of a combined adapter, which a merge method makes from several adapters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from resumerge.combination.modules import ChangedModule
from resumerge.kernels import BlockRun
from resumerge.kernels.linalg.core_space import core_shape
from resumerge.methods import KernelMethod, MergeMethod, TensorContext, Value
from resumerge.methods.checked_answers import ask
from resumerge.native import Vector
from resumerge.tensors import AdapterPair, Combined, Merged
from resumerge.tensors.generated.filled import Filled
from resumerge.tensors.target import block_elements

ValuesOf = Callable[[str, float], "Values"]
"""A function that returns the parameters of a tensor, by its name and its position for gradients.
"""


@dataclass(frozen=True)
class Values:
    """The parameters of a merge for one tensor.

    Args:
        params: the parameters of the whole merge.
        per_model: the parameters of each adapter, in the order of the recipe.
    """

    params: Mapping[str, Value]
    per_model: tuple[Mapping[str, Value], ...]


@dataclass(frozen=True)
class Combining:
    """The method and the settings by which a recipe combines adapters.

    Args:
        method: the merge method, which `combines_changes`.
        models: the adapters as the recipe names them.
        rank: the highest rank of a module; None for the rank that loses nothing.
        seed: the seed of random masks.
    """

    method: MergeMethod
    models: tuple[str, ...]
    rank: int | None
    seed: int

    def rank_of(self, module: ChangedModule) -> int:
        """Return the rank of a module in the result."""
        if self._is_stacked:
            return module.ranks
        highest_rank = min(core_shape(module.first.matrix, module.ranks))
        return highest_rank if self.rank is None else min(highest_rank, self.rank)

    def combined(
        self, module: ChangedModule, values: Values, dtype: str, rank: int
    ) -> tuple[Combined, str | None]:
        """Return the combined matrices of a module, flat, and the parameters' contradiction.

        Args:
            module: the module, with the matrices of every adapter that changes it.
            values: the merge's parameters for this module.
            dtype: the dtype in which A and B are written, as safetensors names it.
            rank: the rank of the result, as `rank_of` returns it, or a higher one for parameters.
        """
        first_matrices = module.first
        adapter_pairs = tuple(
            AdapterPair(place, matrices.a, matrices.b, matrices.scale, matrices.rank)
            for place, matrices in module.matrices.items()
        )
        core, contradiction = self._core(module, values)
        combined_matrices = Combined(
            name=module.name,
            dtype=dtype,
            shape=(first_matrices.experts * rank * sum(first_matrices.matrix),),
            pairs=adapter_pairs,
            core=core,
            factors=tuple(self.factors(values)) if self._is_stacked and not contradiction else (),
            experts=first_matrices.experts,
            matrix=first_matrices.matrix,
            rank=rank,
        )
        return combined_matrices, contradiction

    def factors(self, values: Values) -> list[float]:
        """Return the factor of each adapter's change in a weighted sum.

        The method computes the factors, with the rows of the identity matrix as changes.
        """
        assert self.method.is_weighted_sum and isinstance(self.method, KernelMethod)
        count = len(self.models)
        rows = [Vector(row) for row in np.eye(count, dtype=np.float32)]
        base = [] if self._base is None else [Vector(np.zeros(count, np.float32))]
        result = np.empty(count, np.float32)
        run = BlockRun.of(count, count, range(1))
        context = self._context(values, (count,), "factors")
        self.method.compute(context, [*rows, *base], run, None, Vector(result))
        return [float(factor) for factor in result]

    @property
    def _is_stacked(self) -> bool:
        return self.method.is_weighted_sum and self.rank is None

    @property
    def _base(self) -> int | None:
        """The operand that is the base, a change of zero: the last. None without a base."""
        return None if self.method.base == "none" else len(self.models)

    def _operands(self, values: Values) -> tuple[Mapping[str, Value], ...]:
        return values.per_model if self._base is None else (*values.per_model, {})

    def _context(self, values: Values, shape: tuple[int, ...], name: str) -> TensorContext:
        operands = self._operands(values)
        return TensorContext(
            shape=shape,
            params=values.params,
            per_model=operands,
            base=self._base,
            name=name,
            seed=self.seed,
            bits=32,
        )

    def _core(self, module: ChangedModule, values: Values) -> tuple[Merged, str | None]:
        shape = core_shape(module.first.matrix, module.ranks)
        operands = self._operands(values)
        names = self.models if self._base is None else (*self.models, "no change")
        core = Merged(
            name=f"{module.name}.weight",
            dtype="F32",
            shape=shape,
            method=self.method.name,
            operands=tuple(Filled(name, "F32", shape, 0.0) for name in names),
            params=values.params,
            per_operand=operands,
            base=self._base,
            seed=self.seed,
            block_elements=block_elements(None),
            models=names,
        )
        answers = ask(self.method, core.context)
        elements_per_block = block_elements(answers.row_elements)
        return replace(core, block_elements=elements_per_block), answers.contradiction


def dtype_of(dtypes: Sequence[str]) -> str:
    """Return the dtype that holds the numbers of all these dtypes."""
    return dtypes[0] if len(set(dtypes)) == 1 else "F64" if "F64" in dtypes else "F32"
