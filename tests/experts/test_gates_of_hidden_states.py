"""Gates of hidden states are what transformers computes in float32 from the whole base."""

from __future__ import annotations

import copy
import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from beside_mergekit import MERGEKIT, run_beside_mergekit
from dense_models import CONFIGS, PROMPTED, SIZES, mixture, write_dense
from merging import merge, shards_of, tensors_of
from reading import evaluation
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    MistralConfig,
    PreTrainedModel,
    Qwen3Config,
)
from transformers.models.llama.modeling_llama import LlamaMLP
from waiting import HANGS_SECONDS

from resumerge.engine.execute import steps
from resumerge.errors import InputError
from resumerge.experts.upcycling.gates import hidden_states, layer_gates
from resumerge.experts.upcycling.gates.decoder import Decoder
from resumerge.experts.upcycling.gates.hidden_states import HiddenStates
from resumerge.experts.upcycling.gates.prompts import PromptTokens
from resumerge.recipe.types import OF_HIDDEN_STATES
from resumerge.tensors import Stored

FITTING = {
    "llama": ("mixtral", ""),
    "mistral": ("mixtral", ""),
    "qwen2": ("qwen", PROMPTED),
    "qwen3": ("qwen3", ""),
}
"""Architecture and shared experts, by family of the dense models."""


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("families")
    for name, config in CONFIGS.items():
        write_dense(folder / name, config)
    return folder


@pytest.fixture
def llamas(families: Path) -> Path:
    return families / "llama"


def gates_of(out: Path) -> list[torch.Tensor]:
    """Return the gates of each layer: those of all experts, the shared one last."""
    tensors = {name.replace("block_sparse_moe", "mlp"): t for name, t in tensors_of(out).items()}
    found = []
    for layer in range(sum(name.endswith("mlp.gate.weight") for name in tensors)):
        at = f"model.layers.{layer}.mlp"
        rows = [tensors[f"{at}.gate.weight"]]
        if f"{at}.shared_expert_gate.weight" in tensors:
            rows.append(tensors[f"{at}.shared_expert_gate.weight"])
        found.append(torch.cat(rows).float())
    return found


def states(model: PreTrainedModel, tokens: list[int], mode: str) -> list[torch.Tensor]:
    """Return the state of one text for each layer's gates: (hidden,) in float64."""
    given: list[torch.Tensor] = []
    for layer in model.model.layers:
        layer.mlp.register_forward_pre_hook(lambda m, inputs: given.append(inputs[0][0]))
    with torch.no_grad():
        made = model(torch.tensor([tokens]), output_hidden_states=True).hidden_states
    seen = given if mode == "hidden_norm" else [state[0] for state in made[:-1]]
    return [s.double().mean(0) if mode == "hidden_avg" else s[-1].double() for s in seen]


def by_transformers(base: Path, recipe: str, mode: str) -> list[torch.Tensor]:
    """Compute the gates of each layer with transformers, from the whole model in float32."""
    written = yaml.safe_load(recipe)
    tokenizer = AutoTokenizer.from_pretrained(base)

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)

    def mean(prompts: list[str]) -> torch.Tensor:
        of_prompts = []
        for prompt in prompts:
            tokens = tokenizer("<s>" + prompt, add_special_tokens=False)["input_ids"]
            of_prompts.append(torch.stack(states(copy.deepcopy(model), tokens, mode)))
        return torch.stack(of_prompts).mean(0)

    rows = []
    for expert in [*written["experts"], *written.get("shared_experts", [])]:
        direction = mean(expert["positive_prompts"])
        if "negative_prompts" in expert:
            direction -= mean(expert["negative_prompts"])
        rows.append(direction / direction.norm(dim=-1, keepdim=True))
    return list(torch.stack(rows, 1).float())


@pytest.mark.parametrize("mode", OF_HIDDEN_STATES)
@pytest.mark.parametrize("family", CONFIGS)
def test_same_gates_as_transformers(families: Path, tmp_path: Path, family: str, mode: str) -> None:
    recipe = mixture(mode, *FITTING[family]) + "dtype: float32\n"
    found = gates_of(merge(families / family, recipe, tmp_path / "out"))
    expected = by_transformers(families / family / "base", recipe, mode)
    assert len(found) == SIZES["num_hidden_layers"]
    for layer, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        assert float((ours - theirs).abs().max()) < 1e-5, layer


def test_within_a_sliding_window(tmp_path: Path) -> None:
    """The last token of a long prompt does not attend to the first ones, outside the window."""
    models = write_dense(tmp_path / "models", MistralConfig(**SIZES, sliding_window=4))
    for mode in ("hidden", "hidden_norm"):
        recipe = mixture(mode, "mixtral") + "dtype: float32\n"
        found = gates_of(merge(models, recipe, tmp_path / mode))
        for ours, theirs in zip(found, by_transformers(models / "base", recipe, mode)):
            assert float((ours - theirs).abs().max()) < 1e-5
    config = json.loads((models / "base" / "config.json").read_text())
    (models / "base" / "config.json").write_text(json.dumps(config | {"sliding_window": None}))
    wide = gates_of(merge(models, recipe, tmp_path / "wide"))
    assert not wide[-1].equal(found[-1]), "the window matters"


def test_rotary_embeddings_that_depend_on_the_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A longer prompt or an interruption does not change the gates of a shorter prompt."""
    rope = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}
    config = LlamaConfig(**{**SIZES, "max_position_embeddings": 4}, rope_parameters=rope)
    models = write_dense(tmp_path / "models", config)
    recipe = mixture("hidden_norm", "mixtral") + "dtype: float32\n"
    recipe = recipe.replace("Once upon a time", "Once upon a time there was a miller with a son")
    calm = gates_of(merge(models, recipe, tmp_path / "calm"))
    for ours, theirs in zip(calm, by_transformers(models / "base", recipe, "hidden_norm")):
        assert float((ours - theirs).abs().max()) < 1e-5
    go_on = interrupted_after_a_layer(models, tmp_path / "out", monkeypatch, recipe)
    go_on()
    assert all(a.equal(b) for a, b in zip(gates_of(tmp_path / "out"), calm, strict=True))


GATES = """
import json, sys, torch
from mergekit.common import ModelReference
from mergekit.moe.config import Expert
from mergekit.moe.router import get_gate_params
from transformers import AutoTokenizer
experts, mode, out = sys.argv[1:]
gates = get_gate_params(
    ModelReference.parse("./base"),
    AutoTokenizer.from_pretrained("./base", pad_token="<unk>"),
    [Expert.model_validate(expert) for expert in json.loads(experts)],
    mode,
    device="cpu",
)
torch.save(list(gates), out)
"""


@pytest.mark.skipif(MERGEKIT is None, reason="needs mergekit")
@pytest.mark.parametrize("mode", ["hidden", "hidden_avg", "hidden_last"])
@pytest.mark.parametrize("family", CONFIGS)
def test_same_directions_as_mergekit(
    families: Path, tmp_path: Path, family: str, mode: str
) -> None:
    """Each expert has one positive prompt, because mergekit-moe differs otherwise.

    mergekit-moe computes in bfloat16, which leaves few digits of a difference (negative prompts),
    and looks for the last token in the padding of a shorter prompt.
    """
    models = families / family
    experts = [
        {"source_model": f"./{name}", "positive_prompts": [f"a text of {name}"]} for name in "abc"
    ]
    recipe = {"base_model": "./base", "gate_mode": mode, "dtype": "float32", "experts": experts}
    if family == "qwen2":
        recipe["shared_experts"] = [{"source_model": "./a", "positive_prompts": ["it"]}]
    found = gates_of(merge(models, yaml.safe_dump(recipe), tmp_path / "out"))
    every = [*experts, *recipe.get("shared_experts", [])]
    words = json.dumps(every), mode, str(tmp_path / "theirs.pt")
    run_beside_mergekit(models, GATES, *words, imports=["mergekit.moe.router"])
    theirs = torch.load(tmp_path / "theirs.pt")
    for ours, gates in zip(found, theirs, strict=True):
        cosines = torch.nn.functional.cosine_similarity(ours, gates.float())
        assert float(cosines.min()) > 0.999, cosines


def test_other_prompts_change_no_bit(llamas: Path, tmp_path: Path) -> None:
    recipe = mixture("hidden", "mixtral") + "dtype: float32\n"
    gates = gates_of(merge(llamas, recipe, tmp_path / "out"))
    longer = recipe.replace("Once upon a time", "Once upon a time there was a miller")
    others = gates_of(merge(llamas, longer, tmp_path / "longer"))
    for own, other in zip(gates, others, strict=True):
        assert own[:2].equal(other[:2]) and not own[2].equal(other[2])


def test_texts_are_computed_at_once_to_the_same_bits(
    llamas: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each thread computes the states of its own text, and the results keep the texts' order."""
    recipe = mixture("hidden_norm", "mixtral").replace(", an odd one", "") + "dtype: float32\n"
    alone = merge(llamas, recipe, tmp_path / "alone", threads=1)
    both, mlp, met = threading.Barrier(2, timeout=HANGS_SECONDS), LlamaMLP.forward, list[bool]()

    def waiting(module: LlamaMLP, x: torch.Tensor) -> torch.Tensor:
        met.append(both.wait() >= 0)
        return mlp(module, x)

    monkeypatch.setattr(LlamaMLP, "forward", waiting)
    out = merge(llamas, recipe, tmp_path / "out", threads=2)
    assert len(met) == 2 * 4, "two layers, of four texts"
    assert shards_of(out) == shards_of(alone)


def test_a_config_without_a_gate_mode(llamas: Path, tmp_path: Path) -> None:
    """mergekit-moe's default is `hidden`."""
    recipe = mixture("hidden", "mixtral")
    out = merge(llamas, recipe.replace("gate_mode: hidden\n", ""), tmp_path / "out")
    stated = merge(llamas, recipe, tmp_path / "stated")
    assert [g.tolist() for g in gates_of(out)] == [g.tolist() for g in gates_of(stated)]
    model, info = AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not any(info.values()), info
    assert model.generate(torch.tensor([[1, 5]]), max_new_tokens=3, do_sample=False).shape[1] > 2


def test_the_base_may_be_the_result_of_a_stage(llamas: Path, tmp_path: Path) -> None:
    stage = (
        "name: middle\nmerge_method: {}\nbase_model: ./base\n"
        "models: [{{model: ./a, parameters: {{weight: 0.5, density: 0.5}}}}]\n"
        "tokenizer_source: base\n"
    )
    recipe = mixture("hidden", "mixtral").replace("base_model: ./base", "base_model: {}")
    linear = stage.format("task_arithmetic")
    at_once = merge(llamas, f"{linear}---\n{recipe.format('middle')}", tmp_path / "out")
    middle = merge(llamas, linear.split("\n", 1)[1], tmp_path / "middle")
    then = merge(llamas, recipe.format(middle), tmp_path / "then")
    assert [g.tolist() for g in gates_of(at_once)] == [g.tolist() for g in gates_of(then)]
    with pytest.raises(InputError, match="reads whole tensors before"):
        merge(llamas, f"{stage.format('ties')}---\n{recipe.format('middle')}", tmp_path / "no")


def test_without_transformers(
    llamas: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer_gates, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'resumerge\[mixtures\]'"):
        merge(llamas, mixture("hidden", "mixtral"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "field, value, found",
    [
        ("hidden_size", 64, "hidden_size: 32, which the tensors have"),
        ("attention_bias", True, r"layers.0.self_attn.q_proj.bias(.|\n)*no such tensor"),
        ("hidden_act", "none such", "a config.json that transformers opens"),
        ("hidden_size", "wide", "hidden_size: a number, 1 or more"),
    ],
)
def test_a_config_that_is_not_the_bases(
    llamas: Path, tmp_path: Path, field: str, value: object, found: str
) -> None:
    models = tmp_path / "models"
    shutil.copytree(llamas, models)
    config = json.loads((models / "base" / "config.json").read_text())
    (models / "base" / "config.json").write_text(json.dumps(config | {field: value}))
    with pytest.raises(InputError, match=found):
        merge(models, mixture("hidden", "mixtral"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


class Counting:
    """A counter of the layers that are computed, which raises an error before one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stop_at: int) -> None:
        self.layers: list[int] = []
        call = Decoder.__call__

        def counted(decoder: Decoder, number: int, *others: object) -> object:
            self.layers.append(number)
            if len(self.layers) == stop_at:
                raise OSError("the power is lost")
            return call(decoder, number, *others)  # type: ignore[arg-type]

        monkeypatch.setattr(Decoder, "__call__", counted)


def interrupted_after_a_layer(
    models: Path,
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
    recipe: str = mixture("hidden_norm", "mixtral"),
) -> Callable[[], Counting]:
    """Stop a merge in the second of two layers, and return a function that continues it."""

    def go_on(stop_at: int = 0) -> Counting:
        with monkeypatch.context() as patched:
            counting = Counting(patched, stop_at)
            merge(models, recipe, out)
        return counting

    with pytest.raises(Exception, match="the power is lost"):
        go_on(2)
    return go_on


def step_files(out: Path) -> list[Path]:
    return sorted(out.with_name(out.name + ".state").glob(f"*/{steps.PREFIX}*"))


def test_a_kill_costs_one_layer(
    llamas: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = merge(llamas, mixture("hidden_norm", "mixtral"), tmp_path / "calm")
    assert not step_files(calm)
    out = tmp_path / "out"
    go_on = interrupted_after_a_layer(llamas, out, monkeypatch)
    assert len(step_files(out)) == 1
    assert go_on().layers == [1]
    assert [g.tolist() for g in gates_of(out)] == [g.tolist() for g in gates_of(calm)]
    assert not step_files(out)


@pytest.mark.parametrize("damage", ["changed", "cut", "missing", "other model"])
def test_what_a_step_kept_is_not_trusted(
    llamas: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    for model in llamas.iterdir():
        (models / model.name).mkdir()
        for file in model.iterdir():
            (models / model.name / file.name).write_bytes(file.read_bytes())
    calm = merge(models, mixture("hidden_norm", "mixtral"), tmp_path / "calm")
    out = tmp_path / "out"
    go_on = interrupted_after_a_layer(models, out, monkeypatch)
    [kept] = step_files(out)
    data = bytearray(kept.read_bytes())
    if damage == "changed":
        data[-5] ^= 1
        kept.write_bytes(data)
    elif damage == "cut":
        kept.write_bytes(data[:-8])
    elif damage == "missing":
        kept.unlink()
    else:  # the same bytes, but who knows
        weights = models / "base" / "model.safetensors"
        weights.write_bytes(weights.read_bytes())
    assert go_on().layers == [0, 1]
    assert [g.tolist() for g in gates_of(out)] == [g.tolist() for g in gates_of(calm)]


def test_another_version_of_transformers_does_not_go_on(
    llamas: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gates of another version could have other bits than those that are in the output already."""
    out = tmp_path / "out"
    go_on = interrupted_after_a_layer(llamas, out, monkeypatch)
    with monkeypatch.context() as patched:
        patched.setattr(hidden_states, "_version", lambda library: "99.0")
        with pytest.raises(InputError, match="A library has changed") as refused:
            go_on()
    assert "transformers" in str(refused.value) and "99.0" in str(refused.value)
    assert go_on().layers == [1]


PROMPTS = (
    PromptTokens(((1, 5, 6, 7, 8), (1, 9)), ((1, 3, 3),)),
    PromptTokens(((1, 9),), ()),
    PromptTokens(((1, 4, 11, 12, 13, 14),), ()),
)
TINY = {**SIZES, "hidden_size": 8, "intermediate_size": 12, "vocab_size": 20}
SMALL = {
    "llama": LlamaConfig(**TINY),
    "mistral": MistralConfig(**TINY, sliding_window=2),
    "qwen3": Qwen3Config(**TINY, head_dim=4),
}


class Weights:
    """The weights of a model as files, which record the ranges that are read."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.arrays = {name: t.numpy() for name, t in model.model.state_dict().items()}
        self.read: set[tuple[str, int, int]] = set()

    def tensor(self, name: str) -> Stored:
        return Stored(name, "F32", self.arrays[name].shape, "f", 0)

    def descriptor(self, of: Any) -> None:
        return None

    def fill(self, of: Any, offset: int, buffer: memoryview) -> None:
        first, count = offset // 4, len(buffer) // 4
        self.read.add((of.name, first, first + count))
        buffer[:] = self.arrays[of.name].reshape(-1)[first : first + count].tobytes()

    def step(self, config: dict[str, Any], mode: str) -> HiddenStates:
        layers: list[dict[str, Stored]] = [{} for _ in range(SIZES["num_hidden_layers"])]
        for name in self.arrays:
            if name.startswith("layers."):
                _, number, rest = name.split(".", 2)
                layers[int(number)][rest] = self.tensor(name)
        table = self.tensor("embed_tokens.weight")
        return HiddenStates("base", mode, config, table, tuple(layers), PROMPTS, 2)


def small(kind: str) -> tuple[PreTrainedModel, dict[str, Any]]:
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(SMALL[kind], attn_implementation="sdpa").float().eval()
    for parameter in model.parameters():
        parameter.data.normal_()
    return model, {**SMALL[kind].to_dict(), "model_type": kind}


def computed(step: HiddenStates, files: Weights, threads: int) -> np.ndarray:
    with_ = evaluation(files)
    advance, state = step.prepare(with_, threads), step.begin(with_)
    for piece in range(step.pieces):
        state = advance(state, piece)
    return step.result(state)


@pytest.mark.parametrize("mode", OF_HIDDEN_STATES)
@pytest.mark.parametrize("kind", SMALL)
def test_a_layers_gates_are_those_of_the_whole_model(kind: str, mode: str) -> None:
    """The step reads exactly the rows and layers that it names; threads do not change the bits."""
    model, config = small(kind)
    files = Weights(model)
    step = files.step(config, mode)
    found = computed(step, files, 1)
    assert files.read == {(leaf.name, first, last) for leaf, first, last in step.reads()}
    of = {
        p: states(copy.deepcopy(model), list(p), mode)
        for expert in PROMPTS
        for p in (*expert.positive, *expert.negative)
    }
    for layer in range(step.pieces):
        for row, expert in enumerate(PROMPTS):
            direction = torch.stack([of[p][layer] for p in expert.positive]).mean(0)
            if expert.negative:
                direction = direction - torch.stack([of[p][layer] for p in expert.negative]).mean(0)
            expected = direction / direction.norm()
            assert found[layer, row] == pytest.approx(expected.numpy(), abs=2e-5)
    assert (computed(step, files, 3) == found).all()


def test_layers_that_transformers_has_otherwise_are_a_problem() -> None:
    model, config = small("llama")
    step = Weights(model).step(config, "hidden")
    assert [*step.problems()] == []
    [problem] = replace(step, config={**config, "hidden_act": "none such"}).problems()
    assert problem.expected == "a config.json that transformers opens"
    narrow = replace(step.embedding, shape=(20, 6))
    [problem] = replace(step, embedding=narrow).problems()
    assert problem.expected == "embed_tokens.weight with the shape [20, 8]"
    assert problem.found == "the shape [20, 6]"
    first, second = step.layers
    cut = {name: t for name, t in second.items() if name != "mlp.up_proj.weight"}
    [problem] = replace(step, layers=(first, cut)).problems()
    assert problem.expected == "layers.1.mlp.up_proj.weight with the shape [12, 8]"
    assert problem.found == "no such tensor" and problem.where == "base"
    more = {**first, "further": first["mlp.up_proj.weight"]}
    assert [*replace(step, layers=(more, second)).problems()] == []
