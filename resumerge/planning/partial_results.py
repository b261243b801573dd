"""What each step of the planner passes to the next: matched modules, tensors, expressions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from resumerge.layout import ModulePart
from resumerge.planning.module_matches import ModuleMatch
from resumerge.planning.plan import LayerMap
from resumerge.planning.tensor_specs import TensorSpec
from resumerge.recipe import ModelRef
from resumerge.tensors.target import Target
from resumerge.tokenizers.row_alignment import RowAlignment


class Matched(NamedTuple):
    """The recipe's modules, matched with parts of the models.

    Args:
        modules: the recipe's modules, each with the part of the reference that it names.
        fitting: the modules whose layers all models have.
        unnamed: the parts of the reference that no module names.
        layer_maps: the origins of stacked layers.
    """

    modules: list[ModuleMatch]
    fitting: list[ModuleMatch]
    unnamed: list[ModulePart]
    layer_maps: list[LayerMap]


class Specified(NamedTuple):
    """The tensors of the output, before their expressions are made.

    Args:
        specs: every tensor of the output.
        unused: the names of each model's tensors that the output does not use.
    """

    specs: list[TensorSpec]
    unused: Mapping[ModelRef, list[str]]


class Tokens(NamedTuple):
    """The row alignment and the chat template of the output.

    Args:
        rows: the alignment of the rows of tokens; None if the rows are not aligned.
        chat_template: the chat template of the output; None for the reference's.
    """

    rows: RowAlignment | None
    chat_template: str | None


class Expressed(NamedTuple):
    """The tensors of the output, each with the expression that computes it.

    Args:
        as_named: the tensors, each expert by its own name, in the order of the files.
        as_stored: the same tensors, with experts packed or split as in the reference's files.
    """

    as_named: list[Target]
    as_stored: list[Target]
