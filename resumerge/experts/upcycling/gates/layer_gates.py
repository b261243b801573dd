"""The gates of each layer: random numbers, or directions that are computed from prompts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain

from resumerge.errors import InputError, Problem
from resumerge.experts.upcycling.dense_models import OUTSIDE, STACK
from resumerge.experts.upcycling.gates.embedding import EmbeddedPrompts
from resumerge.experts.upcycling.gates.hidden_states import LIBRARIES, HiddenStates
from resumerge.experts.upcycling.gates.prompts import EXTRA, PromptTokens, tokens_of_prompts
from resumerge.layout import is_computed
from resumerge.recipe import Recipe
from resumerge.recipe.types import OF_HIDDEN_STATES, Mixture
from resumerge.sources.types import Source
from resumerge.tensors import Computed, Merged, Step, Tensor
from resumerge.tensors.dtypes import FLOATS
from resumerge.tensors.generated import Drawn
from resumerge.tokenizers.vocabulary import Vocabulary

Gates = Callable[[int], Tensor]
"""A function of a layer's index that returns the layer's gates.

The gates have the shape (experts, hidden); shared experts come last.
"""


def drawn_gates(mixture: Mixture, base: Source, seed: int) -> Gates:
    """Return random gates, which differ between layers.

    The distributions are those of mergekit-moe 0.1.5 (observed), but the numbers differ. ``random``
    draws from the standard normal distribution, ``uniform_random`` from the initial distribution of
    torch's linear layers.
    """
    hidden_size = base.tensors[OUTSIDE[0]].shape[1]
    shape = (len(mixture.every), hidden_size)
    distribution_bound = (
        math.sqrt(1.0 / hidden_size) if mixture.gate_mode == "uniform_random" else None
    )
    return lambda layer: Drawn.of("gates", shape, f"{seed}/gates/{layer}", distribution_bound)


@dataclass(frozen=True)
class GatesOfPrompts:
    """The maker of gates that point in the directions of the experts' prompts.

    Args:
        recipe: the recipe of the mixture, whose lines the problems name.
        mixture: the mixture of experts, with its prompts.
        base: the base model, with all tensors that the mixture takes from it.
        layers: the number of layers of the base model.
    """

    recipe: Recipe
    mixture: Mixture
    base: Source
    layers: int

    def gates(self, vocabulary: Vocabulary) -> Gates:
        """Return the gates of each layer.

        Gates from the embedding are the same for all layers.

        Args:
            vocabulary: the base model's vocabulary, which splits prompts into tokens.

        Raises:
            InputError: the base's tokenizer cannot be used, or its layers cannot be computed.
        """
        table = self.base.tensors[OUTSIDE[0]]
        prompts = tokens_of_prompts(self.mixture, vocabulary)
        if problems := [*self._without_row(prompts, table)]:
            raise InputError(problems)
        step: Step = EmbeddedPrompts(table, prompts, len(self.mixture.experts))
        if self.mixture.gate_mode in OF_HIDDEN_STATES:
            step = self._hidden_states(table, prompts)
        shape = (len(prompts), table.shape[1])
        is_same_for_layers = step.pieces == 1
        return lambda layer: Computed.of("gates", shape, step, 0 if is_same_for_layers else layer)

    def _hidden_states(self, table: Tensor, prompts: tuple[PromptTokens, ...]) -> HiddenStates:
        if missing_libraries := [name for name in LIBRARIES if find_spec(name) is None]:
            raise InputError([self._missing(missing_libraries)])
        tensors_of_layers = [self._layer(layer) for layer in range(self.layers)]
        tensors = [table, *(t for of_layer in tensors_of_layers for t in of_layer.values())]
        if any(map(_needs_scans, tensors)):
            raise InputError([self._base_is_merged()])
        return HiddenStates(
            str(self.base.folder / "config.json"),
            self.mixture.gate_mode,
            self.base.config,
            table,
            tuple(tensors_of_layers),
            prompts,
            len(self.mixture.experts),
        )

    def _layer(self, number: int) -> dict[str, Tensor]:
        """Return the base's tensors of floats in a layer, by their names in the layer."""
        prefix = f"{STACK}.{number}."
        return {
            name.removeprefix(prefix): tensor
            for name, tensor in self.base.tensors.items()
            if name.startswith(prefix) and tensor.dtype in FLOATS and not is_computed(tensor)
        }

    def _missing(self, libraries: Sequence[str]) -> Problem:
        return self.recipe.problem(
            f"Gates of the mode {self.mixture.gate_mode} are computed with transformers",
            "gate_mode",
            expected=f"the libraries {' and '.join(LIBRARIES)}",
            found=f"no {' and no '.join(libraries)}",
            fix=f"{EXTRA}; or write 'gate_mode: cheap_embed'",
        )

    def _base_is_merged(self) -> Problem:
        return self.recipe.problem(
            "The base is merged by a method that reads whole tensors before it computes",
            "base_model",
            expected="a model, or the result of a method like linear, for gates of hidden states",
            found=str(self.base.ref),
            fix="Merge it by itself first and name its folder; or write 'gate_mode: cheap_embed'",
        )

    def _without_row(self, prompts: tuple[PromptTokens, ...], table: Tensor) -> Iterator[Problem]:
        """Yield a problem for prompts without tokens, or with a token that the embedding lacks."""
        for expert, tokens in zip(self.mixture.every, prompts):
            path = f"{expert.path}.positive_prompts"
            if expert.positive_prompts and not tokens.positive:
                yield self.recipe.problem(
                    "An expert's prompts are empty after tokenization",
                    path,
                    expected="texts of which the base's tokenizer makes tokens",
                    found="no token",
                    fix="Write other prompts",
                )
            largest_token = max(
                chain.from_iterable((*tokens.positive, *tokens.negative)), default=0
            )
            if largest_token >= table.shape[0]:
                yield self.recipe.problem(
                    "The prompts of an expert have a token that the base's embedding lacks",
                    path,
                    expected=f"tokens below {table.shape[0]}, the number of its rows",
                    found=f"the token {largest_token}",
                    fix="Put the tokenizer beside the base that it belongs to",
                )


def _needs_scans(tensor: Tensor) -> bool:
    return any(isinstance(node, Merged) and node.needs_statistics for node in tensor.nodes())
