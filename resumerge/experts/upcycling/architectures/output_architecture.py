"""What an output architecture is: which models it takes, names of tensors, fields of its config."""

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
    """Tensors of a layer's MLP in one layout, after ``model.layers.N.``.

    Args:
        router: of the shape (experts, hidden).
        matrices: by matrix of the dense MLP; ``{}`` stands for the expert's number. Empty where
            those of a layer are packed.
        gate_up: of the shape (experts, 2 * intermediate, hidden), where they are packed.
        down: of the shape (experts, hidden, intermediate).
    """

    router: str
    matrices: Mapping[str, str] = field(default_factory=dict)
    gate_up: str = ""
    down: str = ""


@dataclass(frozen=True)
class OutputArchitecture:
    """One output architecture, as transformers knows it.

    Args:
        name: in messages; a recipe chooses by its beginning, in any case.
        model_type: of its config.json, which chooses it as well.
        class_name: of the causal language model.
        takes: the model types that it can be made of.
        config: the fields of its config.json that a dense model's lacks, or has otherwise, from
            that config and the recipe.
        layouts: names by layout; it has no others.
        per_layer: the tensors of a layer that the base gives, without its MLP.
        optional: those that it gives if it has them.
        zeros: those that are zeros if the base lacks them, each as long as the tensor that it is
            the bias of.
        shared: fewest and most shared experts.
        shared_matrices: name of each matrix of the shared expert, by the dense MLP's.
        shared_gate: of the shape (1, hidden): its gate, if it has one.
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
        """Whether a recipe may mean it."""
        text = text.lower()
        return self.name.lower().startswith(text) or self.model_type == text


def separate(router: str, experts: str, **others: str) -> Names:
    """The names of experts in matrices of their own.

    Args:
        experts: before the numbers.
        others: of the dense MLP's matrices that are called otherwise: ``gate_proj="w1"``.
    """
    matrices = ("gate_proj", "up_proj", "down_proj")
    return Names(router, {m: f"{experts}.{{}}.{others.get(m, m)}.weight" for m in matrices})


PACKED = Names("mlp.gate.weight", {}, "mlp.experts.gate_up_proj", "mlp.experts.down_proj")
"""As transformers 5 packs the experts of all architectures."""
