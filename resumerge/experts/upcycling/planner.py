"""The plan of a mixture of experts: its tensors and config.json, from the headers of its models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from resumerge.errors import InputError, Problem
from resumerge.experts.upcycling.architectures.dense_defaults import complete
from resumerge.experts.upcycling.architectures.output_architecture import OutputArchitecture
from resumerge.experts.upcycling.choice import ArchitectureChoice
from resumerge.experts.upcycling.dense_models import MATRICES, OUTSIDE, STACK, wrong_fields
from resumerge.experts.upcycling.gates.layer_gates import Gates, GatesOfPrompts, drawn_gates
from resumerge.layout import is_computed, listed
from resumerge.layout.model_views import ModelViews
from resumerge.recipe import ModelRef, Recipe
from resumerge.recipe.types import OF_PROMPTS, Expert, Mixture
from resumerge.sources.left_out import LeftOut
from resumerge.sources.tied_weights import ties_embeddings
from resumerge.tensor_uses import UnusedReason
from resumerge.tensors import Merged, Rounded, Sliced, Stacked, Tensor, rounded_once
from resumerge.tensors.dtypes import BY_TORCH_NAME, FLOATS
from resumerge.tensors.generated import Drawn, Filled
from resumerge.tensors.target import Target, block_elements
from resumerge.tokenizers.required import Tokenizers


@dataclass(frozen=True)
class MadeMixture:
    """The facts about a planned mixture of experts, without its tensors.

    Args:
        architecture: the name of the output architecture.
        config: the output's config.json, without the dtype.
    """

    architecture: str
    config: Mapping[str, object]


def mix(
    recipe: Recipe, mixture: Mixture, models: ModelViews, tokenizers: Tokenizers, *, seed: int
) -> tuple[MadeMixture, list[Target], list[str], list[LeftOut]]:
    """Plan a mixture of experts from dense models.

    Args:
        recipe: the recipe that makes the mixture, whose lines the problems name; its dtype, if it
            has one, is the output's.
        mixture: the recipe's part on experts.
        models: every model that the recipe names; the base is the reference.
        tokenizers: the tokenizers that were read. They contain the base's vocabulary if gates are
            made of prompts.
        seed: the seed of random gates and noise.

    Returns:
        the mixture; its tensors, in the order in which a forward pass uses them; notes; the
        models' tensors that are not used.

    Raises:
        InputError: the models do not fit; the error contains all problems.
    """
    architecture = ArchitectureChoice(recipe, mixture, models).architecture()
    planner = _Planner(recipe, mixture, models, architecture, seed)
    planner.check()
    if planner.problems:
        raise InputError(sorted(planner.problems, key=lambda p: p.line or 0))
    targets = list(planner.targets(planner.gates(tokenizers)))
    made_mixture = MadeMixture(architecture.name, planner.config())
    return made_mixture, targets, list(planner.notes()), list(planner.left_out())


@dataclass
class _Planner:
    """The planner of one mixture. It collects problems, so that all are reported at once."""

    recipe: Recipe
    mixture: Mixture
    models: ModelViews
    architecture: OutputArchitecture
    seed: int
    problems: list[Problem] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.base = self.models.sources[self.models.reference]
        self.layers = self.models.layers[self.models.reference].counts.get(STACK, 0)
        config = self.base.config
        dtype_name = self.recipe.dtype or config.get("dtype") or config.get("torch_dtype")
        self.dtype = BY_TORCH_NAME.get(str(dtype_name).removeprefix("torch."))

    def check(self) -> None:
        """Collect the problems of missing tensors, other shapes, and the base's config.json."""
        if not self.layers:
            self._lacks(self.models.reference, "base_model", [f"{STACK}.0"])
            return
        needed_names = [*OUTSIDE[: 2 if ties_embeddings(self.base.config) else 3]]
        needed_names += [
            f"{STACK}.{layer}.{rest}"
            for layer in range(self.layers)
            for rest in (
                *self.architecture.per_layer,
                *(f"mlp.{matrix}.weight" for matrix in MATRICES),
            )
        ]
        lacking_names = [name for name in needed_names if name not in self.base.tensors]
        self._lacks(self.models.reference, "base_model", lacking_names)
        if not lacking_names:
            self._check_config()
        for expert in self.mixture.every:
            self._check_expert(expert)

    def _check_config(self) -> None:
        """Collect the problems of a config.json of the base that does not fit the base's tensors.

        The mixture's config.json is made from it. Without this check, only the gate modes of hidden
        states would notice such an error.
        """
        config = complete(self.base.config)
        for expected, found in wrong_fields(config, self.base.tensors, self.layers):
            self.problems.append(
                self.recipe.problem(
                    "The base's tensors are not those that its config.json describes",
                    "base_model",
                    expected=expected,
                    found=found,
                    fix="put the config.json of this model there, complete",
                )
            )

    def _check_expert(self, expert: Expert) -> None:
        path, missing_names, mismatches = f"{expert.path}.source_model", [], []
        for layer in range(self.layers):
            for matrix in MATRICES:
                name = self._matrix_name(layer, matrix)
                base_matrix = self.base.tensors.get(name)
                expert_matrix = self._matrix(expert, layer, matrix)
                if expert_matrix is None:
                    missing_names.append(name)
                elif base_matrix is not None and (
                    base_matrix.shape != expert_matrix.shape or expert_matrix.dtype not in FLOATS
                ):
                    mismatches.append((name, base_matrix, expert_matrix))
        self._lacks(expert.model, path, missing_names)
        if mismatches:
            name, base_matrix, expert_matrix = mismatches[0]
            self.problems.append(
                self.recipe.problem(
                    f"Tensors of {expert.model} do not have the shape of the base's",
                    path,
                    expected=f"{name} with the shape {list(base_matrix.shape)}",
                    found=f"{expert_matrix.dtype} with the shape {list(expert_matrix.shape)}",
                    fix="Name a model of the base's size",
                )
            )

    def _lacks(self, ref: ModelRef, path: str, names: list[str]) -> None:
        if names:
            self.problems.append(
                self.recipe.problem(
                    f"{ref} lacks tensors that {self.architecture.name} is made of",
                    path,
                    expected=listed(sorted(names)),
                    found="none of these",
                    fix="Name a model that was saved completely, and has the base's layers",
                )
            )

    def gates(self, tokenizers: Tokenizers) -> Gates:
        """Return the gates of each layer.

        Raises:
            InputError: the base's tokenizer cannot be used.
        """
        if self.mixture.gate_mode not in OF_PROMPTS:
            return drawn_gates(self.mixture, self.base, self.seed)
        prompt_gates = GatesOfPrompts(self.recipe, self.mixture, self.base, self.layers)
        return prompt_gates.gates(tokenizers.vocabularies[self.models.reference])

    def targets(self, gates: Gates) -> Iterator[Target]:
        """Yield every tensor of the output, in the order in which a forward pass uses them."""
        yield self._target(OUTSIDE[0], self._of_base(OUTSIDE[0]))
        for layer in range(self.layers):
            layer_prefix = f"{STACK}.{layer}"
            for rest in (*self.architecture.per_layer, *self.architecture.optional):
                if f"{layer_prefix}.{rest}" in self.base.tensors:
                    yield self._target(
                        f"{layer_prefix}.{rest}", self._of_base(f"{layer_prefix}.{rest}")
                    )
            for bias, weight in self.architecture.zeros.items():
                yield self._target(
                    f"{layer_prefix}.{bias}", self._of_base_or_zeros(layer_prefix, bias, weight)
                )
            yield from self._gates(layer_prefix, gates(layer))
            yield from self._experts(layer, layer_prefix)
        for name in OUTSIDE[1:]:
            if name in self.base.tensors:
                yield self._target(name, self._of_base(name))

    def _gates(self, at: str, gates: Tensor) -> Iterator[Target]:
        names, count = self.architecture.layouts[self.mixture.expert_layout], self._count
        hidden_size, dtype = gates.shape[1], self.dtype or self.base.tensors[OUTSIDE[0]].dtype
        router_rows = Sliced.of("gates", (count, hidden_size), gates)
        yield self._target(f"{at}.{names.router}", Rounded.of(router_rows, dtype))
        if self.architecture.shared_gate:
            shared_gate_row = Sliced.of("shared gate", (1, hidden_size), gates, count * hidden_size)
            yield self._target(
                f"{at}.{self.architecture.shared_gate}", Rounded.of(shared_gate_row, dtype)
            )

    def _experts(self, layer: int, at: str) -> Iterator[Target]:
        names, experts = self.architecture.layouts[self.mixture.expert_layout], self.mixture.experts
        for number, expert in enumerate(experts):
            for matrix, name in names.matrices.items():
                expression = self._expert(expert, layer, matrix)
                yield self._target(f"{at}.{name.format(number)}", expression)
        if names.gate_up:
            yield self._packed(f"{at}.{names.gate_up}", layer, MATRICES[:2])
            yield self._packed(f"{at}.{names.down}", layer, MATRICES[2:])
        for expert in self.mixture.shared_experts:
            for matrix, name in self.architecture.shared_matrices.items():
                yield self._target(f"{at}.{name}", self._expert(expert, layer, matrix))

    def _packed(self, name: str, layer: int, matrices: Iterable[str]) -> Target:
        """Return some matrices of all experts as one tensor, expert after expert."""
        matrices = tuple(matrices)
        expert_matrices = [
            self._expert(expert, layer, matrix)
            for expert in self.mixture.experts
            for matrix in matrices
        ]
        dtypes = {expert_matrix.dtype for expert_matrix in expert_matrices}
        dtype = dtypes.pop() if len(dtypes) == 1 else "F32"
        rows, columns = expert_matrices[0].shape
        shape = (self._count, len(matrices) * rows, columns)
        rounded_parts = tuple(Rounded.of(expert_matrix, dtype) for expert_matrix in expert_matrices)
        return self._target(name, Stacked.of(name, shape, rounded_parts))

    def _expert(self, expert: Expert, layer: int, matrix: str) -> Tensor:
        """Return a matrix of an expert: ``scale * (matrix + noise)``, computed in float32."""
        tensor = self._matrix(expert, layer, matrix)
        assert tensor is not None
        scale = expert.residual_scale if matrix == MATRICES[2] else 1.0
        if scale == 1.0 and not expert.noise_scale:
            return self._rounded(tensor)
        operands, weights = [tensor], [scale]
        if expert.noise_scale:
            key = f"{self.seed}/noise/{expert.path}/{layer}/{matrix}"
            operands.append(Drawn.of("noise", tensor.shape, key))
            weights.append(scale * expert.noise_scale)
        return Merged(
            name=tensor.name,
            dtype=self.dtype or tensor.dtype,
            shape=tensor.shape,
            method="linear",
            operands=tuple(operands),
            params={"normalize": False},
            per_operand=tuple({"weight": weight} for weight in weights),
            base=None,
            seed=self.seed,
            block_elements=block_elements(None),
            models=(expert.model.text, "noise")[: len(operands)],
        )

    def _of_base(self, name: str) -> Tensor:
        tensor = self.base.tensors[name]
        return self._rounded(tensor) if tensor.dtype in FLOATS else tensor

    def _of_base_or_zeros(self, at: str, bias: str, weight: str) -> Tensor:
        if f"{at}.{bias}" in self.base.tensors:
            return self._of_base(f"{at}.{bias}")
        weight_tensor = self.base.tensors[f"{at}.{weight}"]
        return Filled(
            f"{at}.{bias}", self.dtype or weight_tensor.dtype, weight_tensor.shape[:1], 0.0
        )

    def _rounded(self, tensor: Tensor) -> Tensor:
        """Return a tensor in the output's dtype; unchanged if recipe and base state no dtype."""
        return rounded_once(tensor, self.dtype or tensor.dtype)

    def _target(self, name: str, expression: Tensor) -> Target:
        shape = expression.shape
        return Target(
            name, expression.dtype, shape, block_elements(None), expression, {name: shape}
        )

    def _matrix(self, expert: Expert, layer: int, matrix: str) -> Tensor | None:
        name = self.models.name_in(expert.model, self._matrix_name(layer, matrix))
        return self.models.sources[expert.model].tensors.get(name)

    def _matrix_name(self, layer: int, matrix: str) -> str:
        return f"{STACK}.{layer}.mlp.{matrix}.weight"

    @property
    def _count(self) -> int:
        return len(self.mixture.experts)

    def config(self) -> dict[str, object]:
        """Return the output's config.json: the base's, with the architecture's fields."""
        dense_config = complete(self.base.config)
        dense_config.pop("auto_map", None)
        return {
            **dense_config,
            "architectures": [self.architecture.class_name],
            "model_type": self.architecture.model_type,
            **self.architecture.config(dense_config, self.mixture),
        }

    def left_out(self) -> Iterator[LeftOut]:
        """Yield the models' tensors that the mixture does not use, each with the reason."""
        for ref, source in self.models.sources.items():
            for name, tensor in source.tensors.items():
                located = self.models.layers[ref].locate(name)
                is_mlp = located is not None and located.rest.startswith("mlp.")
                if is_computed(tensor):
                    yield LeftOut(tensor, UnusedReason.COMPUTED)
                elif located is not None and located.index >= self.layers:
                    yield LeftOut(tensor, UnusedReason.NOT_CHOSEN)
                elif is_mlp == (ref == self.models.reference):
                    yield LeftOut(tensor, UnusedReason.FROM_ANOTHER)

    def notes(self) -> Iterator[str]:
        """Yield the notes on the mixture and its models, for the user."""
        yield from self.recipe.notes
        yield from (note for source in self.models.sources.values() for note in source.notes)
        yield (
            f"{self.architecture.name} with {self._count} experts, "
            f"{self.mixture.experts_per_token} for each token; gates: {self.mixture.gate_mode}"
        )
        if self._count & (self._count - 1):
            yield f"llama.cpp takes 2, 4, 8… experts, and the mixture has {self._count}"
        is_one_model = len({expert.model for expert in self.mixture.experts}) == 1 < self._count
        if is_one_model and not all(expert.noise_scale for expert in self.mixture.experts[1:]):
            yield "all experts are the same model: the mixture computes what it does, until trained"
        for ref, layers in self.models.layers.items():
            if layers.counts.get(STACK, self.layers) > self.layers:
                yield f"{ref} has more layers than the base: those after {self.layers} are not used"
