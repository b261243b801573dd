"""Promise: the plan of a mixture has the config of its base, its shards, notes and accounts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from made_up_plans import llama, tensor

from resumerge.options import SHARD_SIZE
from resumerge.planning import Plan, make_plan
from resumerge.recipe import parse_recipe
from resumerge.sources.left_out import LeftOut
from resumerge.sources.types import Source
from resumerge.tensor_uses import UnusedReason
from resumerge.tokenizers.required import Tokenizers
from resumerge.tokenizers.vocabulary import Vocabulary

RECIPE = "base_model: b\ngate_mode: random\nexperts: [{source_model: a}, {source_model: c}]\n"
NORM = "model.norm.weight"
MLP = [(f"mlp.{name}_proj.weight", (4, 4)) for name in ("gate", "up", "down")]
ATTENTION = [(f"self_attn.{name}_proj.weight", (4, 4)) for name in "qkvo"]
NORMS = [(f"{name}_layernorm.weight", (4,)) for name in ("input", "post_attention")]
CONFIG = {"hidden_size": 4, "intermediate_size": 4, "num_attention_heads": 1}


def model(name: str, **config: Any) -> Source:
    parts = [*MLP, *ATTENTION, *NORMS]
    own = [tensor(f"model.layers.{n}.{rest}", shape) for n in range(2) for rest, shape in parts]
    config = {**CONFIG, "architectures": ["LlamaForCausalLM"], **config}
    return llama(name, 2, others=own, config=config)


def planned(shard_size: int | None = 1 << 30, *, seed: int = 3, **of_base: Any) -> Plan:
    recipe = parse_recipe(RECIPE)
    sources = {
        ref: replace(model(ref.name, **(of_base if ref.name == "b" else {})), ref=ref).numbered(n)
        for n, ref in enumerate(sorted(recipe.models, key=str))
    }
    base = next(ref for ref in sources if ref.name == "b")
    left = LeftOut(sources[base].tensors[NORM], UnusedReason.NOT_LOADED)
    sources[base] = replace(sources[base], left_out=(left,))
    vocabulary = Vocabulary(sources[base], "Unigram", {"x": 0}, {}, (), "digest of b")
    known = Tokenizers({base: vocabulary})
    return make_plan(recipe, sources, known, seed=seed, shard_size=shard_size)


def test_the_base_gives_the_config_and_the_tokenizer() -> None:
    found = planned()
    assert found.reference == 1 and found.reference_model.ref.name == "b"
    assert found.layers.counts == {"model.layers": 2} and found.layer_maps == ()
    assert found.tokenizers == {"b": "digest of b"}
    assert found.mixture is not None and found.method == found.mixture.architecture
    assert found.seed == 3
    assert [source.ref.name for source in found.sources] == ["a", "b", "c"]


def test_what_its_models_left_out_and_what_it_leaves_out_is_told() -> None:
    reasons = {(each.tensor.name, each.reason) for each in planned().left_out}
    assert (NORM, UnusedReason.NOT_LOADED) in reasons
    assert ("model.layers.0.mlp.up_proj.weight", UnusedReason.FROM_ANOTHER) in reasons


def test_its_shards_have_the_size_that_is_asked_for() -> None:
    found = planned(200)
    assert found.shard_size == 200 and len(found.shards) > 3
    assert planned(None).shard_size == SHARD_SIZE and len(planned(None).shards) == 1


def test_a_config_that_says_quantised_is_noted_once() -> None:
    found = planned(quantization_config={"quant_method": "gptq"})
    [note] = [each for each in found.notes if "says that its weights are quantised" in each]
    assert "of b" in note and not any("quantised" in each for each in planned().notes)
    assert len(set(found.notes)) == len(found.notes)
