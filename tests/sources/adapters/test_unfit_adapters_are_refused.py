"""An adapter that is not LoRA, or not for this model, is refused by name with what to do."""

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from merging import working_in
from peft import IA3Config, PromptTuningConfig, get_peft_model
from safetensors.torch import save_file
from tiny_models import LLAMA, llama_shapes, random_tensors, write_model
from transformers import LlamaConfig, LlamaForCausalLM

from resumerge.errors import InputError
from resumerge.recipe.invalid import InvalidValue
from resumerge.recipe.references import read_reference
from resumerge.sources import Source, open_source
from resumerge.sources.adapter_programs.config import UNMERGEABLE, parse_adapter_config
from resumerge.tensors import Adapted, stored_in

QUERY = "base_model.model.model.layers.0.self_attn.q_proj"
A, B = torch.ones(2, 16), torch.ones(16, 2)
PLAIN = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "base_model_name_or_path": "org/right"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_model(tmp_path / "base", random_tensors(llama_shapes(LLAMA), 0))
    return tmp_path


def adapted(folder: Path, tensors: dict[str, torch.Tensor] | None = None, **config: Any) -> Source:
    """Return the tiny model opened with an adapter of these tensors and settings."""
    adapter = folder / "adapter"
    adapter.mkdir(exist_ok=True)
    (adapter / "adapter_config.json").write_text(json.dumps({**PLAIN, **config}))
    default = {f"{QUERY}.lora_A.weight": A, f"{QUERY}.lora_B.weight": B}
    save_file(default if tensors is None else tensors, adapter / "adapter_model.safetensors")
    with working_in(folder):
        return open_source(read_reference("base+adapter"))


def refused(folder: Path, words: str, tensors: Any = None, **config: Any) -> None:
    with pytest.raises(InputError) as caught:
        adapted(folder, tensors, **config)
    message = str(caught.value)
    for part in words.split(" … "):
        assert part in message, message
    for problem in caught.value.problems:
        assert problem.where.startswith("adapter")
        assert problem.expected and problem.found and problem.fix
    assert len(message) < 3000


def test_the_adapter_that_the_others_are_made_from_is_taken(folder: Path) -> None:
    assert adapted(folder).kind == "lora"


def test_a_model_after_the_plus_is_no_adapter_to_be_renamed(folder: Path) -> None:
    write_model(folder / "other", random_tensors(llama_shapes(LLAMA), 1))
    with working_in(folder), pytest.raises(InputError) as caught:
        open_source(read_reference("base+other"))
    [problem] = caught.value.problems
    assert "weights of an adapter are missing" in problem.what
    assert "this is a model" in problem.fix and "rename" not in problem.fix


@pytest.mark.parametrize(
    ("text", "what"),
    [("base+", "no adapter after"), ("+adapter", "no model before"), ("a+b+c", "only one LoRA")],
)
def test_a_plus_has_a_model_before_it_and_an_adapter_after_it(text: str, what: str) -> None:
    with pytest.raises(InvalidValue, match=what):
        read_reference(text)


@pytest.mark.parametrize("bias", ["lm_head.bias", "final_logits_bias", "output.proj.bias"])
def test_more_tokens_than_a_bias_has_numbers(bias: str, folder: Path) -> None:
    """An adapter with more tokens does not fit a model whose bias has a number for each token."""
    tensors = random_tensors({**llama_shapes(LLAMA), bias: (LLAMA["vocab_size"],)}, 0)
    write_model(folder / "base", tensors)
    names = ["model.embed_tokens.weight", "lm_head.weight"]
    more = {f"base_model.model.{name}": torch.ones(52, 16) for name in names}
    refused(folder, f"does not fit the model … {bias} … 52 elements", more)
    write_model(folder / "base", random_tensors(llama_shapes(LLAMA), 0))
    assert adapted(folder, more).config["vocab_size"] == 52


@pytest.mark.parametrize("kind", ["IA3", "LOHA", "LOKR", "VERA", "ADALORA", "OFT", "BOFT"])
def test_other_types_of_weights(kind: str, folder: Path) -> None:
    refused(folder, f"{kind} adapters are not supported … merge_and_unload", peft_type=kind)


@pytest.mark.parametrize("kind", ["PREFIX_TUNING", "PROMPT_TUNING", "P_TUNING"])
def test_types_that_have_no_weights(kind: str, folder: Path) -> None:
    refused(
        folder, f"{kind} adapters are not supported … remove it from the recipe", peft_type=kind
    )


@pytest.mark.parametrize("option", UNMERGEABLE)
def test_options_that_are_not_done(option: str, folder: Path) -> None:
    refused(folder, f"{option}: null … merge_and_unload", **{option: [1]})


@pytest.mark.parametrize("start", ["pissa", "pissa_niter_4", "olora", "corda", "loftq", "lora_ga"])
def test_trained_on_a_changed_base(start: str, folder: Path) -> None:
    refused(
        folder,
        f"init_lora_weights: {start} … path_initial_model_for_weight_conversion",
        init_lora_weights=start,
    )


@pytest.mark.parametrize("start", [True, False, "gaussian", "eva", "orthogonal"])
def test_starts_that_leave_the_base_alone(start: object, folder: Path) -> None:
    adapted(folder, init_lora_weights=start)


@pytest.mark.parametrize(
    "config",
    [
        {"peft_type": None},
        {"peft_type": ["LORA"]},
        {"lora_alpha": "8"},
        {"lora_alpha": None},
        {"lora_alpha": float("nan")},
        {"lora_alpha": 10**400},
        {"lora_alpha": True},
        {"alpha_pattern": ["q_proj"]},
        {"alpha_pattern": {"q_proj": "3"}},
        {"alpha_pattern": {"(": 3}},
        {"alpha_pattern": {"(a+)+b": 3}},
        {"alpha_pattern": {"a*a*a*a*a*b": 3}},
        {"alpha_pattern": {"a" * 20 + "{9999999999999}": 3}},
        {"alpha_pattern": {"(?i)q_proj": 3}},
        {"alpha_pattern": {"(|)" * 60 + "zzz": 3}},
        {"alpha_pattern": {"((|)" * 30 + ")" * 30 + "zzz": 3}},
    ],
)
def test_settings_that_make_no_sense(config: dict[str, Any], folder: Path) -> None:
    refused(folder, "config is invalid", **config)


@pytest.mark.parametrize(
    "pattern",
    [
        "q_proj|k_proj|v_proj",
        rf"model\.layers\.({'|'.join(map(str, range(80)))})\.self_attn\.(q|k)_proj",
        r"layers\.(0|1|2|3)\..*(q|k)_pro.*",
        r"^model\.layers\.[0-9]+\.self_attn\.q_proj",
    ],
)
def test_patterns_of_real_adapters_are_taken(pattern: str) -> None:
    config = {**PLAIN, "alpha_pattern": {pattern: 12}}
    assert parse_adapter_config(config, "here").scale("model.layers.1.self_attn.q_proj", 4) == 3


def test_the_slowest_pattern_that_is_taken_gives_up_soon() -> None:
    slowest = [r".*.*.*(a|aa)b", "(|a)" * 16 + "b", r".*.*(|a|aa|aaa)b", "(|a|aa|aaa)" * 5 + "b"]
    config = {**PLAIN, "alpha_pattern": dict.fromkeys(slowest, 1)}
    found = parse_adapter_config(config, "here")
    began = time.process_time()
    assert found.scale("a." * 50, 4) == 1
    assert time.process_time() - began < 2


W = torch.ones(16, 16)
TENSORS: dict[str, tuple[str, dict[str, torch.Tensor]]] = {
    "no_b": ("lacks one of the two matrices", {f"{QUERY}.lora_A.weight": A}),
    "no_a": ("lacks one of the two matrices", {f"{QUERY}.lora_B.weight": B}),
    "another_module": (
        "a module that the model lacks … model.layers.9.q.weight in base … org/right",
        {"model.layers.9.q.lora_A.weight": A, "model.layers.9.q.lora_B.weight": B},
    ),
    "another_width": (
        "does not fit the model … [16, 16] … org/right",
        {f"{QUERY}.lora_A.weight": torch.ones(2, 17), f"{QUERY}.lora_B.weight": B},
    ),
    "another_rank": (
        "does not fit the model",
        {f"{QUERY}.lora_A.weight": torch.ones(3, 16), f"{QUERY}.lora_B.weight": B},
    ),
    "rank_zero": (
        "does not fit the model",
        {f"{QUERY}.lora_A.weight": torch.ones(0, 16), f"{QUERY}.lora_B.weight": torch.ones(16, 0)},
    ),
    "one_dimension": (
        "does not fit the model",
        {f"{QUERY}.lora_A.weight": torch.ones(16), f"{QUERY}.lora_B.weight": torch.ones(16)},
    ),
    "whole_numbers": (
        "floating-point",
        {f"{QUERY}.lora_A.weight": A.int(), f"{QUERY}.lora_B.weight": B},
    ),
    "a_norm": (
        "does not fit the model",
        {
            "model.norm.lora_A.weight": torch.ones(2, 16),
            "model.norm.lora_B.weight": torch.ones(1, 2),
        },
    ),
    "magnitudes_of_another_size": (
        "16 elements",
        {
            f"{QUERY}.lora_A.weight": A,
            f"{QUERY}.lora_B.weight": B,
            f"{QUERY}.lora_magnitude_vector": torch.ones(15),
        },
    ),
    "a_replacement_of_another_shape": (
        "does not fit the model … [16]",
        {"base_model.model.model.norm.weight": torch.ones(17)},
    ),
    "none": ("has no tensors", {}),
    "single_tokens": (
        "trainable_token_indices … 0 tokens and F32 [16, 16]",
        {"base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta": W},
    ),
    "unknown_lora_tensor": (
        "of an unknown kind",
        {f"{QUERY}.lora_diag.weight": torch.ones(2)},
    ),
    "embedding_as_linear": (
        "lacks one of the two",
        {f"{QUERY}.lora_A.weight": A, f"{QUERY}.lora_embedding_B": B},
    ),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_that_do_not_fit(name: str, folder: Path) -> None:
    words, tensors = TENSORS[name]
    refused(folder, words, tensors)


def test_a_module_that_is_missing_is_not_taken_for_one_of_a_like_name(folder: Path) -> None:
    """Names are only moved where no module has the name that it has in the file."""
    more = {"model.extra.side.weight": (16, 16)}
    write_model(folder / "base", random_tensors({**llama_shapes(LLAMA), **more}, 0))
    odd = {"other.side.lora_A.weight": A.clone(), "other.side.lora_B.weight": B.clone()}
    named = {f"{QUERY}.lora_A.weight": A, f"{QUERY}.lora_B.weight": B}
    refused(folder, "a module that the model lacks … other.side", {**odd, **named})
    refused(folder, "a module that the model lacks … other.side", {**named, **odd})


@pytest.mark.parametrize("prefix", ["layers.0", "model.model.layers.0", "other.layers.0"])
def test_a_prefix_that_a_file_has_and_the_adapter_has_not_is_found(
    prefix: str, folder: Path
) -> None:
    tensors = {f"{prefix}.self_attn.q_proj.lora_{x}.weight": m for x, m in (("A", A), ("B", B))}
    found = adapted(folder, tensors).tensors
    changed = [name for name, info in found.items() if isinstance(info, Adapted)]
    assert changed == ["model.layers.0.self_attn.q_proj.weight"]


def test_a_name_that_several_tensors_end_with_names_none(folder: Path) -> None:
    tensors = {f"self_attn.q_proj.lora_{x}.weight": m for x, m in (("A", A), ("B", B))}
    refused(folder, "a module that the model lacks … self_attn.q_proj", tensors)


def test_a_name_ends_with_whole_words_of_another(folder: Path) -> None:
    more = {"model.extra.inside.weight": (16, 16)}
    write_model(folder / "base", random_tensors({**llama_shapes(LLAMA), **more}, 0))
    tensors = {f"other.side.lora_{x}.weight": m for x, m in (("A", A), ("B", B))}
    refused(folder, "a module that the model lacks … other.side", tensors)


def test_whole_numbers_that_an_adapter_replaces_stay_as_they_are(folder: Path) -> None:
    ids = {"model.ids": torch.arange(3)}
    base = {**random_tensors(llama_shapes(LLAMA), 0), **ids}
    write_model(folder / "base", base)
    more = {f"{QUERY}.lora_A.weight": A, f"{QUERY}.lora_B.weight": B}
    found = adapted(
        folder, {**more, "base_model.model.model.ids": torch.ones(3, dtype=torch.int32)}
    )
    replaced = found.tensors["model.ids"]
    assert replaced.dtype == "I32" and not isinstance(replaced, Adapted)


def test_dora_without_magnitudes(folder: Path) -> None:
    refused(folder, "lacks the magnitude vector", use_dora=True)


def test_a_folder_that_is_no_adapter(folder: Path) -> None:
    with working_in(folder), pytest.raises(InputError) as error:
        open_source(read_reference("base+./base"))
    [problem] = error.value.problems
    assert "weights of an adapter are missing" in problem.what
    assert "this is a model" in problem.fix and "rename" not in problem.fix


def test_an_adapter_named_as_a_model_says_how_to_name_it(folder: Path) -> None:
    adapted(folder)
    with working_in(folder), pytest.raises(InputError, match=r"model\+adapter"):
        open_source(read_reference("adapter"))


@pytest.mark.parametrize("config", [IA3Config, PromptTuningConfig])
def test_what_peft_itself_saves_of_other_types(config: Any, folder: Path) -> None:
    settings_ = {"num_virtual_tokens": 3} if config is PromptTuningConfig else {}
    model = LlamaForCausalLM(LlamaConfig(**{k: v for k, v in LLAMA.items() if k != "dtype"}))
    adapter = get_peft_model(model, config(task_type="CAUSAL_LM", **settings_))
    adapter.save_pretrained(folder / "adapter")
    with working_in(folder), pytest.raises(InputError, match="adapters are not supported"):
        open_source(read_reference("base+adapter"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
KEYS = [*UNMERGEABLE, "peft_type", "lora_alpha", "alpha_pattern", "use_rslora", "use_dora", "r"]
KEYS += ["init_lora_weights", "fan_in_fan_out", "target_modules", "bias"]


@given(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), JSON))
def test_any_config_is_read_or_refused(config: dict[str, Any]) -> None:
    with suppress(InputError):
        found = parse_adapter_config({"peft_type": "LORA", **config}, "here")
        assert isinstance(found.scale("model.layers.0.self_attn.q_proj", 4), float)


@given(st.dictionaries(st.text(alphabet="ab.*+?()[]{}|\\^$1,", max_size=12), st.floats()))
def test_any_pattern_is_matched_or_refused(patterns: dict[str, float]) -> None:
    with suppress(InputError):
        found = parse_adapter_config({"peft_type": "LORA", "alpha_pattern": patterns}, "here")
        assert isinstance(found.scale("a" * 60, 4), float)


NAMES = ["lora_A.weight", "lora_B.weight", "lora_embedding_A", "lora_embedding_B", "weight"]
NAMES += ["lora_magnitude_vector", "lora_A", "base_layer.weight", "modules_to_save.weight", ""]
PLACES = [QUERY, "model.norm", "model.embed_tokens", "lm_head", "q_proj", "x", ""]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.tuples(st.sampled_from(PLACES), st.sampled_from(NAMES)),
        st.lists(st.sampled_from([0, 1, 2, 16, 48]), max_size=3),
        max_size=5,
    )
)
def test_any_tensors_are_laid_over_or_refused(
    folder: Path, shapes: dict[tuple[str, str], list[int]]
) -> None:
    tensors = {f"{place}.{name}": torch.ones(shape) for (place, name), shape in shapes.items()}
    with suppress(InputError):
        for name, tensor in adapted(folder, tensors).tensors.items():
            assert tensor.name == name and list(stored_in(tensor))


def test_a_weight_file_whose_options_lie_beside_it_is_named_by_its_folder(folder: Path) -> None:
    adapted(folder)
    with working_in(folder), pytest.raises(InputError) as caught:
        open_source(read_reference("base+adapter/adapter_model.safetensors"))
    [problem] = caught.value.problems
    assert problem.fix == f"name the folder: {folder / 'adapter'}"
