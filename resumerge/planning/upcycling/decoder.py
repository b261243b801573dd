"""The decoder layers of a dense model, one at a time in memory: transformers' own modules."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Weight = Callable[[str], np.ndarray]
"""Gives a weight of a layer, as float32, by its name in the layer."""


class Decoder:
    """The layers of a causal language model, computed in float32.

    Args:
        config: config.json of the model.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        import torch
        from transformers import AutoConfig, AutoModel

        self._config = AutoConfig.for_model(**{**config, "dtype": "float32"})
        with torch.device("meta"):  # shapes alone
            make: Any = AutoModel.from_config
            model = make(self._config, attn_implementation="sdpa")
        self._layers = model.layers
        self._rotary = type(model.rotary_emb)

    def weights(self, number: int) -> list[str]:
        """The names of a layer's weights, in the layer."""
        return list(self._layers[number].state_dict())

    def __call__(
        self, number: int, weight: Weight, states: Sequence[np.ndarray]
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """One layer, applied to texts; each by itself, so that no other text changes its bits.

        Args:
            number: of the layer.
            states: of the tokens of each text, (tokens, hidden) in float32.

        Returns:
            The states after the layer, and those that its MLP is given: after the second norm.
        """
        import torch

        layer = copy.deepcopy(self._layers[number])
        loaded = {name: torch.from_numpy(weight(name)) for name in self.weights(number)}
        layer.load_state_dict(loaded, assign=True)
        layer.eval()
        given: list[np.ndarray] = []
        layer.mlp.register_forward_pre_hook(
            lambda module, arguments: given.append(arguments[0][0].numpy().copy())
        )
        after = []
        with torch.no_grad():
            for state in states:
                x = torch.from_numpy(state)[None]
                positions = torch.arange(len(state))[None]
                rotary = self._rotary(self._config)  # dynamic ones keep what a longer text needed
                result = layer(
                    x,
                    attention_mask=self._seen(layer, len(state)),
                    position_ids=positions,
                    position_embeddings=rotary(x, positions),
                )
                after.append((result[0] if isinstance(result, tuple) else result)[0].numpy())
        return after, given

    def _seen(self, layer: Any, tokens: int) -> Any:
        """Which tokens each token sees: itself, and those before it within the window."""
        import torch

        window = getattr(
            layer.self_attn, "sliding_window", getattr(self._config, "sliding_window", None)
        )
        places = torch.arange(tokens)
        back = places[:, None] - places[None, :]
        seen = (back >= 0) & (back < (window or tokens))
        return seen[None, None]
