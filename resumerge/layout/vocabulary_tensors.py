"""Finds the tensors that have a row for every token: embeddings, output heads and their biases.

These tensors are outside the layers, and have as many rows as config.json states tokens. A table is
recognised by its name or its shape, and a bias by its weight or its name. A tensor that is not
recognised, but has an axis of this size, remains undecided.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from resumerge.layout.layers import Layers
from resumerge.sources.tied_names import is_embedding
from resumerge.sources.tied_weights import is_computed, is_head
from resumerge.sources.types import Source
from resumerge.tensors import Tensor
from resumerge.tensors.dtypes import FLOATS
from resumerge.tensors.rows import vocabulary_rows

VOCABULARY_SIZE = re.compile(r"(?!type_|entity_).*vocab_size.*|n_words|n_vocab|n_token")
"""Keys of config.json that state a number of tokens. The last three are used in older files."""

_NAMES = re.compile(
    r"emb|wte|word|tok|shared|head|output|decoder|prediction|logits|proj_out|generator"
)
_INPUT = re.compile(r"emb|wte|shared")
_OTHER_AXES = re.compile(
    r"(position|pos_emb|wpe|token_type|segment|patch|vision|visual|image|audio|norm|relative|rel_)"
    r"[^.]*(\.[^.]*)?$",
    re.IGNORECASE,
)
"""The pattern of names whose last two words say that the rows are not tokens."""

_EXTRA = 1 / 16
"""The number of rows that an embedding may have beyond config.json's tokens (images, prompts,
padding), as a fraction of these tokens."""


@dataclass(frozen=True)
class VocabularyTensors:
    """The tensors of a model whose rows are tokens.

    Args:
        size: rows of the model's embedding, which may be more than the tokenizer's tokens; None if
            no tensor was recognised as an embedding.
        found: names of the tensors with a row for each token.
        undecided: names of the tensors with an axis of about this size, if neither name nor shape
            shows whether the axis counts tokens.
    """

    size: int | None
    found: frozenset[str]
    undecided: tuple[str, ...]

    def tables(self, source: Source) -> list[str]:
        """Return the names of embeddings and heads, without biases."""
        return [
            name
            for name in self.found
            if len(source.tensors[name].shape) == 2
            and source.tensors[name].numel > (self.size or 0)
        ]


def find_vocabulary(source: Source, layers: Layers, tokens: int = 0) -> VocabularyTensors:
    """Find the tensors of a model whose rows are tokens.

    Args:
        source: the model, whose config.json states how many tokens there are.
        layers: the model's stacks, because only tensors outside of them can be found.
        tokens: number of tokens of the tokenizer; 0 if unknown. It selects the vocabulary if a
            composite model has several.
    """
    outside_tensors = {
        name: tensor for name, tensor in source.tensors.items() if layers.locate(name) is None
    }
    outside_tensors = {
        name: tensor for name, tensor in outside_tensors.items() if not _OTHER_AXES.search(name)
    }
    size = _size(outside_tensors, source.config, tokens)
    if size is None:
        return VocabularyTensors(None, frozenset(), ())
    inside_tensors = [
        tensor for name, tensor in source.tensors.items() if layers.locate(name) is not None
    ]
    unique = not any(size in tensor.shape for tensor in inside_tensors if tensor.dtype in FLOATS)
    names_with_rows = _tables(outside_tensors, size, unique=unique)
    vector_names = {
        name
        for name, tensor in outside_tensors.items()
        if tensor.numel == size and size in tensor.shape
    }
    names_with_rows |= {
        name for name in vector_names if _is_of_head(name, source, names_with_rows, unique=unique)
    }
    undecided_names = [
        name
        for name, tensor in outside_tensors.items()
        if name not in names_with_rows and _is_like(name, tensor, size, unique)
    ]
    undecided_names += [
        tensor.name
        for tensor in inside_tensors
        if size in tensor.shape and tensor.dtype not in FLOATS
    ]
    return VocabularyTensors(size, frozenset(names_with_rows), tuple(undecided_names))


def vocabulary_sizes(config: Mapping[str, Any]) -> Iterator[int]:
    """Yield every number of tokens that a (nested) config.json states, the outermost first."""
    for key, value in config.items():
        if VOCABULARY_SIZE.fullmatch(key) and type(value) is int:
            yield value
    for value in config.values():
        if isinstance(value, Mapping):
            yield from vocabulary_sizes(value)


def _size(outside: Mapping[str, Tensor], config: Mapping[str, Any], tokens: int) -> int | None:
    """Return the rows of the embedding, which may be a few more than config.json states."""
    rows_by_name = {n: vocabulary_rows(t.shape) for n, t in outside.items() if len(t.shape) == 2}
    embedding_rows = [count for name, count in rows_by_name.items() if _INPUT.search(name)]
    stated_sizes = list(dict.fromkeys(vocabulary_sizes(config)))
    fitting_sizes = (
        [size for size in stated_sizes if size in embedding_rows]
        or [size for size in stated_sizes if size in rows_by_name.values()]
        or [
            size
            for size in stated_sizes
            if any(_has_extra_rows(count, size) for count in embedding_rows)
        ]
    )
    candidate_sizes = fitting_sizes if stated_sizes else embedding_rows
    large_enough = [size for size in candidate_sizes if size >= tokens]
    return min(large_enough) if large_enough else max(candidate_sizes, default=None)


def _tables(outside: Mapping[str, Tensor], size: int, *, unique: bool) -> set[str]:
    """Return the names of embeddings and heads.

    Args:
        outside: the tensors outside the layers, except those whose names exclude rows of tokens.
        size: the number of rows of the embedding, which every table must have.
        unique: whether no tensor inside the layers has an axis of this size. If so, a tensor with
            such an axis has rows of tokens.
    """
    tables = {
        name: tensor
        for name, tensor in outside.items()
        if len(tensor.shape) == 2 and vocabulary_rows(tensor.shape) == size
    }
    embedding_shapes = {tensor.shape for name, tensor in tables.items() if _INPUT.search(name)}
    table_shapes = embedding_shapes or {tensor.shape for tensor in tables.values()}
    return {
        name
        for name, tensor in tables.items()
        if is_embedding(name)
        or is_head(name)
        or (unique and (_NAMES.search(name) or table_shapes == {tensor.shape}))
    }


def _is_of_head(name: str, source: Source, tables: set[str], *, unique: bool) -> bool:
    """Return whether a vector as long as the vocabulary is the bias of a head.

    The head's weight may be tied, and therefore missing.
    """
    stem, _, last_word = name.rpartition(".")
    weight_name = f"{stem}.weight"
    if weight_name in source.tensors:
        return weight_name in tables
    return _NAMES.search(name) is not None or (unique and last_word.endswith("bias"))


def _is_like(name: str, tensor: Tensor, size: int, unique: bool) -> bool:
    """Return whether a tensor outside the layers may have a row for each token.

    The tensor has an axis of the vocabulary's size, or is a table with a few more rows than tokens.
    """
    if is_computed(tensor):
        return False
    if len(tensor.shape) == 2 and _NAMES.search(name) and _has_extra_rows(tensor.shape[0], size):
        return True
    return size in (tensor.shape if unique else tensor.shape[:1])


def _has_extra_rows(count: int, size: int) -> bool:
    return 0 < count - size <= _EXTRA * size
