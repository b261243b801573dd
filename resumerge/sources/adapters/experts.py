"""Adapters of experts. Both model and adapter may have experts as packed or as single matrices.

peft adapts a packed tensor (``target_parameters``) with one pair of matrices for all experts:
``A`` of shape (rank * experts, in), in which the rows of an expert are consecutive, and ``B`` of
shape (out, rank * experts), in which an expert has every `experts`-th column.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from resumerge.sources.adapters.model_names import ModelNames, spelled
from resumerge.tensors import Adapted, Stacked, Stored, Tensor
from resumerge.tensors.dtypes import nbytes
from resumerge.tensors.parts import part_of

_MATRICES: dict[str, tuple[str, ...]] = {
    "gate_up_proj": ("gate_proj", "up_proj"),
    "up_proj": ("up_proj",),
    "down_proj": ("down_proj",),
}
"""The matrices of an expert in each packed tensor, in the order of the classes' declarations."""

_FUSED = {"weights_in": ("gate_proj", "up_proj")}
"""The matrices in each fused tensor that transformers divides by rows: DINOv2's SwiGLU."""

_OF_EXPERT = re.compile(r"(?P<container>.+\.experts)\.(?P<number>\d+)\.\w+")


@dataclass(frozen=True)
class ExpertParameter:
    """A parameter of transformers that holds matrices of all experts of a layer.

    Args:
        name: the parameter's name in the loaded model.
        packed: the name of the tensor with all matrices; None if each matrix has its own tensor.
        experts: the matrices of each expert, in their order along the rows.
    """

    name: str
    packed: str | None
    experts: tuple[tuple[Tensor, ...], ...]

    @property
    def shape(self) -> tuple[int, int]:
        """The (rows, columns) of one expert."""
        return sum(matrix.shape[0] for matrix in self.experts[0]), self.experts[0][0].shape[1]

    def fitting_orientations(self, a: Tensor, b: Tensor) -> list[bool]:
        """Return the orientations of the experts in which matrices fit: True is transposed.

        The list has both orientations if each expert is square, and is empty if nothing fits.

        Args:
            a: shape (rank * experts, in).
            b: shape (out, rank * experts).
        """
        if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[0] != b.shape[1] or not a.shape[0]:
            return []
        if a.shape[0] % len(self.experts):
            return []
        shapes = a.shape, b.shape
        return [
            is_transposed
            for is_transposed in (False, True)
            if shapes == self._fitting_shapes(a, transposed=is_transposed)
        ]

    def _fitting_shapes(
        self, a: Tensor, transposed: bool
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        rows, columns = reversed(self.shape) if transposed else self.shape
        return (a.shape[0], columns), (rows, a.shape[0])

    def changed(
        self, a: Tensor, b: Tensor, scale: float, transposed: bool, models: tuple[str, str]
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield the changed tensors of the model, by name.

        Args:
            a: shape (rank * experts, in).
            b: shape (out, rank * experts).
            scale: the factor on ``B @ A``.
            transposed: whether the experts are stored as (in, out).
            models: the model without and with the adapter, as the recipe names them.
        """
        assert isinstance(a, Stored) and isinstance(b, Stored)
        expert_count = len(self.experts)
        changed_matrices: list[Tensor] = []
        for number, matrices in enumerate(self.experts):
            first_row = 0
            for matrix in matrices:
                end_row = first_row + matrix.shape[0]
                left, right = _factors(a, b, number, expert_count, transposed, first_row, end_row)
                factors = right, left, scale, False
                changed_matrices.append(Adapted.of(matrix.name, matrix, *factors, models=models))
                first_row = end_row
        if self.packed is None:
            yield from (
                (changed_matrix.name, changed_matrix) for changed_matrix in changed_matrices
            )
        else:
            shape = (expert_count, *self.shape)
            yield self.packed, Stacked.of(self.packed, shape, tuple(changed_matrices))


@dataclass(frozen=True)
class PlaceInPacked:
    """The place of a matrix in a packed tensor, or in a tensor that fuses two matrices.

    Args:
        packed: the name of the packed or fused tensor.
        expert: the expert's number; 0 in a fused tensor.
        place: the matrix's number among the matrices of the expert, or of the fused tensor.
        height: the number of rows of a matrix.
    """

    packed: str
    expert: int
    place: int
    height: int

    def number(self, packed: Tensor) -> int:
        """Return the matrix's number among all matrices of `height` rows in the packed tensor."""
        return self.expert * (packed.shape[-2] // self.height) + self.place

    def matrix(self, packed: Tensor) -> Tensor:
        """Return the matrix as a separate tensor."""
        return _matrix(packed, self.number(packed), (self.height, packed.shape[-1]))


class Experts:
    """The experts of one model, whose files may have them packed or as single matrices.

    Args:
        known: the names of the model's tensors, looked up by the adapter's names for them.
        base: the model's tensors by name, before the adapter changes them.
    """

    def __init__(self, known: ModelNames, base: Mapping[str, Tensor]) -> None:
        self._known, self._base = known, base
        self._of: dict[str, tuple[ExpertParameter, ...]] = {}

    def parameters(self, container: str) -> tuple[ExpertParameter, ...]:
        """Return the parameters of the experts of a layer, in the order of their declaration.

        Args:
            container: the adapter's name of the module that holds the experts.
        """
        if container not in self._of:
            self._of[container] = tuple(self._parameters(container))
        return self._of[container]

    def place(self, module: str) -> PlaceInPacked | None:
        """Return the place of a matrix in a packed tensor, or in a tensor that fuses two matrices.

        Args:
            module: the adapter's name of the matrix.

        Returns:
            the place; None if no such tensor has the matrix, or if the experts are transposed.
        """
        match = _OF_EXPERT.fullmatch(module)
        if match is None:
            return self._place_in_fused(module)
        matrix, number = spelled(module).rpartition(".")[2], int(match["number"])
        parameters = self.parameters(match["container"])
        for parameter in parameters:
            matrices = _MATRICES[parameter.name.rpartition(".")[2]]
            if parameter.packed is None or matrix not in matrices:
                continue
            if number >= len(parameter.experts) or is_stored_transposed(parameters):
                return None
            height = parameter.shape[0] // len(matrices)
            return PlaceInPacked(parameter.packed, number, matrices.index(matrix), height)
        return None

    def _place_in_fused(self, module: str) -> PlaceInPacked | None:
        """Return the place of a matrix in a tensor that fuses it with another one."""
        parent, _, matrix = module.rpartition(".")
        for fused_module, matrices in _FUSED.items():
            name = self._known.find(f"{parent}.{fused_module}.weight")
            if name is not None and matrix in matrices and len(self._base[name].shape) == 2:
                height = self._base[name].shape[0] // len(matrices)
                return PlaceInPacked(name, 0, matrices.index(matrix), height)
        return None

    def _parameters(self, container: str) -> Iterator[ExpertParameter]:
        for name, matrices in _MATRICES.items():
            label = f"{container}.{name}"
            packed_name = self._known.find(label)
            if packed_name is not None and len(self._base[packed_name].shape) == 3:
                yield whole_parameter(label, packed_name, self._base[packed_name])
            # Where there are gates, up_proj is a part of gate_up_proj.
            elif name != "up_proj" or not self._separate(container, 0, ("gate_proj",)):
                experts: list[tuple[Tensor, ...]] = []
                while matrices_of_expert := self._separate(container, len(experts), matrices):
                    experts.append(matrices_of_expert)
                if experts:
                    yield ExpertParameter(label, None, tuple(experts))

    def _separate(
        self, container: str, expert: int, matrices: tuple[str, ...]
    ) -> tuple[Tensor, ...]:
        """Return the matrices of an expert; empty unless each of them has its own tensor."""
        names = [self._known.find(f"{container}.{expert}.{m}.weight") for m in matrices]
        return tuple(self._base[n] for n in names if n) if None not in names else ()


def whole_parameter(label: str, name: str, tensor: Tensor) -> ExpertParameter:
    """Return a tensor with the experts along its first axis as an `ExpertParameter`."""
    expert_count, rows, columns = tensor.shape
    matrices = (_matrix(tensor, number, (rows, columns)) for number in range(expert_count))
    return ExpertParameter(label, name, tuple((matrix,) for matrix in matrices))


def is_stored_transposed(parameters: Sequence[ExpertParameter]) -> bool | None:
    """Return whether the rows of packed tensors count inputs; None if the shapes do not decide."""
    shapes = {parameter.name.rpartition(".")[2]: parameter.shape for parameter in parameters}
    first_shape = shapes.get("gate_up_proj") or shapes.get("up_proj")
    down_shape = shapes.get("down_proj")
    if first_shape is None or down_shape is None:
        return None
    factor = 2 if "gate_up_proj" in shapes else 1
    fits_as_stored = first_shape == (factor * down_shape[1], down_shape[0])
    return (
        None
        if fits_as_stored == (first_shape == (down_shape[1], factor * down_shape[0]))
        else not fits_as_stored
    )


def restacked(packed: Tensor, changed: Mapping[int, Tensor], height: int) -> Tensor:
    """Return a packed tensor with some of its matrices changed.

    Args:
        packed: shape (experts, rows, columns), or (rows, columns).
        changed: the changed matrices, by their number among all matrices of this height.
        height: the number of rows of a matrix.
    """
    shape = (height, packed.shape[-1])
    matrix_count = packed.numel // math.prod(shape)
    matrices = tuple(changed.get(n) or _matrix(packed, n, shape) for n in range(matrix_count))
    return Stacked.of(packed.name, packed.shape, matrices)


def _matrix(packed: Tensor, number: int, shape: tuple[int, ...]) -> Tensor:
    return part_of(packed, f"{packed.name}[{number}]", shape, number)


def _factors(
    a: Stored, b: Stored, number: int, count: int, transposed: bool, first: int, last: int
) -> tuple[Stored, Stored]:
    """Return the left and the right matrix whose product is added to rows of one expert.

    Args:
        a: shape (rank * count, in).
        b: shape (out, rank * count).
        number: the expert's number in the layer, from 0.
        count: the number of experts.
        transposed: whether the expert is stored as (in, out).
        first: the first changed row.
        last: one past the last changed row.
    """
    rank = a.shape[0] // count
    (a_row, a_column), (b_row, b_column) = _strides(a), _strides(b)
    first_of_a, first_of_b = number * rank * a_row, number * b_column
    if transposed:
        left = _view(a, (last - first, rank), (a_column, a_row), first_of_a + first * a_column)
        right = _view(b, (rank, b.shape[0]), (count * b_column, b_row), first_of_b)
    else:
        left = _view(b, (last - first, rank), (b_row, count * b_column), first_of_b + first * b_row)
        right = _view(a, (rank, a.shape[1]), (a_row, a_column), first_of_a)
    return left, right


def _strides(tensor: Stored) -> tuple[int, int]:
    rows, columns = tensor.strides or (tensor.shape[1], 1)
    return rows, columns


def _view(tensor: Stored, shape: tuple[int, int], strides: tuple[int, int], first: int) -> Stored:
    """Return a view of a stored tensor that begins at its element `first`."""
    return replace(
        tensor,
        name=f"{tensor.name}[{first}]",
        shape=shape,
        strides=None if strides == (shape[1], 1) else strides,
        offset=tensor.offset + nbytes(tensor.dtype, first),
    )
