"""Makes the expression of each output tensor: the tree of tensors that computes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from resumerge.errors import Problem
from resumerge.layout import is_computed, is_tied_copy
from resumerge.layout.model_views import ModelViews
from resumerge.methods import METHODS, MergeMethod, Value
from resumerge.methods.checked_answers import Answers, ask
from resumerge.planning.mismatch import Mismatches
from resumerge.planning.parameters import Parameters
from resumerge.planning.slices import base_of
from resumerge.planning.tensor_specs import TensorSpec, guide_of
from resumerge.planning.whole_numbers import chosen_input, is_position
from resumerge.recipe import ModelRef, Recipe
from resumerge.sources.left_out import LeftOut
from resumerge.tensor_uses import UnusedReason
from resumerge.tensors import Adapted, Merged, Tensor, rounded_input
from resumerge.tensors.dtypes import BY_TORCH_NAME, FLOATS
from resumerge.tensors.target import Target, block_elements
from resumerge.tokenizers.row_alignment import RowAlignment


class OutputTargets(NamedTuple):
    """The tensors of the output, each with the expression that computes it.

    Args:
        as_named: the tensors, each expert by its own name, in the order of the files.
        as_stored: the same tensors, with experts packed or split as in the reference's files.
    """

    as_named: list[Target]
    as_stored: list[Target]


@dataclass(frozen=True)
class Operand:
    """An input of an output tensor: a model's tensor, and the model's parameters for it."""

    model: ModelRef
    tensor: Tensor
    params: Mapping[str, Value]


class TensorOrigin(NamedTuple):
    """A model, and the one of its tensors that an output tensor is taken from."""

    model: ModelRef
    tensor: Tensor


@dataclass
class Expressions:
    """A maker of the output tensors' expressions. It collects problems instead of raising them.

    Attributes:
        left_out: tensors of inputs that are matched with an output tensor but not used for it.
    """

    recipe: Recipe
    method: MergeMethod
    models: ModelViews
    parameters: Parameters
    seed: int
    mismatches: Mismatches
    alignment: RowAlignment | None = None
    problems: list[Problem] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    def target(self, spec: TensorSpec) -> Target | None:
        """Return the output tensor; None if there is a problem, or the tensor may be left out."""
        inputs = spec.slice_.inputs
        of_inputs = [self.models.find(i.model, name) for i, name in zip(inputs, spec.names)]
        if None in of_inputs and self._head_is_optional(spec):
            self._leave_out(of_inputs, UnusedReason.TIED)
            return None
        sole_origin = self._alone(spec, of_inputs)
        if sole_origin is not None:
            self._leave_out(of_inputs, _reason_unused(sole_origin.tensor))
            return self._of_one_model(spec, *sole_origin)
        reference_origin = self._of_reference(spec)
        template = (
            self._first(spec, of_inputs)
            if reference_origin is None or is_computed(reference_origin.tensor)
            else reference_origin
        )
        base = base_of(self.recipe, spec.slice_)
        operands = self._operands(spec, of_inputs, template, base)
        if len(operands) < len(inputs):
            return None
        names = self._names(self.models.reference, spec.name)
        params = self.parameters.of_merge(spec, names)
        return self._result(spec, self.method, operands, params, base)

    def _alone(self, spec: TensorSpec, of_inputs: list[Tensor | None]) -> TensorOrigin | None:
        """Return the single tensor that the output is taken from; None if several are merged.

        Args:
            spec: the output tensor, whose slice has the guide among its inputs.
            of_inputs: the tensor of each input; None where the input lacks it.
        """
        guide_origin = self._first(spec, of_inputs)
        if spec.module is None or (None in of_inputs and is_computed(guide_origin.tensor)):
            return guide_origin
        inputs = spec.slice_.inputs
        input_number = chosen_input(of_inputs, inputs.index(guide_of(self.recipe, spec.slice_)))
        tensor = None if input_number is None else of_inputs[input_number]
        return (
            None
            if input_number is None or tensor is None
            else TensorOrigin(inputs[input_number].model, tensor)
        )

    def _first(self, spec: TensorSpec, of_inputs: list[Tensor | None]) -> TensorOrigin:
        """Return the tensor of the slice's guide, or, if the guide lacks it, the reference's."""
        guide = guide_of(self.recipe, spec.slice_)
        tensor = of_inputs[spec.slice_.inputs.index(guide)]
        if tensor is not None:
            return TensorOrigin(guide.model, tensor)
        reference_origin = self._of_reference(spec)
        assert reference_origin is not None
        return reference_origin

    def _of_reference(self, spec: TensorSpec) -> TensorOrigin | None:
        """Return the reference's tensor with the shape of the output; None in a stacked layer."""
        reference = self.models.reference
        tensors = self.models.sources[reference].tensors
        return TensorOrigin(reference, tensors[spec.like]) if spec.like else None

    def _leave_out(self, of_inputs: list[Tensor | None], reason: UnusedReason) -> None:
        """Record the reason why at most one of these tensors is used."""
        if len(of_inputs) > 1:
            self.left_out += (LeftOut(tensor, reason) for tensor in of_inputs if tensor is not None)

    def _operands(
        self,
        spec: TensorSpec,
        of_inputs: list[Tensor | None],
        template: TensorOrigin,
        base: ModelRef | None,
    ) -> list[Operand]:
        """Return the inputs' tensors that have the template's shape; record others as mismatches.

        Args:
            spec: the output tensor, with its name in each input.
            of_inputs: the tensor of each input; None where the input lacks it.
            template: the tensor whose shape all inputs must have.
            base: the base model; None if there is none.
        """
        operands = []
        template_shape = self._shape(*template)
        for input_, name, tensor in zip(spec.slice_.inputs, spec.names, of_inputs):
            if tensor is None:
                self.mismatches.missing(input_, name, template.model)
            elif self._shape(input_.model, tensor) != template_shape or not _same_number_kind(
                tensor, template.tensor
            ):
                self.mismatches.unlike(input_, name, *template, tensor)
            else:
                filter_names = self._names(input_.model, name)
                is_base = input_.model == base
                params = self.parameters.of_input(spec, input_, filter_names, is_base=is_base)
                operands.append(Operand(input_.model, tensor, params))
        return operands

    def _result(
        self,
        spec: TensorSpec,
        method: MergeMethod,
        operands: list[Operand],
        params: Mapping[str, Value],
        base: ModelRef | None,
    ) -> Target:
        """Return the output tensor of a method: a `Merged`, or the operand that it copies."""
        rounded_tensors = tuple(rounded_input(o.tensor, self.recipe.dtype) for o in operands)
        inputs, shape = rounded_tensors, operands[0].tensor.shape
        refs = tuple(operand.model for operand in operands)
        if self.alignment:
            inputs, shape = self.alignment.aligned(refs, inputs, base if base in refs else None)
        dtype = self._dtype({operand.tensor.dtype for operand in operands})
        merged = Merged(
            name=self.models.mask_name(spec.name),
            dtype=dtype,
            shape=shape,
            method=method.name,
            operands=inputs,
            params=params,
            per_operand=tuple(operand.params for operand in operands),
            base=refs.index(base) if base in refs else None,
            seed=self.seed,
            block_elements=block_elements(None),
            models=tuple(ref.text for ref in refs),
        )
        can_ask = method is not self.method or self.parameters.valid
        answers = ask(method, merged.context) if can_ask else Answers()
        if answers.contradiction:
            self._contradiction(spec.name, answers.contradiction, operands)
        block_size = block_elements(answers.row_elements)
        expression: Tensor | None = None
        if answers.is_copy and len(operands) == 1 and inputs == rounded_tensors:
            expression = self._copied(operands[0].tensor, inputs[0], dtype)
        if expression is None:
            # `replace` for every tensor would take a tenth of the time of planning.
            is_same_size = block_size == merged.block_elements
            expression = merged if is_same_size else replace(merged, block_elements=block_size)
        return Target(spec.name, dtype, shape, block_size, expression, {spec.name: shape})

    def _copied(self, own: Tensor, rounded: Tensor, dtype: str) -> Tensor | None:
        """Return the tensor that is copied for a single operand; None if its numbers are rounded.

        Args:
            own: the operand, whose rows are the output's.
            rounded: the operand, rounded to the dtype of the recipe.
            dtype: the output's dtype, by safetensors' name.
        """
        if own.dtype == dtype and self.recipe.dtype in (None, FLOATS[own.dtype]):
            return own
        return rounded if isinstance(rounded, Adapted) and rounded.dtype == dtype else None

    def _of_one_model(self, spec: TensorSpec, ref: ModelRef, tensor: Tensor) -> Target:
        """Return an output tensor that is taken from one model, in the output's dtype and rows.

        The tensor has whole numbers, is a buffer that some models lack, or belongs to a part that
        the recipe does not name. Whole numbers and positions are copied unchanged.
        """
        if tensor.dtype not in FLOATS or is_position(tensor):
            block_size, shapes = block_elements(None), {spec.name: tensor.shape}
            return Target(spec.name, tensor.dtype, tensor.shape, block_size, tensor, shapes)
        method = METHODS["passthrough"]
        defaults = {p.name: p.default for p in method.parameters}
        operands = [Operand(ref, tensor, defaults)]
        return self._result(spec, method, operands, defaults, None)

    def _names(self, ref: ModelRef, name: str) -> tuple[str, ...]:
        """Return the names of a tensor that the recipe's filters are compared with."""
        return self.models.names_of(ref, name) if self.parameters.has_filters else (name,)

    def _shape(self, ref: ModelRef, tensor: Tensor) -> tuple[int, ...]:
        """Return the shape of a tensor. A tensor of tokens gets the output vocabulary's rows."""
        if self.alignment and self.alignment.applies(ref, tensor):
            return self.alignment.shape(tensor)
        return tensor.shape

    def _contradiction(self, name: str, expected: str, operands: list[Operand]) -> None:
        """Collect a problem about contradicting parameters, only for the first tensor."""
        names_per_model = [p.name for p in self.method.parameters if p.per_model]
        value_texts = [
            f"{parameter} {' and '.join(f'{o.params[parameter]:g}' for o in inputs_with_it)}"
            for parameter in [n for n in names_per_model if n in expected] or names_per_model
            if (inputs_with_it := [o for o in operands if parameter in o.params])
        ]
        summary = f"The parameters of {self.method.name} contradict each other"
        if not any(problem.what == summary for problem in self.problems):
            self.problems.append(
                self.recipe.problem(
                    summary,
                    "parameters",
                    expected=expected,
                    found=f"{', '.join(value_texts)}, for tensor {name}",
                    fix="Change these values, or the filter or gradient that sets them for this "
                    "tensor",
                )
            )

    def _dtype(self, own: set[str]) -> str:
        """Return the recipe's dtype, or the narrowest that holds all values of these dtypes."""
        recipe_dtype = self.recipe.plain_dtype
        if recipe_dtype:
            return BY_TORCH_NAME[recipe_dtype]
        if len(own) == 1:
            return next(iter(own))
        return "F64" if "F64" in own else "F32"

    def _head_is_optional(self, spec: TensorSpec) -> bool:
        sources = self.models.sources
        return is_tied_copy(sources[self.models.reference], spec.name) and not any(
            name in sources[input_.model].tensors and not is_tied_copy(sources[input_.model], name)
            for input_, name in zip(spec.slice_.inputs, spec.names)
        )


def _reason_unused(tensor: Tensor) -> UnusedReason:
    """Return the reason why other models' tensors are not used, from the tensor that is used."""
    return UnusedReason.COMPUTED if is_computed(tensor) else UnusedReason.FROM_ANOTHER


def _same_number_kind(first: Tensor, second: Tensor) -> bool:
    """Return whether two tensors are both of floats, or both of whole numbers."""
    return (first.dtype in FLOATS) == (second.dtype in FLOATS)
