"""The tensors of a GGUF file, converted from a model's tensors: names, row orders, types."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from resumerge.errors import InputError, refuse
from resumerge.output.gguf.hyperparameters import Hyperparameters
from resumerge.quantisation.gguf_blocks import ENCODED, encoded
from resumerge.sizes import counted, some
from resumerge.sources.gguf.families import SHARED_GATE
from resumerge.tensors import Dequantised, Encoded, Interleaved, Merged, Rounded, Tensor
from resumerge.tensors.dtypes import FLOATS
from resumerge.tensors.generated import Literal
from resumerge.tensors.parts import part_of
from resumerge.tensors.target import BLOCK_ELEMENTS

PLAIN = ("F32", "F16", "BF16")
TYPES = (*PLAIN, *ENCODED)
"""The GGUF types that can be written."""

_FALLBACK = "F16"
"""The type of matrices whose rows are not whole blocks, as in llama.cpp's converter."""

_FINER = {"Q4_0": "Q8_0"}
"""The type of embeddings and heads, by the requested type. Few bits harm them most."""

_ROUTERS = ("ffn_gate_inp", SHARED_GATE)
_LAYER = re.compile(r"model\.layers\.(0|[1-9]\d*)\.(.+)\.(weight|bias)")
_EXPERT = re.compile(r"(.+\.experts)\.(\d+)\.(\w+)")
_PACKED = re.compile(r"model\.layers\.(\d+)\.(\w+)\.experts\.(gate_up_proj|down_proj)(?:\.weight)?")
_BUFFER = "rotary_emb.inv_freq"


@dataclass(frozen=True)
class Written:
    """A tensor of the file.

    Args:
        name: the tensor's name in the file.
        shape: the shape, the innermost dimension last.
        type: the name of the type in GGUF.
        parts: the expressions whose elements, one after the other, are the tensor's elements; for
            GGUF types with blocks, the bytes of these blocks.
        block_elements: the number of elements in a block of each part.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    parts: tuple[Tensor, ...]
    block_elements: int


class WrittenTensors:
    """The conversion of a model's tensors to those of a GGUF file.

    Args:
        facts: the model's hyperparameters, which know its family and the numbers of its heads.
        type: the GGUF type of matrices; None to keep the type of each matrix.

    Attributes:
        notes: sentences about tensors that are not written in the requested type.
    """

    def __init__(self, facts: Hyperparameters, type: str | None) -> None:
        self._facts, self._type = facts, type
        family = facts.family
        self._top = {transformers_name: name for name, transformers_name in family.top.items()}
        self._layer = {transformers_name: name for name, transformers_name in family.layer.items()}
        self._cut: dict[str, list[str]] = defaultdict(list)

    @property
    def notes(self) -> list[str]:
        return [
            f"{counted(len(names), 'tensor')} in {_FALLBACK}, not {type_name}: rows that are no "
            f"whole blocks of 32 elements ({some(names)})"
            for type_name, names in self._cut.items()
        ]

    def of(self, tensors: Mapping[str, Tensor]) -> Iterator[Written]:
        """Yield the tensors of the file.

        Args:
            tensors: the tensors of the model, by transformers' names, in the order of the file.

        Raises:
            InputError: a tensor does not belong to the family, or a tensor is missing.
        """
        parts_by_name: dict[str, dict[int, Tensor]] = defaultdict(dict)
        for name, tensor in tensors.items():
            if not name.endswith(_BUFFER):
                for gguf_name, number, part in self._places(name, tensor):
                    parts_by_name[gguf_name][number] = part
        self._check_complete(parts_by_name)
        for name, numbered_parts in parts_by_name.items():
            yield self._written(
                name, tuple(numbered_parts[number] for number in sorted(numbered_parts))
            )
        for name, numbers in self._facts.factors().items():
            yield Written(
                name, (len(numbers),), "F32", (Literal.of(name, "F32", numbers),), BLOCK_ELEMENTS
            )

    def _unknown(self, name: str, expected: str, found: object) -> InputError:
        return refuse(
            "The model has a tensor that its family in llama.cpp has no place for",
            where=f"{self._facts.model}: {name}",
            expected=expected,
            found=str(list(found) if isinstance(found, tuple) else found),
            fix="name a folder as output, and convert it with llama.cpp's own script",
        )

    def _places(self, name: str, tensor: Tensor) -> Iterator[tuple[str, int, Tensor]]:
        """Yield the parts of a tensor: the name in the file, the part's number, the elements.

        The part's number is that of the expert; it is 0 for a tensor without experts.

        Raises:
            InputError: the tensor does not belong to the family.
        """
        kind = name.rpartition(".")[2]
        if (gguf_module := self._top.get(name.removesuffix(f".{kind}"))) and kind == "weight":
            if self._facts.architecture.startswith("gemma") and gguf_module == "output":
                raise self._unknown(name, "a head that is tied to the embedding", tensor.shape)
            yield f"{gguf_module}.{kind}", 0, tensor
            return
        if match := _PACKED.fullmatch(name):
            yield from self._packed(name, tensor, *match.groups())
            return
        match = _LAYER.fullmatch(name)
        layer, module, kind = match.groups() if match else ("", "", "")
        expert = _EXPERT.fullmatch(module)
        number = int(expert[2]) if expert else 0
        module = f"{expert[1]}.{{}}.{expert[3]}" if expert else module
        if module not in self._layer:
            raise self._unknown(name, f"a tensor of {self._facts.family.model_type}", tensor.shape)
        yield f"blk.{layer}.{self._layer[module]}.{kind}", number, tensor

    def _packed(
        self, name: str, tensor: Tensor, layer: str, module: str, matrix: str
    ) -> Iterator[tuple[str, int, Tensor]]:
        """Yield the parts (see `_places`) of a tensor in which transformers 5 packs all experts."""
        is_mixtral = module == "block_sparse_moe" or self._facts.family.model_type == "mixtral"
        names = {"down_proj": ["w2" if is_mixtral else "down_proj"]}.get(
            matrix, ["w1", "w3"] if is_mixtral else ["gate_proj", "up_proj"]
        )
        gguf_modules = [
            self._layer.get(
                f"{'block_sparse_moe' if is_mixtral else 'mlp'}.experts.{{}}.{matrix_name}"
            )
            for matrix_name in names
        ]
        if None in gguf_modules or len(tensor.shape) != 3 or tensor.shape[1] % len(names):
            raise self._unknown(name, f"a tensor of {self._facts.family.model_type}", tensor.shape)
        experts, rows, columns = tensor.shape
        shape = (rows // len(names), columns)
        for matrix_number in range(experts * len(names)):
            part = part_of(tensor, f"{name} {matrix_number}", shape, matrix_number)
            yield (
                f"blk.{layer}.{gguf_modules[matrix_number % len(names)]}.weight",
                matrix_number // len(names),
                part,
            )

    def _check_complete(self, parts_by_name: Mapping[str, Mapping[int, Tensor]]) -> None:
        """Verify that every layer has the same tensors as the first layer, and all experts.

        Raises:
            InputError: a tensor is missing or superfluous.
        """
        count = self._facts.values()[f"{self._facts.architecture}.block_count"]
        assert isinstance(count, int)
        layers = defaultdict[int, set[str]](set)
        for name in parts_by_name:
            if name.startswith("blk."):
                _, layer, module = name.split(".", 2)
                layers[int(layer)].add(module)
        missing_outside_layers = {"token_embd.weight", "output_norm.weight"} - parts_by_name.keys()
        if not self._facts.is_tied:
            missing_outside_layers |= {"output.weight"} - parts_by_name.keys()
        missing_names = [
            f"blk.{number}.{module}"
            for number in range(count)
            for module in layers[0] - layers[number]
        ]
        surplus_names = [
            f"blk.{number}.{module}" for number in layers for module in layers[number] - layers[0]
        ]
        surplus_names += [f"blk.{number}" for number in layers if number >= count]
        for name, numbered_parts in parts_by_name.items():
            expected_parts = self._facts.experts if "_exps." in name else 1
            missing_names += [
                f"{name} of expert {number}"
                for number in range(expected_parts)
                if number not in numbered_parts
            ]
            surplus_names += [
                f"{name} of expert {number}"
                for number in numbered_parts
                if number >= expected_parts
            ]
        if missing_names := sorted([*missing_outside_layers, *missing_names]):
            raise self._unknown(
                missing_names[0], f"{count} layers with the same tensors", some(missing_names)
            )
        if surplus_names:
            raise self._unknown(
                surplus_names[0], f"{count} layers with the same tensors", some(surplus_names)
            )

    def _written(self, name: str, parts: tuple[Tensor, ...]) -> Written:
        module = name.split(".")[-2]
        first_part = parts[0]
        if len({part.shape for part in parts}) > 1:
            raise self._unknown(name, "experts of one shape", first_part.shape)
        is_packed = "_exps." in name
        shape = (len(parts), *first_part.shape) if is_packed else first_part.shape
        if module == SHARED_GATE and len(shape) == 2 and shape[0] == 1:
            shape, parts = shape[1:], (first_part,)
        type_in_file = self._type_of(name, module, shape, first_part)
        encoded_parts = tuple(
            self._in_gguf_form(name, module, part, type_in_file) for part in parts
        )
        block_sizes = {_block_elements(part) for part in encoded_parts}
        return Written(name, shape, type_in_file, encoded_parts, max(block_sizes))

    def _type_of(self, name: str, module: str, shape: tuple[int, ...], tensor: Tensor) -> str:
        """Return the GGUF type of a tensor: F32 for vectors, norms and routers.

        Raises:
            InputError: the tensor cannot be written as GGUF.
        """
        if tensor.dtype not in FLOATS:
            raise self._unknown(name, "floats", tensor.dtype)
        if not 1 <= len(shape) <= 3 or tensor.numel == 0:
            raise self._unknown(name, "a vector or a matrix with elements", shape)
        if len(shape) == 1 or module.endswith("norm") or module in _ROUTERS:
            return "F32"
        type_name = self._type or (tensor.dtype if tensor.dtype in PLAIN else "F32")
        if module in ("token_embd", "output"):
            type_name = _FINER.get(type_name, type_name)
        if type_name in ENCODED and shape[-1] % ENCODED[type_name][1]:
            self._cut[type_name].append(name)
            return _FALLBACK
        return type_name

    def _in_gguf_form(self, name: str, module: str, tensor: Tensor, type: str) -> Tensor:
        """Return the expression of a part in its GGUF type, with its rows in llama.cpp's order."""
        family, dtype = self._facts.family, type if type in PLAIN else "F32"
        added_to_norm = family.added if module.endswith("norm") else 0.0
        tensor = _rounded(tensor, "F32" if added_to_norm else dtype)
        if added_to_norm:
            tensor = Dequantised.shifted(tensor, added_to_norm)
        if family.pairs and module in ("attn_q", "attn_k"):
            head_count = self._facts.heads if module == "attn_q" else self._facts.keys
            rows = tensor.shape[0]
            if rows % (2 * head_count):
                raise self._unknown(name, f"rows for {head_count} heads, an even number each", rows)
            tensor = Interleaved.of(tensor, rows // head_count)
        return encoded(tensor, type) if type in ENCODED else tensor


def _rounded(tensor: Tensor, dtype: str) -> Tensor:
    """Return a tensor of the output in another dtype, without rounding to its own dtype first."""
    if isinstance(tensor, Merged):
        return replace(tensor, dtype=dtype)
    return Rounded.of(tensor.exact if tensor.dtype != dtype else tensor, dtype)


def _block_elements(tensor: Tensor) -> int:
    """Return the number of elements in a block of a part.

    This is the block size of the merge that computes the part, rounded up to whole groups of
    interleaved rows. Random masks are keyed by the merge's blocks, so a block run that divides such
    a block computes it twice. For GGUF types with blocks, the elements are bytes.
    """
    blocks = [node.block_elements for node in tensor.nodes() if isinstance(node, Merged)]
    size = max(blocks, default=BLOCK_ELEMENTS)
    for node in tensor.nodes():
        if isinstance(node, Interleaved):
            size = -(-size // node.group_elements) * node.group_elements
    if isinstance(tensor, Encoded):
        return max(1, size // tensor.elements) * tensor.block_bytes
    return size
