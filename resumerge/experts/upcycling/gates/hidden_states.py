"""Gates from the base's hidden states for each expert's prompts, computed layer by layer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from resumerge.errors import Problem
from resumerge.experts.upcycling.gates.dependence import dependence_notes
from resumerge.experts.upcycling.gates.directions import unit
from resumerge.experts.upcycling.gates.prompts import PromptTokens, Tokens, splitting_bytes
from resumerge.tensors import Step, Tensor
from resumerge.tensors.computed import Advance, State
from resumerge.tensors.dtypes import FLOAT32_BYTES
from resumerge.tensors.evaluation import Evaluation

if TYPE_CHECKING:
    from resumerge.experts.upcycling.gates.decoder import Decoder

LIBRARIES = ("torch", "transformers")
"""The libraries that compute a layer."""

LIBRARIES_BYTES = 157_000_000
"""The memory of transformers in addition to torch, in bytes, with torch's multiplication buffers.

The value was measured. It is 50 MB less if accelerate and scipy, which transformers imports, are
not installed.
"""

LOADING_SECONDS = 1.3
"""The CPU time to import transformers, in addition to torch."""

WEIGHT_SECONDS, TEXT_SECONDS, TOKEN_SECONDS = 0.7e-9, 0.4e-9, 0.022e-9
"""The CPU time for an element of a layer's weights: once, for each text, and for each token.

The element is converted to float32 once, and multiplied for each text and token. The values were
measured on one core of the machine of docs/benchmarks.md.
"""


@dataclass(frozen=True, eq=False)
class HiddenStates(Step):
    """The gates of all layers and experts: (layers, experts, hidden).

    A gate is ``unit(mean over the positive prompts - mean over the negative prompts)`` of one state
    for each prompt. With ``hidden`` and ``hidden_last`` it is the last token's state before the
    layer, with ``hidden_avg`` the mean of all tokens' states before the layer. These are the same
    as in mergekit-moe 0.1.5 (observed), except for its padding, which has no counterpart here. With
    ``hidden_norm`` it is the input of the router: the last token's state after the second norm.

    A piece of the step is a layer. The weights of one layer are in memory, and the states of all
    tokens.

    Args:
        base: the path of the base's config.json, for messages.
        mode: one of `OF_HIDDEN_STATES`.
        config: the base's config.json.
        embedding: the base's embedding, with a row for each token.
        layers: the tensors of each layer, by name in the layer.
        experts: the tokens of each expert's prompts; shared experts come last.
        routed: the number of experts that are not shared.
    """

    base: str
    mode: str
    config: Mapping[str, Any]
    embedding: Tensor
    layers: tuple[Mapping[str, Tensor], ...]
    experts: tuple[PromptTokens, ...]
    routed: int
    title = "gates from hidden states, layer"

    @property
    def libraries(self) -> Mapping[str, str]:
        return {name: _version(name) for name in LIBRARIES}

    @property
    def pieces(self) -> int:
        return len(self.layers)

    @property
    def nbytes(self) -> int:
        return FLOAT32_BYTES * len(self.layers) * len(self.experts) * self._width

    @cached_property
    def key(self) -> str:
        text = json.dumps(
            {
                "mode": self.mode,
                "config": self.config,
                "tensors": [tensor.as_json() for tensor in self.tensors(len(self.layers))],
                "experts": [[expert.positive, expert.negative] for expert in self.experts],
                "libraries": self.libraries,
            },
            sort_keys=True,
        )
        return xxhash.xxh3_128_hexdigest(text.encode())

    @property
    def planning_bytes(self) -> int:
        return splitting_bytes(self.embedding.shape[0])

    def working_bytes(self, threads: int) -> int:
        largest_layer = max(
            (
                sum(tensor.numel for tensor in layer_tensors.values())
                for layer_tensors in self.layers
            ),
            default=0,
        )
        longest_prompt = max(map(len, self._prompts))
        tokens = sum(map(len, self._prompts))
        most_rows = max(
            (tensor.shape[0] for layer_tensors in self.layers for tensor in layer_tensors.values()),
            default=0,
        )
        configured_heads = self.config.get("num_attention_heads")
        heads = configured_heads if isinstance(configured_heads, int) else 1
        elements_of_text = longest_prompt * (
            4 * most_rows + 8 * self._width + 2 * heads * longest_prompt
        )
        elements_at_once = min(threads, len(self._prompts)) * elements_of_text
        return LIBRARIES_BYTES + FLOAT32_BYTES * (
            largest_layer + 4 * tokens * self._width + elements_at_once
        )

    def seconds(self, threads: int) -> float:
        computed_layers = self.layers[: None if self.mode == "hidden_norm" else -1]
        weights = sum(
            tensor.numel for layer_tensors in computed_layers for tensor in layer_tensors.values()
        )
        tokens = sum(map(len, self._prompts))
        text_seconds = TEXT_SECONDS * len(self._prompts) + TOKEN_SECONDS * tokens
        text_seconds /= min(threads, len(self._prompts))
        return LOADING_SECONDS + weights * (WEIGHT_SECONDS + text_seconds)

    def tensors(self, part: int) -> tuple[Tensor, ...]:
        layer_count = part + (self.mode == "hidden_norm")
        return (self.embedding, *(t for own in self.layers[:layer_count] for t in own.values()))

    def reads(self) -> Iterator[tuple[Tensor, int, int]]:
        """Yield the reads of the embedding's rows for the prompts' tokens, and of whole layers.

        The last layer is read for ``hidden_norm`` only: no other mode needs its result.
        """
        width = self._width
        for prompt in self._prompts:
            for token in prompt:
                yield from self.embedding.reads(token * width, (token + 1) * width)
        _, *layer_tensors = self.tensors(len(self.layers) - 1)
        for tensor in layer_tensors:
            yield from tensor.reads(0, tensor.numel)

    def prepare(self, evaluation: Evaluation, threads: int) -> Advance:
        from resumerge.experts.upcycling.gates.decoder import Decoder

        return partial(self._advance, Decoder(self.config, evaluation.device, threads), evaluation)

    def problems(self) -> Iterator[Problem]:
        """Yield a problem if transformers cannot make the layers, or makes other shapes."""
        from resumerge.experts.upcycling.gates.decoder import Decoder

        try:
            decoder = Decoder(self.config, "cpu")
        except Exception as error:
            yield Problem(
                "transformers cannot compute the base's layers, which the gates need",
                where=self.base,
                expected="a config.json that transformers opens",
                found=f"{type(error).__name__}: {' '.join(str(error).split())}"[:200],
                fix="Correct it, or write 'gate_mode: cheap_embed' into the recipe",
            )
            return
        shape_of_embedding = {"embed_tokens.weight": (self.embedding.shape[0], decoder.width)}
        shapes = {"embed_tokens.weight": self.embedding.shape}
        for number, tensors in enumerate(self.layers):
            shapes |= {f"layers.{number}.{name}": tensor.shape for name, tensor in tensors.items()}
        for name, shape in {**shape_of_embedding, **decoder.shapes}.items():
            if shapes.get(name) != shape:
                yield Problem(
                    "The base's tensors are not those that its config.json describes",
                    where=self.base,
                    expected=f"{name} with the shape {list(shape)}",
                    found=f"the shape {list(shapes[name])}" if name in shapes else "no such tensor",
                    fix="Put the config.json beside the model that it belongs to",
                )
                return

    def begin(self, evaluation: Evaluation) -> State:
        width = self._width
        tokens = [token for prompt in self._prompts for token in prompt]
        states = np.empty((len(tokens), width), np.float32)
        for token, state in zip(tokens, states):
            self.embedding.floats(evaluation, token * width, (token + 1) * width, state)
        shape = (len(self.layers), len(self.experts), width)
        return {"states": states, "gates": np.zeros(shape, np.float32)}

    def _advance(self, decoder: Decoder, evaluation: Evaluation, state: State, piece: int) -> State:
        ends = np.cumsum([len(prompt) for prompt in self._prompts])
        states = np.split(state["states"], ends[:-1])  # views: they change in place
        layer = self.layers[piece]
        uses_mean = self.mode == "hidden_avg"
        prompt_states = [
            prompt_state.mean(0, dtype=np.float64) if uses_mean else prompt_state[-1].copy()
            for prompt_state in states
        ]
        # Only `hidden_norm` needs the last layer.
        if piece < len(self.layers) - 1 or self.mode == "hidden_norm":
            mlp_inputs = decoder(
                piece,
                lambda name, out: layer[name].floats(evaluation, 0, layer[name].numel, out),
                states,
            )
            prompt_states = mlp_inputs if self.mode == "hidden_norm" else prompt_states
        state["gates"][piece] = self._directions(prompt_states)
        return state

    def result(self, state: State) -> np.ndarray:
        return state["gates"]

    def notes(self, result: np.ndarray) -> Iterator[str]:
        yield from dependence_notes(result[:, : self.routed])

    def _directions(self, seen: Sequence[np.ndarray]) -> np.ndarray:
        """Return a gate for each expert: float32, (experts, hidden).

        Args:
            seen: the state of each of `_prompts`.
        """
        state_by_prompt = {
            tokens: prompt_state.astype(np.float64)
            for tokens, prompt_state in zip(self._prompts, seen)
        }
        rows = np.empty((len(self.experts), self._width), np.float32)
        for row, expert in zip(rows, self.experts):
            positive_mean = _mean([state_by_prompt[prompt] for prompt in expert.positive])
            negative_mean = _mean([state_by_prompt[prompt] for prompt in expert.negative])
            row[:] = unit(positive_mean - negative_mean)
        return rows

    @property
    def _width(self) -> int:
        return self.embedding.shape[1]

    @cached_property
    def _prompts(self) -> tuple[Tokens, ...]:
        """The tokens of every prompt, without duplicate prompts."""
        prompts = (p for expert in self.experts for p in (*expert.positive, *expert.negative))
        return tuple(dict.fromkeys(prompts))


def _mean(vectors: Sequence[np.ndarray]) -> np.ndarray:
    """Return the mean of float64 vectors; zero if there are no vectors."""
    return np.stack(vectors).mean(0) if vectors else np.zeros(1)


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "none"
