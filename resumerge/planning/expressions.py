"""Makes the expression that computes each output tensor."""

from __future__ import annotations

from dataclasses import dataclass, field

from resumerge.errors import Problem
from resumerge.layout import is_computed, is_tied_copy
from resumerge.methods import METHODS, MergeMethod, TensorContext
from resumerge.methods.contract import Answers, ask
from resumerge.planning.experts import unpacked
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
    """Looks up the operands of every tensor; collects problems instead of raising them."""

    recipe: Recipe
    method: MergeMethod
    models: ModelViews
    parameters: Parameters
    seed: int
    mismatches: Mismatches
    alignment: Alignment | None = None
    problems: list[Problem] = field(default_factory=list)

    def target(self, spec: TensorSpec) -> Target | None:
        """The output tensor; None if there is a problem, or if the output does not need it."""
        inputs = spec.slice_.inputs
        found = [self.models.find(i.model, name) for i, name in zip(inputs, spec.names)]
        if None in found and self._head_is_optional(spec):
            return None
        reference = self.models.reference
        own = self.models.sources[reference].tensors[spec.like] if spec.like else None
        guide = guide_of(self.recipe, spec.slice_)
        ref, template = guide.model, found[inputs.index(guide)]
        if template is None:
            assert own is not None
            ref, template = reference, own
        cannot_merge = template.dtype not in FLOATS or (None in found and is_computed(template))
        if spec.module is None or cannot_merge:
            return self._copied(spec, ref, template)
        if own is not None and not is_computed(own):
            ref, template = reference, own
        base = base_of(self.recipe, spec.slice_)
        operands = self._operands(spec, found, ref, template, base)
        if len(operands) < len(inputs):
            return None
        expression = Expression(
            self.method.name,
            tuple(operands),
            self.parameters.of_merge(spec, self._names(reference, spec.name)),
            next((k for k, i in enumerate(inputs) if i.model == base), None),
            self.recipe.dtype,
        )
        return self._merged(spec, self.method, expression, template)

    def _operands(
        self,
        spec: TensorSpec,
        found: list[TensorInfo | None],
        ref: ModelRef,
        template: TensorInfo,
        base: ModelRef | None,
    ) -> list[Operand]:
        """The tensors of all inputs that have the template's shape; the others are mismatches.

        Args:
            found: the tensor of each input, or None.
            ref: the model of the template.
        """
        operands = []
        shape = self._shape(ref, template)
        for input_, name, tensor in zip(spec.slice_.inputs, spec.names, found):
            if tensor is None:
                self.mismatches.missing(input_, name, ref)
            elif self._shape(input_.model, tensor) != shape or tensor.dtype not in FLOATS:
                self.mismatches.unlike(input_, name, ref, template, tensor)
            else:
                names = self._names(input_.model, name)
                is_base = input_.model == base
                params = self.parameters.of_input(spec, input_, names, is_base=is_base)
                operands.append(Operand(self.models.numbers[input_.model], tensor, params))
        return operands

    def _merged(
        self, spec: TensorSpec, method: MergeMethod, expression: Expression, template: TensorInfo
    ) -> Target:
        shape = expression.operands[0].tensor.shape
        if self.alignment:
            expression, shape = self.alignment.aligned(expression)
        operands = expression.operands
        dtype = self._dtype(operands)
        context = expression.context(spec.name, shape, self.seed)
        askable = method is not self.method or self.parameters.valid
        answers = ask(method, context) if askable else Answers()
        if answers.contradiction:
            self._contradiction(context, answers.contradiction)
        own = operands[0].tensor.dtype
        unrounded = own == dtype and expression.cast in (None, FLOATS[own])
        if unrounded and operands[0].rows is None and answers.is_copy:
            expression = Expression("copy", (Operand(operands[0].source, operands[0].tensor),))
        tensors = unpacked(spec.name, template) or {spec.name: shape}
        block = block_elements(answers.row_elements)
        return Target(spec.name, dtype, shape, block, expression, tensors)

    def _copied(self, spec: TensorSpec, ref: ModelRef, tensor: TensorInfo) -> Target:
        """A tensor of one model, not merged: of integers, a buffer that some models lack, or of a
        part that the recipe does not name.
        """
        operand = Operand(self.models.numbers[ref], tensor)
        if tensor.dtype not in FLOATS:
            expression = Expression("copy", (operand,))
            shape, tensors = tensor.shape, {spec.name: tensor.shape}
            return Target(spec.name, tensor.dtype, shape, block_elements(None), expression, tensors)
        method = METHODS["passthrough"]
        defaults = {p.name: p.default for p in method.parameters}
        operand = Operand(operand.source, tensor, dict(defaults))
        expression = Expression(method.name, (operand,), defaults, None, self.recipe.dtype)
        return self._merged(spec, method, expression, tensor)

    def _names(self, ref: ModelRef, name: str) -> tuple[str, ...]:
        """What filters are matched with."""
        return self.models.names_of(ref, name) if self.parameters.has_filters else (name,)

    def _shape(self, ref: ModelRef, tensor: TensorInfo) -> tuple[int, ...]:
        """The shape of a tensor, with the rows of the output's vocabulary if it has token rows."""
        if self.alignment and self.alignment.applies(ref, tensor):
            return self.alignment.shape(tensor)
        return tensor.shape

    def _contradiction(self, context: TensorContext, expected: str) -> None:
        """Collect, once, that the method rejects the parameters of a tensor."""
        kind = f"The parameters of {self.method.name} contradict each other"
        if not any(problem.what == kind for problem in self.problems):
            self.problems.append(
                self.recipe.problem(
                    kind,
                    "parameters",
                    expected=expected,
                    found=f"different values for tensor {context.name}",
                    fix="Change these values, or the filter or gradient that sets them for this "
                    "tensor",
                )
            )

    def _dtype(self, operands: tuple[Operand, ...]) -> str:
        """The recipe's dtype, or else the narrowest dtype that holds the values of all operands."""
        asked = self.recipe.out_dtype or self.recipe.dtype
        if asked:
            return BY_TORCH_NAME[asked]
        own = {operand.tensor.dtype for operand in operands}
        if len(own) == 1:
            return own.pop()
        return "F64" if "F64" in own else "F32"

    def _head_is_optional(self, spec: TensorSpec) -> bool:
        sources = self.models.sources
        return is_tied_copy(sources[self.models.reference], spec.name) and not any(
            n in sources[i.model].tensors and not is_tied_copy(sources[i.model], n)
            for i, n in zip(spec.slice_.inputs, spec.names)
        )
