"""The description of an output architecture: its models, names of tensors, and config fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from resumerge.recipe.types import Mixture

Config = Mapping[str, Any]

NORMS = ("input_layernorm.weight", "post_attention_layernorm.weight")
WEIGHTS = tuple(f"self_attn.{p}_proj.weight" for p in "qkvo")
BIASES = tuple(f"self_attn.{p}_proj.bias" for p in "qkvo")


@dataclass(frozen=True)
class Names:
    """The names of a layer's MLP tensors in one layout, after ``model.layers.N.``.

    Args:
        router: the name of the router, of the shape (experts, hidden).
        matrices: the name of each matrix of an expert, by the dense MLP's name, with ``{}`` for the
            expert's number; empty if a layer's matrices are packed.
        gate_up: the name of the packed gates and ups, of the shape (experts, 2 * intermediate,
            hidden); empty if matrices are separate.
        down: the name of the packed downs, of the shape (experts, hidden, intermediate); empty if
            matrices are separate.
    """

    router: str
    matrices: Mapping[str, str] = field(default_factory=dict)
    gate_up: str = ""
    down: str = ""


@dataclass(frozen=True)
class OutputArchitecture:
    """An output architecture of mixtures, as transformers defines it.

    Args:
        name: the name in messages. A recipe names the architecture by the beginning of this name,
            in any case.
        model_type: the model type in the output's config.json; a recipe may name it, too.
        class_name: the class of the causal language model, for ``architectures`` in the output's
            config.json.
        takes: the model types of dense models that the mixture can be made of.
        config: returns the fields that the output's config.json adds or replaces, from the dense
            model's config.json and the recipe.
        layouts: the names of tensors, by layout. Other layouts are not possible.
        per_layer: the tensors of a layer, without its MLP, that the base must have.
        optional: the tensors of a layer that are copied if the base has them.
        zeros: the biases that are filled with zeros if the base lacks them. The value is the name
            of a weight with as many rows as the bias has elements.
        shared: the smallest and the largest number of shared experts.
        shared_matrices: the name of each matrix of the shared expert, by the dense MLP's name.
        shared_gate: the name of the shared expert's gate, of the shape (1, hidden); empty if there
            is no such gate.
    """

    name: str
    model_type: str
    class_name: str
    takes: tuple[str, ...]
    config: Callable[[Config, Mixture], dict[str, Any]]
    layouts: Mapping[str, Names]
    per_layer: tuple[str, ...] = NORMS + WEIGHTS
    optional: tuple[str, ...] = ()
    zeros: Mapping[str, str] = field(default_factory=dict)
    shared: tuple[int, int] = (0, 0)
    shared_matrices: Mapping[str, str] = field(default_factory=dict)
    shared_gate: str = ""

    def is_called(self, text: str) -> bool:
        """Return whether a recipe's text is the beginning of the name, or is the model type."""
        text = text.lower()
        return self.name.lower().startswith(text) or self.model_type == text


def separate_names(router: str, experts: str, **others: str) -> Names:
    """Return the names of tensors in a layout with separate matrices for each expert.

    Args:
        router: the name of the router's weight within a layer, like ``mlp.gate.weight``.
        experts: the part of the names of experts' matrices before the number.
        others: the names of matrices that differ from the dense MLP's, like ``gate_proj="w1"``.
    """
    matrices = ("gate_proj", "up_proj", "down_proj")
    return Names(router, {m: f"{experts}.{{}}.{others.get(m, m)}.weight" for m in matrices})


PACKED = Names("mlp.gate.weight", {}, "mlp.experts.gate_up_proj", "mlp.experts.down_proj")
"""The names of the packed layout, which transformers 5 uses for all architectures."""
