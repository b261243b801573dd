"""One expert of a mixture as a dense model, for ``extract_expert`` of a recipe.

The dense architectures are facts of transformers 5. The layers of a dense architecture and of its
mixture differ only in the MLP.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from resumerge.errors import Problem
from resumerge.experts.separate_experts import with_separate_experts
from resumerge.layout.expert_names import Template, common
from resumerge.recipe import ModelRef, Recipe
from resumerge.sizes import counted
from resumerge.sources.left_out import LeftOut
from resumerge.sources.types import Source
from resumerge.tensor_uses import UnusedReason
from resumerge.tensors import Tensor


@dataclass(frozen=True)
class Dense:
    """The dense architecture that experts of a mixture fit.

    Args:
        model_type: the model type in config.json.
        architecture: the name of the class in transformers.
        size: the key in the mixture's config.json for the intermediate size of an expert.
    """

    model_type: str
    architecture: str
    size: str = "moe_intermediate_size"


DENSE = {
    "mixtral": Dense("mistral", "MistralForCausalLM", "intermediate_size"),
    "qwen2_moe": Dense("qwen2", "Qwen2ForCausalLM"),
    "qwen3_moe": Dense("qwen3", "Qwen3ForCausalLM"),
    "granitemoe": Dense("granite", "GraniteForCausalLM", "intermediate_size"),
    "deepseek": Dense("llama", "LlamaForCausalLM"),
}
"""The dense architectures, by the model type of the mixture."""

_DEFAULTS: dict[str, dict[str, Any]] = {
    "mixtral": {"rms_norm_eps": 1e-5, "sliding_window": None, "rope_theta": 1e6},
    "qwen2_moe": {
        "hidden_size": 2048,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
    },
    "qwen3_moe": {"hidden_size": 2048, "num_hidden_layers": 24, "num_key_value_heads": 4},
}
"""Defaults in the config.json of mixtures that differ from the dense architecture's defaults."""

_OF_MIXTURES = re.compile(
    r".*expert.*|.*router.*|moe_.*|norm_topk_prob|decoder_sparse_step|mlp_only_layers|auto_map"
    r"|first_k_dense_replace|scoring_func|topk_\w+|n_group|aux_loss_alpha|seq_aux|qkv_bias"
)
"""The keys of a mixture's config.json that a dense model does not have."""

_EXPERT = re.compile(r"mlp\.experts\.\{n\}\.(?P<end>(?:gate|up|down)_proj\.(?:weight|bias))")
_MLP = ("mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight")
_BIASES = tuple(f"self_attn.{which}_proj.bias" for which in "qkv")
_OF_NO_EXPERT = re.compile(r"mlp\.(gate\.|shared_expert|e_score_correction_bias)")


def extracted(
    recipe: Recipe, sources: Mapping[ModelRef, Source]
) -> tuple[dict[ModelRef, Source], list[str], list[Problem]]:
    """Return the models of a recipe with ``extract_expert``, each as the dense model of one expert.

    Returns:
        the models, notes for the user, and the problems of models that cannot be extracted from.
    """
    number = recipe.extract_expert
    assert number is not None
    models: dict[ModelRef, Source] = {}
    notes: list[str] = []
    problems: list[Problem] = []
    for ref, source in sources.items():
        problem = _unfit(recipe, source)
        if problem is None:
            separated_source, _ = with_separate_experts(source)
            models[ref], kinds = _dense(separated_source, number)
            problem = (
                _no_such_expert(recipe, separated_source, number)
                or _no_matrices(recipe, separated_source)
                or _incomplete(recipe, models[ref])
                or _unlike_layers(recipe, models[ref])
            )
            notes += [f"{ref} has {kind}, which a dense model lacks" for kind in kinds]
        problems += [problem] if problem else []
    return models, notes, problems


def dense_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config.json of the dense model of one expert.

    Args:
        config: the mixture's config.json, with a model type in `DENSE`.
    """
    model_type = config["model_type"]
    architecture, defaults = DENSE[model_type], dict(_DEFAULTS.get(model_type, {}))
    if "rope_parameters" in config:
        defaults.pop("rope_theta", None)
    dense_values = defaults | {
        field: value for field, value in config.items() if not _OF_MIXTURES.fullmatch(field)
    }
    # Without head_dim, the dense architecture would use 128.
    if model_type == "qwen3_moe" and dense_values.get("head_dim") is None:
        dense_values["head_dim"] = dense_values["hidden_size"] // dense_values.get(
            "num_attention_heads", 32
        )
    dense_values["intermediate_size"] = config.get(
        architecture.size, config.get("intermediate_size")
    )
    return dense_values | {
        "model_type": architecture.model_type,
        "architectures": [architecture.architecture],
    }


def _dense(source: Source, number: int) -> tuple[Source, list[str]]:
    """Return one expert of a mixture as a dense model, and the kinds of parts that are lost.

    Args:
        source: the mixture, with its experts as separate matrices.
        number: the number of the expert, from 0.
    """
    tensors: dict[str, Tensor] = {}
    unused_tensors: list[LeftOut] = []
    kinds: dict[str, None] = {}
    for name, tensor in source.tensors.items():
        template = Template.of(name)
        name_in_layer = common(template.rest)
        if expert := _EXPERT.fullmatch(name_in_layer):
            if template.expert == number:
                tensors[f"{template.layer}mlp.{expert['end']}"] = tensor
            else:
                unused_tensors.append(LeftOut(tensor, UnusedReason.NOT_CHOSEN))
        elif not _OF_NO_EXPERT.match(name_in_layer):
            tensors[name] = tensor
        else:
            unused_tensors.append(LeftOut(tensor, UnusedReason.NO_PLACE))
            if "shared_expert" in name_in_layer:
                kinds["shared experts"] = None
    dense_source = replace(
        source,
        tensors=tensors,
        config=dense_config(source.config),
        left_out=(*source.left_out, *unused_tensors),
    )
    return dense_source, list(kinds)


def _unfit(recipe: Recipe, source: Source) -> Problem | None:
    model_type = source.config.get("model_type")
    if model_type in DENSE:
        return None
    return recipe.problem(
        f"No dense model can be made from an expert of {source.ref}",
        "extract_expert",
        expected="a mixture whose other parts are those of a dense architecture: "
        + ", ".join(
            f"{mixture} (to {architecture.model_type})" for mixture, architecture in DENSE.items()
        ),
        found=f"model_type {model_type}" if source.config else "a model without config.json",
        fix="Name another model",
    )


def _no_such_expert(recipe: Recipe, source: Source, number: int) -> Problem | None:
    names = map(Template.of, source.tensors)
    experts = {name.expert for name in names if _EXPERT.fullmatch(common(name.rest))}
    if number in experts:
        return None
    return recipe.problem(
        f"{source.ref} has no expert {number}",
        "extract_expert",
        expected=f"a number from 0 to {len(experts) - 1}" if experts else "a model with experts",
        found=str(number),
        fix="Write one of these numbers" if experts else "Name a mixture of experts",
    )


def _no_matrices(recipe: Recipe, source: Source) -> Problem | None:
    """Return the problem of expert tensors that are not matrices of an MLP; None without any."""
    names_in_layers = {name: common(Template.of(name).rest) for name in source.tensors}
    other_tensors = [
        name
        for name, name_in_layer in names_in_layers.items()
        if ".experts." in name_in_layer and not _EXPERT.fullmatch(name_in_layer)
    ]
    if not other_tensors:
        return None
    return recipe.problem(
        f"{counted(len(other_tensors), 'tensor')} of {source.ref} would be lost",
        "extract_expert",
        expected="experts' gate, up and down projections, all packed or all separate within a "
        "layer",
        found=", ".join(other_tensors[:5]),
        fix="Name another model",
    )


def _incomplete(recipe: Recipe, dense: Source) -> Problem | None:
    """Return the problem of missing layers, or of layers that lack tensors; None without any.

    A layer needs an MLP, every tensor that another layer has, and the biases of the dense
    architecture, which a mixture may lack.
    """
    layers: dict[str, set[str]] = defaultdict(set)
    for name in dense.tensors:
        template = Template.of(name)
        if template.layer:
            layers[template.layer].add(common(template.rest))
    required_everywhere = (*_MLP, *(_BIASES if dense.config["model_type"] == "qwen2" else ()))
    needed_names = set(required_everywhere).union(*layers.values())
    missing_tensors = [
        layer + name_in_layer
        for layer, names_in_layer in layers.items()
        for name_in_layer in sorted(needed_names - names_in_layer)
    ]
    count = dense.config.get("num_hidden_layers")
    if not missing_tensors and count in (None, len(layers)):
        return None
    return recipe.problem(
        f"The dense model of {dense.ref} would be incomplete",
        "extract_expert",
        expected=f"{count} layers, each with the same tensors",
        found=f"no {', '.join(missing_tensors[:5])}"
        if missing_tensors
        else f"{len(layers)} layers",
        fix="Complete the model's files, or name another",
    )


def _unlike_layers(recipe: Recipe, dense: Source) -> Problem | None:
    """Return the problem of dense layers in a mixture whose MLPs have another size, or None."""
    size = dense.config["intermediate_size"]
    gates_of_other_sizes = [
        name
        for name, tensor in dense.tensors.items()
        if name.endswith(".mlp.gate_proj.weight") and tensor.shape[0] != size
    ]
    if not gates_of_other_sizes:
        return None
    return recipe.problem(
        f"The MLPs of {dense.ref} have several sizes",
        "extract_expert",
        expected=f"{size} rows in all layers, as an expert has: a dense model has one size",
        found=f"{dense.tensors[gates_of_other_sizes[0]].shape[0]} in {gates_of_other_sizes[0]}",
        fix="Name another model",
    )
