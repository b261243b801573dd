"""The description of an output architecture: models it takes, names of tensors, config fields."""

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
        matrices: the name of each matrix of the dense MLP, with ``{}`` for the expert's number;
            empty if a layer's matrices are packed.
        gate_up: the name of the packed gates and ups, (experts, 2 * intermediate, hidden); else
            empty.
        down: the name of the packed downs, of the shape (experts, hidden, intermediate); else
            empty.
    """

    router: str
    matrices: Mapping[str, str] = field(default_factory=dict)
    gate_up: str = ""
    down: str = ""


@dataclass(frozen=True)
class OutputArchitecture:
    """An output architecture, as transformers knows it.

    Args:
        name: the name in messages; a recipe chooses by its beginning, in upper or lower case.
        model_type: the model type in the output's config.json; a recipe can choose by it as well.
        class_name: the class of the causal language model.
        takes: the model types that it can be made of.
        config: makes the fields that the output's config.json adds to a dense model's or replaces,
            from that config and the recipe.
        layouts: the names of tensors, by layout; other layouts are not possible.
        per_layer: the tensors of a layer that the base must have, without its MLP.
        optional: the tensors of a layer that are taken if the base has them.
        zeros: the biases that are zeros if the base lacks them, each with the weight whose rows
            give its length.
        shared: the fewest and the most shared experts.
        shared_matrices: the name of each matrix of the shared expert, by the dense MLP's.
        shared_gate: the name of the shared expert's gate, of the shape (1, hidden); empty without
            one.
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
        """Return whether a recipe's text is the beginning of the name, or the model type."""
        text = text.lower()
        return self.name.lower().startswith(text) or self.model_type == text


def separate_names(router: str, experts: str, **others: str) -> Names:
    """Return the names of tensors in a layout with separate matrices for each expert.

    Args:
        router: the name of the router.
        experts: what the names of the experts' matrices begin with, before the number.
        others: the matrices whose names differ from the dense MLP's: ``gate_proj="w1"``.
    """
    matrices = ("gate_proj", "up_proj", "down_proj")
    return Names(router, {m: f"{experts}.{{}}.{others.get(m, m)}.weight" for m in matrices})


PACKED = Names("mlp.gate.weight", {}, "mlp.experts.gate_up_proj", "mlp.experts.down_proj")
"""The names of the experts' tensors as transformers 5 packs them in all architectures."""
