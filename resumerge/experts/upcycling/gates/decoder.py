"""The decoder layers of a dense model, as transformers' modules, with one layer in memory."""

from __future__ import annotations

import copy
import math
import mmap
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModel

from resumerge.tensors.dtypes import FLOAT32_BYTES

Weight = Callable[[str, np.ndarray], object]
"""A function ``weight(name, out)`` that fills `out` with a weight of a layer, as float32.

The name is the weight's name in the layer.
"""


class Decoder:
    """The layers of a causal language model, computed in float32.

    The weights of each layer are read into the same memory mapping, which is freed with the
    decoder. Weights in the allocator's memory would leave holes that are too small for a layer.

    Args:
        config: the content of the model's config.json, of a model type that transformers knows.
        device: the name of the torch device that computes, like ``cpu``.
        threads: the number of texts that are computed at once. One thread computes a text, so that
            the bits do not depend on this number.
    """

    def __init__(self, config: Mapping[str, Any], device: str, threads: int = 1) -> None:
        # Otherwise MKL keeps 15 MB of buffers. It reads the variable at its first multiplication.
        os.environ.setdefault("MKL_DISABLE_FAST_MM", "1")
        self._config = AutoConfig.for_model(**{**config, "dtype": "float32"})
        with torch.device("meta"):  # shapes without data
            make_model: Any = AutoModel.from_config
            model = make_model(self._config, attn_implementation="sdpa")
        self._layers = model.layers
        self._rotary = type(model.rotary_emb)
        self._device = device
        self._threads = threads
        self._memory = np.empty(0, np.float32)

    @property
    def width(self) -> int:
        """The number of elements of a token's hidden state."""
        return int(self._config.hidden_size)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the weights of all layers, by their names in the model."""
        weights = self._layers.state_dict().items()
        return {f"layers.{name}": tuple(meta.shape) for name, meta in weights}

    def __call__(
        self, number: int, weight: Weight, states: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """Apply one layer to each text by itself, so that other texts do not change its bits.

        Args:
            number: the index of the layer.
            weight: reads a weight of the layer, by its name in the layer, into a flat float32
                array.
            states: for each text, the states of its tokens: float32, (tokens, hidden). They are
                overwritten with the states after the layer.

        Returns:
            for each text, the MLP's input for the last token, after the second norm: float32,
            (hidden,).
        """
        weights = self._weights(number, weight)
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(partial(self._of_text, number, weights), states))

    @torch.no_grad()
    def _of_text(
        self, number: int, weights: Mapping[str, torch.Tensor], state: np.ndarray
    ) -> np.ndarray:
        layer = copy.deepcopy(self._layers[number]).eval()
        layer.load_state_dict(weights, assign=True)
        mlp_inputs: list[np.ndarray] = []
        layer.mlp.register_forward_pre_hook(
            lambda module, arguments: mlp_inputs.append(arguments[0][0, -1].cpu().numpy().copy())
        )
        layer_input = torch.from_numpy(state)[None].to(self._device)
        positions = torch.arange(len(state), device=self._device)[None]
        rotary = self._rotary(self._config)  # new, since dynamic embeddings remember longer texts
        result = layer(
            layer_input,
            attention_mask=self._seen(layer, len(state)),
            position_ids=positions,
            position_embeddings=rotary.to(self._device)(layer_input, positions),
        )
        state_after = result[0] if isinstance(result, tuple) else result
        state[:] = state_after[0].cpu().numpy()
        return mlp_inputs[0]

    def _weights(self, number: int, weight: Weight) -> dict[str, torch.Tensor]:
        """Return the weights of a layer, which are valid until another layer's weights are read."""
        meta_weights = self._layers[number].state_dict()
        shapes = {name: tuple(meta_weight.shape) for name, meta_weight in meta_weights.items()}
        memory, offset, weights = self._memory_of(sum(map(math.prod, shapes.values()))), 0, {}
        for name, shape in shapes.items():
            layer_part = memory[offset : offset + math.prod(shape)]
            weight(name, layer_part)
            weights[name] = torch.from_numpy(layer_part.reshape(shape)).to(self._device)
            offset += len(layer_part)
        return weights

    def _memory_of(self, elements: int) -> np.ndarray:
        if len(self._memory) < elements:
            self._memory = np.frombuffer(mmap.mmap(-1, FLOAT32_BYTES * elements), np.float32)
        return self._memory

    def _seen(self, layer: Any, tokens: int) -> torch.Tensor:
        """Return the attention mask: a token sees itself, and earlier tokens within the window."""
        window = getattr(
            layer.self_attn, "sliding_window", getattr(self._config, "sliding_window", None)
        )
        token_places = torch.arange(tokens, device=self._device)
        distance_back = token_places[:, None] - token_places[None, :]
        is_visible = (distance_back >= 0) & (distance_back < (window or tokens))
        return is_visible[None, None]
