"""Promise: a mixture has every tensor that its architecture names, of the model that gives it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from dense_headers import ATTENTION, BASE, HIDDEN, INNER, TOKENS, dense, made_of, mixture_of
from made_up_plans import tensor, units

from resumerge.errors import InputError, Problem
from resumerge.experts.upcycling.architectures import ARCHITECTURES
from resumerge.planning import Plan
from resumerge.planning.plan import Unit
from resumerge.tensor_uses import UnusedReason
from resumerge.tensors import Merged, Rounded, Sliced
from resumerge.tensors.generated import Drawn, Filled

SHARED = "shared_experts: [{source_model: c}]\n"
NORMS = ["input_layernorm.weight", "post_attention_layernorm.weight"]
WEIGHTS = [f"self_attn.{p}_proj.weight" for p in "qkvo"]
BIASES = [f"self_attn.{p}_proj.bias" for p in "qkvo"]
W1, W2 = (INNER, HIDDEN), (HIDDEN, INNER)
PACKED = {
    "mlp.experts.gate_up_proj": ((2, 2 * INNER, HIDDEN), "a:gate a:up b:gate b:up"),
    "mlp.experts.down_proj": ((2, HIDDEN, INNER), "a:down b:down"),
}
SEPARATE = {
    f"mlp.experts.{number}.{part}_proj.weight": (W2 if part == "down" else W1, f"{model}:{part}")
    for number, model in enumerate("ab")
    for part in ("gate", "up", "down")
}
OF_MIXTRAL = {
    f"block_sparse_moe.experts.{number}.{name}.weight": (shape, f"{model}:{part}")
    for number, model in enumerate("ab")
    for name, part, shape in (("w1", "gate", W1), ("w3", "up", W1), ("w2", "down", W2))
}


def of_shared(name: str) -> dict[str, tuple[tuple[int, ...], str]]:
    return {
        f"mlp.{name}.{part}_proj.weight": (W2 if part == "down" else W1, f"c:{part}")
        for part in ("gate", "up", "down")
    }


def of_shared_gate(name: str) -> dict[str, tuple[tuple[int, ...], str]]:
    return {"mlp.gate.weight": ((2, HIDDEN), ""), name: ((1, HIDDEN), "")}


ROUTER = {"mlp.gate.weight": ((2, HIDDEN), "")}
QWEN = of_shared_gate("mlp.shared_expert_gate.weight")
LAYERS: dict[tuple[str, str], tuple[list[str], dict[str, tuple[tuple[int, ...], str]]]] = {
    ("llama", ""): ([], {"block_sparse_moe.gate.weight": ((2, HIDDEN), ""), **OF_MIXTRAL}),
    ("mistral", "architecture: MIX\nexpert_layout: packed\n"): ([], {**ROUTER, **PACKED}),
    ("llama", f"architecture: deepseek\n{SHARED}"): (
        [],
        {**ROUTER, **SEPARATE, **of_shared("shared_experts")},
    ),
    ("mistral", "architecture: deepseek\n"): ([], {**ROUTER, **SEPARATE}),
    ("qwen2", SHARED): (BIASES[:3], {**QWEN, **SEPARATE, **of_shared("shared_expert")}),
    ("qwen2", f"expert_layout: packed\n{SHARED}"): (
        BIASES[:3],
        {**QWEN, **PACKED, **of_shared("shared_expert")},
    ),
    ("qwen3", ""): (
        ["self_attn.q_norm.weight", "self_attn.k_norm.weight"],
        {**ROUTER, **SEPARATE},
    ),
}
"""By the models' type and what the recipe says, a layer's tensors: those of the base besides the
usual ones, and the others with shape and origin."""


def origin(found: Plan, unit: Unit) -> str:
    made = (each.split(":") for each in made_of(found, unit))
    return " ".join(f"{model}:{name.split('.')[-2].split('_')[0]}" for model, name in made)


@pytest.mark.parametrize(("kind", "further"), LAYERS)
def test_each_tensor_has_its_name_and_shape_and_is_made_of_its_models(
    kind: str, further: str
) -> None:
    """The plan has the tensors in the order of a forward pass."""
    found = mixture_of(BASE + further, kind, c=dense("c", kind))
    of_base, others = LAYERS[kind, further]
    expected: list[tuple[str, tuple[int, ...], str]] = []
    for at in ("model.layers.0", "model.layers.1"):
        for name in [*NORMS, *WEIGHTS, *of_base]:
            shape = found.sources[0].tensors[f"{at}.{name}"].shape
            expected.append((f"{at}.{name}", shape, f"base:{name.split('.')[-2].split('_')[0]}"))
        expected += [(f"{at}.{name}", *each) for name, each in others.items()]
    embedding, *of_layers, norm, head = (
        (unit.name, unit.shape, origin(found, unit)) for unit in found.units
    )
    assert embedding == ("model.embed_tokens.weight", (TOKENS, HIDDEN), "base:embed")
    assert of_layers == expected
    assert (norm, head) == (
        ("model.norm.weight", (HIDDEN,), "base:norm"),
        ("lm_head.weight", (TOKENS, HIDDEN), "base:lm"),
    )
    for unit in found.units:
        layer = unit.name.split(".")[2] if ".layers." in unit.name else ""
        assert all(f".layers.{layer}." in name for name in made_of(found, unit) if layer)
        assert unit.dtype == "F32"


DENSE = {
    "vocab_size": TOKENS,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "hidden_act": "gelu",
    "rms_norm_eps": 1e-6,
    "initializer_range": 0.02,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
    "use_cache": True,
    "rope_theta": 10000.0,
    "max_position_embeddings": 99,
}
"""What the mixture has of its base: what that says, and what it leaves out."""
LOSS = {"output_router_logits": False, "router_aux_loss_coef": 0.001}
ENDS = {"bos_token_id": 1, "eos_token_id": 2}
CODE = "deepseek-ai/deepseek-moe-16b-base--"
CONFIGS: dict[tuple[str, str], dict[str, Any]] = {
    ("llama", "experts_per_token: 1\n"): {
        **ENDS,
        **LOSS,
        "model_type": "mixtral",
        "architectures": ["MixtralForCausalLM"],
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
        "sliding_window": None,
        "router_jitter_noise": 0.0,
    },
    ("llama", f"architecture: deepseek\n{SHARED}"): {
        **ENDS,
        "model_type": "deepseek",
        "architectures": ["DeepseekForCausalLM"],
        "n_routed_experts": 2,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 0,
        "moe_layer_freq": 1,
        "scoring_func": "softmax",
        "norm_topk_prob": True,
        "moe_intermediate_size": INNER,
        "auto_map": {
            "AutoConfig": f"{CODE}configuration_deepseek.DeepseekConfig",
            "AutoModel": f"{CODE}modeling_deepseek.DeepseekModel",
            "AutoModelForCausalLM": f"{CODE}modeling_deepseek.DeepseekForCausalLM",
        },
    },
    ("qwen2", f"experts_per_token: 1\n{SHARED}"): {
        **LOSS,
        "model_type": "qwen2_moe",
        "architectures": ["Qwen2MoeForCausalLM"],
        "num_experts": 2,
        "num_experts_per_tok": 1,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
        "qkv_bias": True,
        "moe_intermediate_size": INNER,
        "shared_expert_intermediate_size": INNER,
        "layer_types": ["full_attention"] * 2,
        "sliding_window": None,
        "use_sliding_window": False,
        "max_window_layers": 28,
    },
    ("qwen3", "experts_per_token: 1\n"): {
        **LOSS,
        "model_type": "qwen3_moe",
        "architectures": ["Qwen3MoeForCausalLM"],
        "num_experts": 2,
        "num_experts_per_tok": 1,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
        "moe_intermediate_size": INNER,
        "head_dim": 2,
    },
}


@pytest.mark.parametrize(("kind", "further"), CONFIGS)
def test_its_config_is_the_bases_with_the_fields_of_its_architecture(
    kind: str, further: str
) -> None:
    """The base's `auto_map` is left out: its code does not describe the mixture."""
    stated = {
        "auto_map": {"AutoModel": "mine.Model"},
        "hidden_act": "gelu",
        "max_position_embeddings": 99,
        "sliding_window": 7,
    }
    base = dense("base", kind, config=stated)
    found = mixture_of(BASE + further, kind, base, c=dense("c", kind))
    assert found.mixture is not None
    window = {"sliding_window": 7} if kind in ("qwen3",) or "deepseek" in further else {}
    assert found.mixture.config == {**DENSE, **window, **CONFIGS[kind, further]}


def test_each_architecture_has_its_layers_and_its_config_here() -> None:
    def made(kind: str, further: str) -> str:
        found = mixture_of(BASE + further, kind, c=dense("c", kind))
        assert found.mixture is not None
        return str(found.mixture.config["model_type"])

    architectures = {architecture.model_type for architecture in ARCHITECTURES}
    assert {made(*case) for case in LAYERS} == architectures
    assert {made(*case) for case in CONFIGS} == architectures


def test_a_window_of_the_base_and_no_shared_expert_are_written() -> None:
    base = dense("base", "qwen2", config={"max_window_layers": 3})
    found = mixture_of(BASE + SHARED, "qwen2", base, c=dense("c", "qwen2"))
    assert found.mixture is not None and found.mixture.config["max_window_layers"] == 3
    found = mixture_of(BASE + "architecture: deepseek\n")
    assert found.mixture is not None and found.mixture.config["n_shared_experts"] is None


def test_biases_that_the_base_lacks_are_zeros() -> None:
    """A bias that the base has is copied."""
    bias = "model.layers.1.self_attn.k_proj.bias"
    base = dense("base", others=[tensor(bias, (ATTENTION["k"],))])
    qwen = f"{BASE}architecture: qwen\n{SHARED}"
    found = mixture_of(qwen + "dtype: bfloat16\n", "llama", base, c=dense("c"))
    made = units(found)
    assert made_of(found, made[bias]) == [f"base:{bias}"]
    for layer, which in ((0, "qkv"), (1, "qv")):
        for p in which:
            name = f"model.layers.{layer}.self_attn.{p}_proj.bias"
            assert made[name].expression == Filled(name, "BF16", (ATTENTION[p],), 0.0)
    unstated = units(mixture_of(qwen, c=dense("c")))
    assert unstated["model.layers.0.self_attn.q_proj.bias"].dtype == "F32"


@pytest.mark.parametrize(
    ("further", "config", "own", "expected"),
    [
        ("", {}, ("F16", "BF16"), "F16 F16 BF16"),
        ("", {"dtype": "float32"}, ("F16", "BF16"), "F32 F32 F32"),
        ("", {"torch_dtype": "torch.bfloat16"}, ("F16", "F16"), "BF16 BF16 BF16"),
        ("", {"dtype": "float32", "torch_dtype": "float16"}, ("F16", "BF16"), "F32 F32 F32"),
        (
            "dtype: float16\n",
            {"dtype": "float32", "torch_dtype": "bfloat16"},
            ("F32", "BF16"),
            "F16 F16 F16",
        ),
    ],
)
def test_its_dtype_is_the_recipes_or_the_bases_or_each_tensors_own(
    further: str, config: dict[str, str], own: tuple[str, str], expected: str
) -> None:
    base = dense("base", dtype=own[0], config=config)
    experts = {name: dense(name, dtype=own[1]) for name in "ab"}
    made = units(mixture_of(BASE + further, "llama", base, **experts))
    names = ("self_attn.o_proj", "block_sparse_moe.gate", "block_sparse_moe.experts.1.w2")
    assert " ".join(made[f"model.layers.1.{name}.weight"].dtype for name in names) == expected


@pytest.mark.parametrize(
    ("dtypes", "expected"), [(("BF16", "BF16"), "BF16"), (("BF16", "F16"), "F32")]
)
def test_experts_of_several_dtypes_are_packed_in_float32(
    dtypes: tuple[str, str], expected: str
) -> None:
    experts = {name: dense(name, dtype=dtype) for name, dtype in zip("ab", dtypes)}
    found = mixture_of(BASE + "expert_layout: packed\n", "llama", None, **experts)
    packed = units(found)["model.layers.0.mlp.experts.gate_up_proj"]
    assert packed.dtype == packed.expression.dtype == expected
    assert {part.dtype for part in packed.expression.children()} == {expected}


@pytest.mark.parametrize(
    ("kind", "further"), [("llama", "architecture: deepseek\n"), ("qwen3", "")]
)
def test_biases_that_an_architecture_may_have_are_the_bases(kind: str, further: str) -> None:
    bias = "model.layers.1.self_attn.o_proj.bias"
    base = dense("base", kind, others=[tensor(bias, (HIDDEN,))])
    found = mixture_of(BASE + further, kind, base)
    assert made_of(found, units(found)[bias]) == [f"base:{bias}"]


def test_an_expert_may_have_its_names_without_a_prefix() -> None:
    own = dense("a")
    bare = {name.removeprefix("model."): t for name, t in own.tensors.items()}
    tensors = {name: replace(t, name=name) for name, t in bare.items()}  # type: ignore[type-var]
    found = mixture_of(BASE, a=replace(own, tensors=tensors))
    made = units(found)["model.layers.1.block_sparse_moe.experts.0.w3.weight"]
    assert made_of(found, made) == ["a:layers.1.mlp.up_proj.weight"]


def test_a_tensor_of_whole_numbers_stays_as_it_is() -> None:
    """The recipe's dtype holds for floats only."""
    name = "model.layers.0.input_layernorm.weight"
    base = dense("base", others=[tensor(name, (HIDDEN,), "I64")])
    made = units(mixture_of(BASE + "dtype: bfloat16\n", "llama", base))
    assert made[name].dtype == "I64" and made["model.norm.weight"].dtype == "BF16"


def test_noise_is_added_and_what_comes_out_of_an_expert_is_scaled() -> None:
    recipe = BASE.replace("model: b}", "model: b, noise_scale: 0.25, residual_scale: 0.5}")
    recipe = recipe.replace("model: a}", "model: a, residual_scale: 2}")
    found = mixture_of(recipe + "dtype: bfloat16\n")
    made = {
        unit.name.removeprefix("model.layers.1.block_sparse_moe.experts."): unit.expression
        for unit in found.units
        if unit.name.startswith("model.layers.1.block_sparse_moe.experts.")
    }
    told = {}
    for name, each in made.items():
        if isinstance(each, Merged):
            [own, *noise] = each.operands
            keys = [drawn.key for drawn in noise if isinstance(drawn, Drawn)]
            assert all(drawn.shape == own.shape == each.shape for drawn in noise)
            assert (each.method, each.dtype, each.params) == (
                "linear",
                "BF16",
                {"normalize": False},
            )
            assert (each.seed, each.base) == (5, None)
            assert each.models == ("ab"[int(name[0])], "noise")[: 1 + len(noise)]
            told[name.removesuffix(".weight")] = [p["weight"] for p in each.per_operand], keys
        else:
            assert isinstance(each, Rounded)
    assert told == {
        "0.w2": ([2.0], []),
        "1.w1": ([1.0, 0.25], ["5/noise/experts[1]/1/gate_proj"]),
        "1.w3": ([1.0, 0.25], ["5/noise/experts[1]/1/up_proj"]),
        "1.w2": ([0.5, 0.125], ["5/noise/experts[1]/1/down_proj"]),
    }


@pytest.mark.parametrize(("mode", "bound"), [("random", None), ("uniform_random", HIDDEN**-0.5)])
def test_random_gates_are_drawn_for_each_layer_the_shared_ones_last(
    mode: str, bound: float | None
) -> None:
    recipe = BASE.replace("random", mode) + SHARED
    made = units(mixture_of(recipe, "qwen2", c=dense("c", "qwen2")))
    for layer in range(2):
        drawn = Drawn.of("gates", (3, HIDDEN), f"5/gates/{layer}", bound)
        at = f"model.layers.{layer}.mlp"
        router = made[f"{at}.gate.weight"].expression
        shared = made[f"{at}.shared_expert_gate.weight"].expression
        assert isinstance(router, Sliced) and isinstance(shared, Sliced)
        assert (router.whole, router.first, router.shape) == (drawn, 0, (2, HIDDEN))
        assert (shared.whole, shared.first, shared.shape) == (drawn, 2 * HIDDEN, (1, HIDDEN))


def test_a_head_is_needed_unless_it_is_tied_and_written_if_it_is_there() -> None:
    headless = dense("base", without=["lm_head.weight"], config={"tie_word_embeddings": True})
    assert "lm_head.weight" not in units(mixture_of(BASE, base=headless))
    tied = dense("base", config={"tie_word_embeddings": True})
    assert "lm_head.weight" in units(mixture_of(BASE, base=tied))
    untied = replace(headless, config={**headless.config, "tie_word_embeddings": False})
    [problem] = problems(BASE, base=untied)
    assert (problem.path, problem.expected) == ("base_model", "lm_head.weight")


def problems(recipe: str, kind: str = "llama", **models: Any) -> list[Problem]:
    with pytest.raises(InputError) as refused:
        mixture_of(recipe, kind, **models)
    return refused.value.problems


def test_all_that_is_missing_is_told_at_once_in_the_order_of_the_recipe() -> None:
    up, norm = "model.layers.1.mlp.up_proj.weight", "model.layers.0.input_layernorm.weight"
    wide = tensor("model.layers.1.mlp.down_proj.weight", (HIDDEN, INNER + 1))
    coded = tensor("model.layers.1.mlp.gate_proj.weight", W1, "I8")
    recipe = BASE.replace("[{source_model: a}, ", "\n- {source_model: a}\n- ").replace("}]", "}")
    first, second, third = problems(
        recipe,
        base=dense("base", without=[norm]),
        a=dense("a", without=[up], others=[wide]),
        b=dense("b", others=[coded]),
    )[:3]
    assert (first.path, first.expected) == ("base_model", norm)
    assert (second.path, second.expected) == ("experts[0].source_model", up)
    assert third.path == "experts[0].source_model" and str([HIDDEN, INNER]) in third.expected
    *_, last = problems(recipe, base=dense("base"), b=dense("b", others=[coded]))
    assert last.path == "experts[1].source_model" and last.found.startswith("I8 with the shape")


def test_a_shared_expert_needs_its_matrices_too() -> None:
    up = "model.layers.1.mlp.up_proj.weight"
    [problem] = problems(BASE + SHARED, c=dense("c", without=[up]))
    assert (problem.path, problem.expected) == ("shared_experts[0].source_model", up)


def test_a_base_without_layers_is_refused() -> None:
    [problem] = problems(BASE, base=dense("base", layers=0))
    assert problem.path == "base_model" and problem.expected == "model.layers.0"


def test_a_base_that_its_config_does_not_describe_is_refused() -> None:
    [problem] = problems(BASE, base=dense("base", config={"vocab_size": TOKENS + 1}))
    assert problem.found == f"vocab_size: {TOKENS + 1}" and problem.path == "base_model"
    [problem] = problems(BASE, base=dense("base", config={"num_key_value_heads": None}))
    assert problem.found == "num_key_value_heads * head_dim: 8", "as many as the queries have"


def test_each_tensor_that_is_not_used_has_its_reason() -> None:
    """The reasons are layers that the base lacks, tensors of another model, and buffers."""
    inv = "model.layers.0.self_attn.rotary_emb.inv_freq"
    base = dense("base", others=[tensor(inv, (1,))])
    found = mixture_of(BASE + "dtype: bfloat16\n", base=base, b=dense("b", layers=3))
    told = {
        (str(found.sources[left.tensor.source].ref), left.tensor.name): left.reason
        for left in found.left_out
    }
    mlp, attention = ".mlp.up_proj.weight", ".self_attn.q_proj.weight"
    assert told.pop(("base", inv)) is UnusedReason.COMPUTED
    for model, name, reason in (
        ("base", f"model.layers.0{mlp}", UnusedReason.FROM_ANOTHER),
        ("a", f"model.layers.0{mlp}", None),
        ("a", f"model.layers.0{attention}", UnusedReason.FROM_ANOTHER),
        ("a", "model.norm.weight", UnusedReason.FROM_ANOTHER),
        ("base", "model.norm.weight", None),
        ("b", f"model.layers.1{attention}", UnusedReason.FROM_ANOTHER),
        ("b", f"model.layers.2{attention}", UnusedReason.NOT_CHOSEN),
        ("b", f"model.layers.2{mlp}", UnusedReason.NOT_CHOSEN),
    ):
        assert told.get((model, name)) is reason, (model, name)
    used = {name for unit in found.units for name in made_of(found, unit)}
    every = {f"{source.ref}:{name}" for source in found.sources for name in source.tensors}
    assert {f"{model}:{name}" for model, name in told} == every - used - {f"base:{inv}"}


def test_what_is_surprising_of_a_mixture_is_noted() -> None:
    assert mixture_of(BASE).notes == ("Mixtral with 2 experts, 2 for each token; gates: random",)
    three = BASE.replace("}]", "}, {source_model: a}]")
    assert mixture_of(three).notes[1:] == (
        "llama.cpp takes 2, 4, 8… experts, and the mixture has 3",
    )
    alike = "all experts are the same model: the mixture computes what it does, until trained"
    same = BASE.replace("source_model: b", "source_model: a")
    assert mixture_of(same).notes[1:] == (alike,)
    noisy = same.replace("a}]", "a, noise_scale: 0.1}]")
    assert mixture_of(noisy).notes[1:] == ()
    first = same.replace("[{source_model: a}", "[{source_model: a, noise_scale: 0.1}")
    assert mixture_of(first).notes[1:] == (alike,)
    deep = mixture_of(BASE, b=replace(dense("b", layers=3), notes=("b is odd",)))
    assert deep.notes == (
        "b is odd",
        "Mixtral with 2 experts, 2 for each token; gates: random",
        "b has more layers than the base: those after 2 are not used",
    )


@pytest.mark.parametrize(
    ("kind", "further", "architecture"),
    [
        ("llama", "", "Mixtral"),
        ("llama", SHARED, "DeepSeek MoE"),
        ("mistral", "architecture: Deep\n", "DeepSeek MoE"),
        ("mistral", f"architecture: qwen2_moe\n{SHARED}", "Qwen MoE"),
        ("llama", f"expert_layout: packed\n{SHARED}", "Qwen MoE"),
        ("qwen2", SHARED, "Qwen MoE"),
        ("qwen3", "", "Qwen3 MoE"),
        ("qwen3", "architecture: qwen\n", "Qwen3 MoE"),
        ("qwen3", "architecture: QWEN3_MOE\n", "Qwen3 MoE"),
    ],
)
def test_the_first_architecture_that_fits_is_made(
    kind: str, further: str, architecture: str
) -> None:
    found = mixture_of(BASE + further, kind, c=dense("c", kind))
    assert found.mixture is not None and found.mixture.architecture == architecture


def reasons(recipe: str, kind: str = "llama", **models: Any) -> dict[str, str]:
    [problem] = problems(recipe, kind, **models)
    assert problem.found is not None
    return dict(each.split(": ", 1) for each in problem.found.split(". "))


def test_architectures_are_refused_with_their_reasons() -> None:
    two = SHARED.replace("c}", "c}, {source_model: a}")
    told = reasons(BASE + two, c=dense("c"))
    assert told["Mixtral"] == "it has no shared experts, and the recipe has 2"
    assert told["DeepSeek MoE"] == "it has 0 or 1 shared expert, and the recipe has 2"
    assert told["Qwen MoE"] == "it has 1 shared expert, and the recipe has 2"
    assert told["Qwen3 MoE"].startswith("it is made of qwen3, but base is llama, a is llama, ")
    told = reasons(BASE, b=dense("b", "mistral"))
    alike = "all models must be of one type, but base is llama, a is llama, b is mistral"
    assert told["Mixtral"] == told["DeepSeek MoE"] == alike
    assert told["Qwen MoE"] == f"{alike}; it has 1 shared expert, and the recipe has 0"


def test_what_the_base_and_the_experts_mlps_have_needs_a_place() -> None:
    """Other tensors of an expert, and buffers that transformers computes, need no place."""
    norm, bias = "model.layers.1.self_attn.q_norm.weight", "model.layers.0.mlp.up_proj.bias"
    more, extra = tensor(norm, (2,)), tensor("model.extra.weight", (2,))
    inv = tensor("model.layers.0.self_attn.rotary_emb.inv_freq", (1,))
    found = mixture_of(BASE, a=dense("a", others=[more, extra, inv]))
    assert found.mixture is not None
    told = reasons(BASE, base=dense("base", others=[more, extra]))
    assert told["Mixtral"] == f"it has no place for model.extra.weight, {norm} of base"
    told = reasons(BASE, a=dense("a", others=[tensor(bias, (INNER,))]))
    assert told["Mixtral"] == f"it has no place for {bias} of a"


def test_an_architecture_that_nobody_knows_is_refused() -> None:
    [problem] = problems(BASE + "architecture: gpt\n")
    assert problem.what == "There is no output architecture 'gpt'"
    assert problem.path == "architecture" and problem.fix.endswith("or delete 'architecture'")
    [problem] = problems(BASE + SHARED + "architecture: qwen2\n", "qwen2", c=dense("c", "qwen2"))
    assert problem.what == "There is no output architecture 'qwen2'", "it is a dense one"
    [problem] = problems(BASE + "architecture: qwen\n")
    assert problem.what == "Qwen MoE and Qwen3 MoE cannot be made of these models"
    [problem] = problems(BASE, "gemma")
    assert problem.what == "No output architecture fits these models"
    assert problem.path == "experts" and "architecture'" not in problem.fix


PROMPTS = (
    BASE.replace("random", "cheap_embed")
    .replace("model: a", "model: a, positive_prompts: [x]")
    .replace("model: b}", "model: b, positive_prompts: [y]}")
)


def test_the_gate_of_a_shared_expert_needs_prompts_and_without_gate_it_has_none() -> None:
    told = reasons(PROMPTS + "architecture: qwen\n" + SHARED, c=dense("c"))
    assert told["Qwen MoE"] == "its shared expert has a gate: add positive_prompts to it"
    assert told["DeepSeek MoE"] == "it fits"
    prompted = SHARED.replace("}", ", positive_prompts: [z]}")
    told = reasons(PROMPTS + "architecture: deepseek\n" + prompted, c=dense("c"))
    assert told["DeepSeek MoE"] == "its shared expert has no gate: delete its prompts"
    assert told["Qwen MoE"] == "it fits"
    random = mixture_of(BASE + SHARED + "architecture: qwen\n", c=dense("c"))
    assert random.mixture is not None, "gates that are drawn need no prompts"
