"""From a cell to the output tensor with the expression that computes it."""

from __future__ import annotations

from dataclasses import dataclass, field

from resumerge.errors import Problem
from resumerge.layout import is_computed, is_tied_copy
from resumerge.methods import METHODS, Method, TensorContext
from resumerge.planning.mismatch import Mismatches
from resumerge.planning.model_views import ModelViews
from resumerge.planning.parameters import Parameters
from resumerge.planning.plan import Expression, Operand, block_elements
from resumerge.planning.shards import Target
from resumerge.planning.slices import base_of
from resumerge.planning.tensor_specs import TensorSpec, guide_of
from resumerge.planning.tokenizers.alignment import Alignment
from resumerge.recipe import ModelRef, Recipe
from resumerge.sources.dtypes import BY_TORCH_NAME, FLOATS
from resumerge.sources.types import TensorInfo


@dataclass
class Expressions:
    """Looks up the operands of every cell; problems are collected, not raised."""

    recipe: Recipe
    method: Method
    models: ModelViews
    parameters: Parameters
    seed: int
    mismatches: Mismatches
    alignment: Alignment | None = None
    problems: list[Problem] = field(default_factory=list)

    def target(self, cell: TensorSpec) -> Target | None:
        """The output tensor; None where a problem was found, or where it may be left out."""
        inputs = cell.slice_.inputs
        found = [self.models.find(i.model, n) for i, n in zip(inputs, cell.names)]
        if None in found and self._head_is_optional(cell):
            return None
        reference = self.models.reference
        own = self.models.sources[reference].tensors[cell.like] if cell.like else None
        guide = guide_of(self.recipe, cell.slice_)
        of, like = guide.model, found[inputs.index(guide)]
        if like is None:
            assert own is not None
            of, like = reference, own
        if cell.module is None or like.dtype not in FLOATS:
            return self._kept(cell, of, like)
        if None in found and is_computed(like):
            return self._kept(cell, of, like)
        if own is not None and not is_computed(own):
            of, like = reference, own
        operands = []
        shape = self._shape(of, like)
        base = base_of(self.recipe, cell.slice_)
        for input_, name, tensor in zip(inputs, cell.names, found):
            if tensor is None:
                self.mismatches.missing(input_, name, of)
            elif self._shape(input_.model, tensor) != shape or tensor.dtype not in FLOATS:
                self.mismatches.unlike(input_, name, of, like, tensor)
            else:
                params = self.parameters.of_input(cell, input_, name, is_base=input_.model == base)
                operands.append(Operand(self.models.numbers[input_.model], tensor, params))
        if len(operands) < len(inputs):
            return None
        expression = Expression(
            self.method.name,
            tuple(operands),
            self.parameters.of_merge(cell),
            next((k for k, i in enumerate(inputs) if i.model == base), None),
            self.recipe.dtype,
        )
        return self._merged(cell, self.method, expression)

    def _merged(self, cell: TensorSpec, method: Method, expression: Expression) -> Target:
        shape = expression.operands[0].tensor.shape
        if self.alignment:
            expression, shape = self.alignment.aligned(expression)
        operands = expression.operands
        dtype = self._dtype(operands)
        context = expression.context(cell.name, shape, self.seed)
        if method is self.method and self.parameters.sound:
            self._check_together(context)
        own = operands[0].tensor.dtype
        unrounded = own == dtype and expression.cast in (None, FLOATS[own])
        if unrounded and operands[0].rows is None and method.is_copy(context):
            expression = Expression("copy", (Operand(operands[0].source, operands[0].tensor),))
        return Target(
            cell.name, dtype, shape, block_elements(method.row_elements(context)), expression
        )

    def _kept(self, cell: TensorSpec, ref: ModelRef, tensor: TensorInfo) -> Target:
        """The reference's own: whole numbers and other types that cannot be averaged, buffers
        that not every model holds, parts that the recipe does not name.
        """
        operand = Operand(self.models.numbers[ref], tensor)
        if tensor.dtype not in FLOATS:
            expression = Expression("copy", (operand,))
            return Target(cell.name, tensor.dtype, tensor.shape, block_elements(None), expression)
        method = METHODS["passthrough"]
        defaults = {p.name: p.default for p in method.parameters}
        operand = Operand(operand.source, tensor, dict(defaults))
        expression = Expression(method.name, (operand,), defaults, None, self.recipe.dtype)
        return self._merged(cell, method, expression)

    def _shape(self, ref: ModelRef, tensor: TensorInfo) -> tuple[int, ...]:
        """A tensor's shape once its rows are those of the output's vocabulary, if it has such."""
        if self.alignment and self.alignment.applies(ref, tensor):
            return self.alignment.shape(tensor)
        return tensor.shape

    def _check_together(self, context: TensorContext) -> None:
        """Collect what the method says against the parameters of one tensor; once, not for each."""
        kind = f"The parameters of {self.method.name} do not go together"
        expected = self.method.validate(context)
        if expected and not any(problem.what == kind for problem in self.problems):
            self.problems.append(
                self.recipe.problem(
                    kind,
                    "parameters",
                    expected=expected,
                    found=f"otherwise, for {context.name}",
                    fix="change them, or the filter or gradient that gives them at this tensor",
                )
            )

    def _dtype(self, operands: tuple[Operand, ...]) -> str:
        """What the recipe asks for, else the narrowest type that holds all operands' values."""
        asked = self.recipe.out_dtype or self.recipe.dtype
        if asked:
            return BY_TORCH_NAME[asked]
        own = {operand.tensor.dtype for operand in operands}
        if len(own) == 1:
            return own.pop()
        return "F64" if "F64" in own else "F32"

    def _head_is_optional(self, cell: TensorSpec) -> bool:
        sources = self.models.sources
        return is_tied_copy(sources[self.models.reference], cell.name) and not any(
            n in sources[i.model].tensors and not is_tied_copy(sources[i.model], n)
            for i, n in zip(cell.slice_.inputs, cell.names)
        )
