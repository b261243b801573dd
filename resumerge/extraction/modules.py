"""The kinds of a model's modules, inferred from the names and shapes of their tensors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from resumerge.extraction.matching import Pair
from resumerge.sources.adapters.orientation import Orientations, transposed_by
from resumerge.sources.tied_names import is_embedding
from resumerge.sources.tied_weights import is_head
from resumerge.tensors import Tensor
from resumerge.tensors.dtypes import FLOATS

_TABLE = re.compile(
    r"embed(?!_out)\w*|\w*embeddings?|wte|wpe|\w*_emb|shared|relative_attention_bias"
)
"""The last word of an embedding's name, of tokens, positions, types or distances."""

_OF_OWN_CLASSES = frozenset({"embed_positions"})
"""The embeddings of classes that use them in ways that peft's layer does not support (Whisper,
Bart)."""

_OF_EXPERTS = frozenset({"gate_proj", "up_proj", "down_proj", "w1", "w2", "w3", "gate"})
_NUMBER = re.compile(r"\.\d+\.")
_ROUTER = re.compile(r"(^|\.)(mlp|block_sparse_moe|moe|ffn|feed_forward)\.(gate|router)$|router$")


class ModuleKind(Enum):
    """The kind of layer that a module is to peft."""

    MATRIX = "matrix"
    """A linear layer, its weight stored as (out, in)."""
    TRANSPOSED = "transposed"
    """A ``Conv1D``, its weight stored as (in, out)."""
    EMBEDDING = "embedding"
    CONVOLUTION = "convolution"
    OTHER = "other"
    """A norm, a router, a convolution of single channels: peft adds no matrices to it."""


@dataclass(frozen=True)
class TunedModule:
    """A module with parameters of its own.

    Args:
        name: its name in transformers.
        pairs: its parameters in both models, by the last word of each parameter's name.
    """

    name: str
    pairs: Mapping[str, Pair]
    kind: ModuleKind

    @property
    def word(self) -> str:
        """The last word of its name."""
        return self.name.rpartition(".")[2]

    @property
    def weight(self) -> Pair:
        return self.pairs["weight"]

    @property
    def is_vocabulary(self) -> bool:
        """Whether the module is an embedding of any kind, or a head over the vocabulary."""
        return self.kind is ModuleKind.EMBEDDING or is_head(f"{self.name}.weight")

    @property
    def is_grown(self) -> bool:
        """Whether a parameter of the module has another shape in the base model."""
        return any(pair.own.shape != pair.base.shape for pair in self.pairs.values())

    @property
    def matrix(self) -> tuple[int, int]:
        """The (rows, columns) of the weight; a convolution has one row for each output."""
        rows = self.weight.own.shape[0]
        return rows, self.weight.own.numel // max(1, rows)


class ModuleKinds:
    """The kinds of the modules of one model.

    Args:
        tensors: the tensors of the model's files.
        routed: the modules that hold experts' parameters.
    """

    def __init__(self, tensors: Mapping[str, Tensor], routed: frozenset[str]) -> None:
        self._tensors = tensors
        self._orientations = Orientations(tensors, default=False)
        self._routed = routed

    def module(self, name: str, pairs: Mapping[str, Pair]) -> TunedModule:
        """Return a module with its kind."""
        return TunedModule(name, pairs, self._kind(name, pairs))

    def _kind(self, name: str, pairs: Mapping[str, Pair]) -> ModuleKind:
        if "weight" not in pairs or pairs["weight"].own.dtype not in FLOATS:
            return ModuleKind.OTHER
        pair = pairs["weight"]
        shape = pair.own.shape
        if len(shape) == 2:
            word = name.rpartition(".")[2]
            if _TABLE.fullmatch(word) or is_embedding(pair.name):
                return ModuleKind.OTHER if word in _OF_OWN_CLASSES else ModuleKind.EMBEDDING
            if self._is_router(name) or self._is_taken_for_experts(name):
                return ModuleKind.OTHER
            return ModuleKind.TRANSPOSED if self._is_transposed(pair, pairs) else ModuleKind.MATRIX
        if len(shape) in (3, 4, 5) and shape[1] > 1 and not self._is_stem(pair):
            return ModuleKind.CONVOLUTION
        return ModuleKind.OTHER

    def _is_stem(self, pair: Pair) -> bool:
        """Return whether a convolution over time comes before the layers.

        Models of speech read the stride of such a convolution, and peft's layer around it has no
        stride.
        """
        return len(pair.own.shape) == 3 and not _NUMBER.search(pair.name)

    def _is_router(self, name: str) -> bool:
        """Return whether a matrix is a router: transformers has a class for it."""
        parent = name.rpartition(".")[0]
        return f"{parent}.experts" in self._routed and _ROUTER.search(name) is not None

    def _is_taken_for_experts(self, name: str) -> bool:
        """Return whether peft interprets a target's name as that of an expert's matrix.

        In models with packed experts peft 0.21 converts such target_modules to target_parameters.
        """
        return bool(self._routed) and name.rpartition(".")[2] in _OF_EXPERTS

    def _is_transposed(self, pair: Pair, pairs: Mapping[str, Pair]) -> bool:
        bias = pairs.get("bias")
        transposed = transposed_by(bias.own if bias is not None else None, pair.own)
        return self._orientations.is_transposed(pair.own.name) if transposed is None else transposed
