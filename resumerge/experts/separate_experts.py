"""The matrices of experts as parts of the packed tensors in files.

A packed tensor has the experts along its first axis. If the second axis counts outputs, an expert's
gate precedes its up, and each matrix is a contiguous part. Otherwise (transposed or interleaved, as
in gpt-oss) an expert's part of a tensor stays one matrix.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from resumerge.layout.expert_names import Template
from resumerge.sources.types import Source
from resumerge.tensors import Stacked, Tensor
from resumerge.tensors.dtypes import FLOATS
from resumerge.tensors.parts import part_of

_PACKED = re.compile(r"^(?P<head>.+)\.experts\.(?P<kind>[a-z]\w*?)(?:\.(?:weight|bias))?$")
_LINEAR = re.compile(r"^(?P<head>.+)\.(?P<kind>(in|out)put_linear)\.weight$")
_KINDS = {"input_linear": "gate_up_proj", "output_linear": "down_proj"}


@dataclass(frozen=True)
class Place:
    """The place of an expert's matrix in a packed tensor.

    Args:
        packed: the `rest` of the packed tensor's `Template`.
        number: the index of the matrix among the expert's matrices in the packed tensor.
        count: the number of matrices of each expert in the packed tensor.
    """

    packed: str
    number: int
    count: int


@dataclass(frozen=True)
class PackedTensor:
    """A tensor of a file that contains matrices of all experts of a layer.

    Args:
        tensor: the packed tensor, with the experts along its first axis.
        head: the names of the layer's experts up to ``.experts``, without it.
        matrices: the ends of the names of an expert's matrices, in their order in the tensor.
    """

    tensor: Tensor
    head: str
    matrices: tuple[str, ...]

    def names(self) -> Iterator[str]:
        """Yield the names of the matrices, in their order in the tensor."""
        for number in range(self.tensor.shape[0] * len(self.matrices)):
            expert, place = divmod(number, len(self.matrices))
            yield f"{self.head}.experts.{expert}.{self.matrices[place]}"

    def pieces(self) -> Iterator[tuple[str, Tensor]]:
        """Yield (name, matrix) for each matrix, in their order in the tensor."""
        _, rows, *other_dimensions = self.tensor.shape
        shape = (rows // len(self.matrices), *other_dimensions)
        for number, name in enumerate(self.names()):
            if isinstance(self.tensor, Stacked) and self.tensor.parts[0].shape == shape:
                yield name, self.tensor.parts[number]
            else:
                yield name, part_of(self.tensor, name, shape, number)


def with_separate_experts(source: Source) -> tuple[Source, dict[str, Place]]:
    """Return a source with the matrices of packed tensors in place of these tensors.

    Returns:
        the source; and the place of each matrix from a packed tensor, by the `rest` of the matrix's
        `Template`.
    """
    packed_tensors = _packed_tensors(source.tensors)
    if not packed_tensors:
        return source, {}
    tensors: dict[str, Tensor] = {}
    places: dict[str, Place] = {}
    for name, tensor in source.tensors.items():
        packed_tensor = packed_tensors.get(name)
        tensors |= packed_tensor.pieces() if packed_tensor else {name: tensor}
        if packed_tensor:
            packed_rest = Template.of(name).rest
            for number, matrix in enumerate(packed_tensor.matrices):
                matrix_rest = Template.of(f"{packed_tensor.head}.experts.0.{matrix}").rest
                places[matrix_rest] = Place(packed_rest, number, len(packed_tensor.matrices))
    return replace(source, tensors=tensors), places


def _packed_tensors(tensors: Mapping[str, Tensor]) -> dict[str, PackedTensor]:
    """Return the packed tensors of a model, by name.

    The tensors of a layer count as packed only if all of them have the same number of experts.
    """
    layers: dict[str, dict[str, tuple[str, Tensor]]] = defaultdict(dict)
    for name, tensor in tensors.items():
        match = _PACKED.match(name) or _LINEAR.match(name)
        if match and tensor.dtype in FLOATS and len(tensor.shape) >= 3 - name.endswith("bias"):
            layers[match["head"]][_KINDS.get(match["kind"], match["kind"])] = name, tensor
    packed_tensors = {}
    for head, kinds in layers.items():
        shapes = {kind: tensor.shape for kind, (_, tensor) in kinds.items()}
        if len({shape[0] for shape in shapes.values()}) == 1:
            for kind, (name, tensor) in kinds.items():
                packed_tensor = PackedTensor(tensor, head, _matrices(kind, shapes))
                # If the files contain a matrix twice, both tensors stay, and one is surplus.
                if tensors.keys().isdisjoint(packed_tensor.names()):
                    packed_tensors[name] = packed_tensor
    return packed_tensors


def _matrices(kind: str, shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    """Return the ends of the names of each expert's matrices in a packed tensor.

    Args:
        kind: the kind of the packed tensor: ``gate_up_proj``, ``down_proj``…
        shapes: the shapes of the layer's packed tensors, by kind.
    """
    gate_up_shape = shapes.get("gate_up_proj") or shapes.get("up_proj")
    if kind in ("gate_up_proj", "up_proj", "down_proj") and gate_up_shape and "down_proj" in shapes:
        first_matrices = ("gate_proj", "up_proj") if "gate_up_proj" in shapes else ("up_proj",)
        _, output_size, input_size = shapes["down_proj"]
        if gate_up_shape[1:] == (len(first_matrices) * input_size, output_size):
            name_ends = ("down_proj",) if kind == "down_proj" else first_matrices
            return tuple(f"{name}.weight" for name in name_ends)
    return (kind,)
