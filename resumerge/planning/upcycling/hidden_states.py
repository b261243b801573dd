"""Gates from the base's hidden states: what it makes of each expert's prompts, layer by layer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from resumerge.tensors import Step, Tensor
from resumerge.tensors.computed import State
from resumerge.tensors.evaluation import Evaluation
from resumerge.tensors.generated import unit

if TYPE_CHECKING:
    from resumerge.planning.upcycling.decoder import Decoder

FLOAT32 = 4

LIBRARIES_BYTES = 200_000_000
"""What transformers takes beside torch (measured)."""

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class PromptTokens:
    """The tokens of an expert's prompts, one by one."""

    positive: tuple[Tokens, ...]
    negative: tuple[Tokens, ...]


@dataclass(frozen=True, eq=False)
class HiddenStates(Step):
    """Gates of all layers and experts: (layers, experts, hidden).

    A row is ``unit(mean over the positive prompts - mean over the negative ones)`` of the states
    that a layer is given: of a prompt's last token (``hidden``, ``hidden_last``), or their mean
    over its tokens (``hidden_avg``). Same as mergekit-moe 0.1.5 (observed), but for padding, which
    changes nothing here. ``hidden_norm`` takes what the router itself is given: the last token's
    state after the second norm.

    A piece of the work is a layer. One layer's weights are in memory, and the states of all tokens.

    Args:
        mode: one of `OF_HIDDEN_STATES`.
        config: config.json of the base.
        embedding: a row for each token.
        layers: the tensors of each layer, by name in the layer.
        experts: the shared ones last.
    """

    mode: str
    config: Mapping[str, Any]
    embedding: Tensor
    layers: tuple[Mapping[str, Tensor], ...]
    experts: tuple[PromptTokens, ...]
    title = "gates from hidden states, layer"

    @property
    def libraries(self) -> Mapping[str, str]:
        return {name: _version(name) for name in ("torch", "transformers")}

    @property
    def pieces(self) -> int:
        return len(self.layers)

    @property
    def nbytes(self) -> int:
        return FLOAT32 * len(self.layers) * len(self.experts) * self._width

    @cached_property
    def key(self) -> str:
        text = json.dumps(
            {
                "mode": self.mode,
                "config": self.config,
                "tensors": [t.as_json() for t in self.tensors(len(self.layers))],
                "experts": [[e.positive, e.negative] for e in self.experts],
                "libraries": self.libraries,
            },
            sort_keys=True,
        )
        return xxhash.xxh3_128_hexdigest(text.encode())

    @property
    def working_bytes(self) -> int:
        layer = max((sum(t.numel for t in own.values()) for own in self.layers), default=0)
        longest = max(map(len, self._prompts))
        tokens = sum(map(len, self._prompts))
        wide = int(self.config.get("intermediate_size", 4 * self._width))
        heads = int(self.config.get("num_attention_heads", 1))
        one_text = longest * (4 * wide + 8 * self._width + 2 * heads * longest)
        return LIBRARIES_BYTES + FLOAT32 * (layer + 4 * tokens * self._width + one_text)

    def tensors(self, part: int) -> tuple[Tensor, ...]:
        within = part + (self.mode == "hidden_norm")
        return (self.embedding, *(t for own in self.layers[:within] for t in own.values()))

    def prepare(self) -> None:
        assert self._decoder

    def begin(self, evaluation: Evaluation) -> State:
        rows = [
            self.embedding.floats(evaluation, token * self._width, (token + 1) * self._width)
            for prompt in self._prompts
            for token in prompt
        ]
        shape = (len(self.layers), len(self.experts), self._width)
        return {"states": np.stack(rows), "gates": np.zeros(shape, np.float32)}

    def advance(self, state: State, piece: int, evaluation: Evaluation) -> State:
        ends = np.cumsum([len(prompt) for prompt in self._prompts])
        states = seen = np.split(state["states"], ends[:-1])
        own = self.layers[piece]
        # What the last layer makes of its states is not looked at.
        if piece < len(self.layers) - 1 or self.mode == "hidden_norm":
            states, given = self._decoder(
                piece,
                lambda name: (
                    own[name].floats(evaluation, 0, own[name].numel).reshape(own[name].shape)
                ),
                states,
            )
            seen = given if self.mode == "hidden_norm" else seen
        gates = state["gates"].copy()
        gates[piece] = self._directions(seen)
        return {"states": np.concatenate(states), "gates": gates}

    def result(self, state: State) -> np.ndarray:
        return state["gates"]

    def notes(self, result: np.ndarray) -> Iterator[str]:
        for (first, second), layers in dependent_layers(result).items():
            yield (
                f"the gates of experts {first} and {second} are nearly the same in "
                f"{len(layers)} of {len(result)} layers: give them prompts that differ more"
            )

    def _directions(self, states: Sequence[np.ndarray]) -> np.ndarray:
        """A gate for each expert, from the states of each prompt's tokens."""
        of_prompt = {
            prompt: own.mean(0, dtype=np.float64)
            if self.mode == "hidden_avg"
            else own[-1].astype(np.float64)
            for prompt, own in zip(self._prompts, states)
        }
        rows = np.empty((len(self.experts), self._width), np.float32)
        for row, expert in zip(rows, self.experts):
            towards = _mean([of_prompt[prompt] for prompt in expert.positive])
            away = _mean([of_prompt[prompt] for prompt in expert.negative])
            row[:] = unit(towards - away)
        return rows

    @property
    def _width(self) -> int:
        return self.embedding.shape[1]

    @cached_property
    def _prompts(self) -> tuple[Tokens, ...]:
        """Every prompt, once."""
        both = (p for expert in self.experts for p in (*expert.positive, *expert.negative))
        return tuple(dict.fromkeys(both))

    @cached_property
    def _decoder(self) -> Decoder:
        from resumerge.planning.upcycling.decoder import Decoder

        return Decoder(self.config)


def dependent_layers(gates: np.ndarray, most: float = 0.98) -> dict[tuple[int, int], list[int]]:
    """Layers whose gates hardly tell two experts apart, by the numbers of the experts.

    Args:
        gates: unit vectors, (layers, experts, hidden).
        most: a larger cosine of two of them is noted.
    """
    found: dict[tuple[int, int], list[int]] = {}
    for layer, rows in enumerate(gates):
        alike = np.argwhere(np.triu(rows @ rows.T, 1) > most)
        for first, second in alike.tolist():
            found.setdefault((first, second), []).append(layer)
    return found


def _mean(vectors: Sequence[np.ndarray]) -> np.ndarray:
    """Of vectors in float64; zero of none."""
    return np.stack(vectors).mean(0) if vectors else np.zeros(1)


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "none"
