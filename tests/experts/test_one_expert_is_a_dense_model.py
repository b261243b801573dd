"""Promise: one expert of a mixture is the dense model that its layers and config describe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from dense_headers import ATTENTION, HEADS, HIDDEN, INNER, KEYS, TOKENS
from made_up_plans import LINEAR, llama, plan, tensor, units

from resumerge.errors import InputError, Problem
from resumerge.experts.extraction import DENSE, dense_config
from resumerge.planning import Plan
from resumerge.sources.left_out import LeftOut
from resumerge.sources.types import Source
from resumerge.tensor_uses import UnusedReason
from resumerge.tensors import Stored, stored_in

EXPERTS, NUMBER = 3, 1
GATE, DOWN = (INNER, HIDDEN), (HIDDEN, INNER)
RECIPE = f"merge_method: passthrough\nextract_expert: {NUMBER}\nmodels: [{{model: m}}]\n"


def mixture(
    kind: str = "qwen3_moe",
    name: str = "m",
    *,
    others: Iterable[Stored] = (),
    without: Iterable[str] = (),
    config: Mapping[str, Any] | None = None,
    layers: int = 2,
) -> Source:
    """Return a mixture whose experts have matrices of their own, with the arguments of `llama`."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (TOKENS, HIDDEN)}
    mlp, gate, up, down = "mlp", "gate_proj", "up_proj", "down_proj"
    if kind == "mixtral":
        mlp, gate, up, down = "block_sparse_moe", "w1", "w3", "w2"
    for layer in range(layers):
        at = f"model.layers.{layer}"
        shapes[f"{at}.input_layernorm.weight"] = (HIDDEN,)
        for p, rows in ATTENTION.items():
            shapes[f"{at}.self_attn.{p}_proj.weight"] = (rows, HIDDEN)
            if kind == "qwen2_moe" and p != "o":
                shapes[f"{at}.self_attn.{p}_proj.bias"] = (rows,)
        shapes[f"{at}.{mlp}.gate.weight"] = (EXPERTS, HIDDEN)
        for number in range(EXPERTS):
            for matrix, shape in ((gate, GATE), (up, GATE), (down, DOWN)):
                shapes[f"{at}.{mlp}.experts.{number}.{matrix}.weight"] = shape
        if kind == "qwen2_moe":
            for matrix, shape in ((gate, GATE), (up, GATE), (down, DOWN)):
                shapes[f"{at}.mlp.shared_expert.{matrix}.weight"] = shape
            shapes[f"{at}.mlp.shared_expert_gate.weight"] = (1, HIDDEN)
    shapes |= {"model.norm.weight": (HIDDEN,), "lm_head.weight": (TOKENS, HIDDEN)}
    facts = {
        "model_type": kind,
        "hidden_size": HIDDEN,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEYS,
        "num_experts": EXPERTS,
        DENSE[kind].size if kind in DENSE else "intermediate_size": INNER,
        **(config or {}),
    }
    own = [tensor(of, shape) for of, shape in shapes.items()]
    given = {each.name for each in (*own, *others)}
    dense = [of for of in llama(name, layers).tensors if of not in given]
    return llama(name, layers, others=[*own, *others], without=[*dense, *without], config=facts)


def extracted(source: Source, recipe: str = RECIPE) -> Plan:
    return plan(recipe, source)


def origins(found: Plan) -> dict[str, str]:
    """Return the name in the mixture of each tensor that is written."""
    return {unit.name: next(stored_in(unit.expression)).name for unit in found.units}


@pytest.mark.parametrize("kind", ["mixtral", "qwen2_moe", "qwen3_moe"])
def test_its_mlps_are_the_experts_and_the_rest_is_the_mixtures(kind: str) -> None:
    """The dense model has no place for the router, other experts and shared experts."""
    source = mixture(kind)
    found = extracted(source)
    mlp, names = ("block_sparse_moe", "w1 w3 w2") if kind == "mixtral" else ("mlp", "")
    expected = {}
    for layer in range(2):
        at = f"model.layers.{layer}"
        theirs = names.split() or ["gate_proj", "up_proj", "down_proj"]
        for own, name in zip(("gate_proj", "up_proj", "down_proj"), theirs):
            expected[f"{at}.mlp.{own}.weight"] = f"{at}.{mlp}.experts.{NUMBER}.{name}.weight"
    expected |= {n: n for n in source.tensors if ".mlp." not in n and "moe" not in n}
    assert origins(found) == expected
    told = {left.tensor.name: left.reason for left in found.left_out}
    assert told.keys() == source.tensors.keys() - {*expected.values()}
    for name, reason in told.items():
        chosen = UnusedReason.NOT_CHOSEN if ".experts." in name else UnusedReason.NO_PLACE
        assert reason is chosen, name
    shared = "m has shared experts, which a dense model lacks"
    assert found.notes.count(shared) == (kind == "qwen2_moe")


def test_biases_of_its_matrices_are_its_own() -> None:
    at = "model.layers.{}.mlp.experts.{}.up_proj.bias"
    every = [(layer, number) for layer in range(2) for number in range(EXPERTS)]
    found = extracted(mixture(others=[tensor(at.format(*each), (INNER,)) for each in every]))
    assert origins(found)["model.layers.1.mlp.up_proj.bias"] == at.format(1, NUMBER)


def test_it_is_the_expert_of_packed_tensors_too() -> None:
    packed = [
        tensor(f"model.layers.{layer}.mlp.experts.{name}", shape)
        for layer in range(2)
        for name, shape in (
            ("gate_up_proj", (EXPERTS, 2 * INNER, HIDDEN)),
            ("down_proj", (EXPERTS, HIDDEN, INNER)),
        )
    ]
    apart = [name for name in mixture().tensors if ".experts." in name]
    source = mixture(others=packed, without=apart)
    made = units(extracted(source))
    at = "model.layers.1.mlp"
    whole = source.tensors[f"{at}.experts.gate_up_proj"]
    assert isinstance(whole, Stored)
    for number, name in enumerate(("gate_proj", "up_proj")):
        [read] = stored_in(made[f"{at}.{name}.weight"].expression)
        assert read.offset == whole.offset + 4 * INNER * HIDDEN * (2 * NUMBER + number)
    assert made[f"{at}.down_proj.weight"].shape == DOWN


CONFIG = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 7,
    "rope_theta": 5.0,
    "auto_map_of_mine": 1,
}
OF_EXPERTS = {
    "moe_intermediate_size": 9,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "n_routed_experts": 4,
    "router_aux_loss_coef": 0.1,
    "output_router_logits": True,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "auto_map": {"AutoModel": "x"},
    "first_k_dense_replace": 0,
    "scoring_func": "softmax",
    "topk_group": 1,
    "n_group": 1,
    "aux_loss_alpha": 0.1,
    "seq_aux": True,
    "moe_layer_freq": 1,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "mixtral": {
        "model_type": "mistral",
        "architectures": ["MistralForCausalLM"],
        "intermediate_size": 7,
        "rms_norm_eps": 1e-5,
        "sliding_window": None,
    },
    "qwen2_moe": {
        "model_type": "qwen2",
        "architectures": ["Qwen2ForCausalLM"],
        "intermediate_size": 9,
        "num_hidden_layers": 24,
        "num_key_value_heads": 16,
    },
    "qwen3_moe": {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "intermediate_size": 9,
        "num_hidden_layers": 24,
        "num_key_value_heads": 4,
        "head_dim": 16,
    },
    "granitemoe": {
        "model_type": "granite",
        "architectures": ["GraniteForCausalLM"],
        "intermediate_size": 7,
    },
    "deepseek": {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "intermediate_size": 9,
    },
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_its_config_has_nothing_of_experts_and_says_what_the_mixture_means(kind: str) -> None:
    stated = {"model_type": kind, "architectures": ["x"], **CONFIG, **OF_EXPERTS, "qkv_bias": True}
    assert dense_config(stated) == {**CONFIG, **CONFIGS[kind]}


def test_what_a_config_leaves_out_is_what_the_mixture_means() -> None:
    """The head size of a dense qwen3 would be 128."""
    assert dense_config({"model_type": "mixtral"})["rope_theta"] == 1e6
    assert dense_config({"model_type": "qwen2_moe"})["num_attention_heads"] == 16
    assert dense_config({"model_type": "qwen2_moe"})["hidden_size"] == 2048
    assert dense_config({"model_type": "qwen3_moe"})["head_dim"] == 2048 // 32
    assert dense_config({"model_type": "qwen3_moe", "head_dim": 5})["head_dim"] == 5
    assert dense_config({"model_type": "qwen3_moe", "head_dim": None})["head_dim"] == 64
    assert "head_dim" not in dense_config({"model_type": "qwen2_moe"})
    only = {"model_type": "qwen3_moe", "intermediate_size": 3}
    assert dense_config(only)["intermediate_size"] == 3


def problem_of(source: Source, recipe: str = RECIPE) -> Problem:
    with pytest.raises(InputError) as refused:
        extracted(source, recipe)
    [problem] = refused.value.problems
    assert problem.path == "extract_expert"
    return problem


def test_what_is_no_such_mixture_is_refused() -> None:
    problem = problem_of(replace(mixture(), config={"model_type": "olmoe"}))
    assert problem.found == "model_type olmoe" and "qwen3_moe (to qwen3)" in problem.expected
    assert problem_of(replace(mixture(), config={})).found == "a model without config.json"


def test_an_expert_that_it_does_not_have_is_refused() -> None:
    for number in (EXPERTS, EXPERTS + 7):
        problem = problem_of(mixture(), RECIPE.replace(f"expert: {NUMBER}", f"expert: {number}"))
        assert problem.expected == f"a number from 0 to {EXPERTS - 1}"
        assert problem.found == str(number)
    for number in (0, EXPERTS - 1):
        extracted(mixture(), RECIPE.replace(f"expert: {NUMBER}", f"expert: {number}"))
    none = mixture(without=[name for name in mixture().tensors if ".experts." in name])
    assert problem_of(none).expected == "a model with experts"


@pytest.mark.parametrize(
    "further",
    [
        {f"mlp.experts.{NUMBER}.scale": (1,)},
        {f"mlp.{name}put_linear.weight": (EXPERTS + len(name), 2, 2) for name in ("in", "out")},
    ],
)
def test_what_experts_have_besides_their_matrices_is_not_lost(
    further: dict[str, tuple[int, ...]],
) -> None:
    """Other tensors of experts are refused, under any of the names that packed tensors have."""
    others = [
        tensor(f"model.layers.{layer}.{rest}", shape)
        for rest, shape in further.items()
        for layer in range(2)
    ]
    problem = problem_of(mixture(others=others))
    assert problem.what == f"{len(others)} tensors of m would be lost"
    assert problem.found == ", ".join(each.name for each in others)


def test_what_its_file_leaves_out_is_told_as_well() -> None:
    unused = LeftOut(tensor("model.layers.0.mlp.scale", (1,)), UnusedReason.QUANTISATION)
    assert unused in extracted(replace(mixture(), left_out=(unused,))).left_out


AT = "model.layers.1"


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("qwen3_moe", f"{AT}.mlp.experts.{NUMBER}.up_proj.weight"),
        ("qwen3_moe", f"{AT}.self_attn.o_proj.weight"),
        ("qwen3_moe", f"{AT}.input_layernorm.weight"),
        ("qwen2_moe", f"{AT}.self_attn.k_proj.bias"),
    ],
)
def test_a_layer_that_lacks_what_another_has_is_refused(kind: str, missing: str) -> None:
    problem = problem_of(mixture(kind, without=[missing]))
    assert problem.found == f"no {missing.replace(f'experts.{NUMBER}.', '')}"


def test_what_every_layer_lacks_is_refused_where_a_dense_model_needs_it() -> None:
    both = [f"model.layers.{n}.self_attn.v_proj.bias" for n in range(2)]
    assert problem_of(mixture("qwen2_moe", without=both)).found == f"no {', '.join(both)}"
    ups = [f"model.layers.{n}.mlp.experts.{NUMBER}.up_proj.weight" for n in range(2)]
    assert "mlp.up_proj.weight" in str(problem_of(mixture(without=ups)).found)
    extracted(mixture("qwen3_moe"))  # whose attention needs no bias


def test_layers_that_its_config_counts_and_that_are_missing_are_refused() -> None:
    problem = problem_of(mixture(config={"num_hidden_layers": 3}))
    assert (problem.expected, problem.found) == ("3 layers, each with the same tensors", "2 layers")
    uncounted = mixture("mixtral", config={"num_hidden_layers": None})
    assert extracted(uncounted).units


def test_what_corrects_a_router_has_no_place_either() -> None:
    others = [
        tensor(f"model.layers.{layer}.mlp.{name}e_score_correction_bias", (EXPERTS,))
        for layer, name in enumerate(("gate.", ""))
    ]
    left_out = {
        left.tensor.name: left.reason for left in extracted(mixture(others=others)).left_out
    }
    assert all(left_out[each.name] is UnusedReason.NO_PLACE for each in others)


def test_a_layer_that_is_dense_in_the_mixture_has_to_have_the_size_of_an_expert() -> None:
    def with_dense(rows: int) -> Source:
        own = {"gate": (rows, HIDDEN), "up": (rows, HIDDEN), "down": (HIDDEN, rows)}
        dense = [tensor(f"{AT}.mlp.{p}_proj.weight", shape) for p, shape in own.items()]
        apart = [name for name in mixture().tensors if name.startswith(f"{AT}.mlp.")]
        return mixture(others=dense, without=apart)

    assert f"{AT}.mlp.up_proj.weight" in origins(extracted(with_dense(INNER)))
    problem = problem_of(with_dense(INNER + 1))
    assert problem.what == "The MLPs of m have several sizes"
    assert problem.found == f"{INNER + 1} in {AT}.mlp.gate_proj.weight"


def test_every_model_is_its_own_expert_and_every_problem_is_told() -> None:
    recipe = f"extract_expert: 2\n{LINEAR}"
    found = plan(recipe, mixture("mixtral", "a"), mixture("mixtral", "b"))
    [unit] = [unit for unit in found.units if unit.name == f"{AT}.mlp.up_proj.weight"]
    read = {(str(found.sources[s.source].ref), s.name) for s in stored_in(unit.expression)}
    theirs = f"{AT}.block_sparse_moe.experts.2.w3.weight"
    assert read == {("a", theirs), ("b", theirs)}
    shared = plan(recipe, mixture("qwen2_moe", "a"), mixture("qwen2_moe", "b")).notes
    assert [note[0] for note in shared if "shared experts, which" in note] == ["a", "b"]
    cut = [mixture(name=name, without=[f"{AT}.self_attn.o_proj.weight"]) for name in "ab"]
    with pytest.raises(InputError) as refused:
        plan(recipe, *cut)
    assert [problem.what for problem in refused.value.problems] == [
        f"The dense model of {name} would be incomplete" for name in "ab"
    ]
