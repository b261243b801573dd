"""Files hold experts packed or apart, as transformers 5 saves them: no merge depends on it."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from loading import loaded, output
from logits import assert_same
from merging import merge, shards_of, tensors_of, working_in
from safetensors.torch import load_file, save_file
from zoo import ARCHITECTURES

import resumerge
from resumerge.errors import InputError

FAMILIES = (
    *("mixtral", "qwen2_moe", "qwen3_moe", "qwen3_5_moe", "deepseek_v2", "deepseek_v3"),
    *("glm4_moe", "olmoe", "granitemoe", "phimoe"),
)
LAYOUTS = ("published", "packed")

METHODS = {
    "task_arithmetic": "{weight: 0.5}",
    "ties": "{weight: 0.6, density: 0.4}",
    "dare_ties": "{weight: 0.6, density: 0.4}",
}
RECIPE = """
merge_method: {method}
base_model: base-{base}
models:
- {{model: math-{math}, parameters: {parameters}}}
- {{model: code-{code}, parameters: {parameters}}}
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that makes a family's `base`, `math` and `code`, each in both layouts."""
    root = tmp_path_factory.mktemp("layouts")

    def made(name: str) -> Path:
        folder = root / name
        if not folder.exists():
            model = ARCHITECTURES[name].build(seed=0)
            generator = torch.Generator().manual_seed(1)
            for variant in ("base", "math", "code"):
                for layout in LAYOUTS:
                    model.save_pretrained(
                        folder / f"{variant}-{layout}",
                        save_original_format=layout == "published",
                    )
                with torch.no_grad():
                    for parameter in model.parameters():
                        noise = torch.empty_like(parameter).normal_(0, 0.02, generator=generator)
                        parameter.add_(noise)
        return folder

    return made


def text(method: str, base: str, math: str, code: str, more: str = "") -> str:
    found = RECIPE.format(
        method=method, base=base, math=math, code=code, parameters=METHODS[method]
    )
    return found + more


APART, TOGETHER = "", "experts: together\n"
CASES = [
    *((name, "ties", APART) for name in FAMILIES),
    *((name, "dare_ties", APART) for name in ("mixtral", "granitemoe", "phimoe")),
    *((name, "dare_ties", TOGETHER) for name in ("mixtral", "qwen3_moe", "granitemoe")),
]


@pytest.mark.parametrize(("name", "method", "more"), CASES)
def test_a_merge_is_the_same_whatever_layout_each_file_has(
    name: str, method: str, more: str, saved: Callable[[str], Path], tmp_path: Path, soak: bool
) -> None:
    if method == "dare_ties" and name not in ("mixtral", "granitemoe") and not soak:
        pytest.skip("masks of two layouts are enough for every day: the others with --soak")
    models = saved(name)
    opened, logits = {}, {}
    for base, other in (LAYOUTS, LAYOUTS[::-1]):
        out = merge(models, text(method, base, base, base, more), tmp_path / base)
        mixed = merge(models, text(method, base, other, base, more), tmp_path / f"{base}-mixed")
        assert shards_of(out) == shards_of(mixed)
        like = tensors_of(models / f"base-{base}")
        assert shapes(tensors_of(out)) == shapes(like)
        model = loaded(name, out)
        opened[base], logits[base] = model.state_dict(), output(name, model)
    assert_equal(opened["published"], opened["packed"])
    assert_same(logits["published"], logits["packed"])


SLICES = """
merge_method: passthrough
slices:
- sources: [{{model: math-{0}, layer_range: [0, 3], parameters: {{scale: {scale}}}}}]
- sources: [{{model: code-{1}, layer_range: [1, 4]}}]
"""
SCALES = {
    "one expert": "[{filter: experts.2., value: 2}, {value: 1}]",
    "a projection": "[{filter: down_proj, value: 2}, {filter: w1, value: 3}, {value: 1}]",
    "gates": "[{filter: gate_proj, value: 2}, {filter: up_proj, value: 3}, {value: 1}]",
    "all experts": "[{filter: mlp.experts, value: 2}, {value: 1}]",
    "published names": "[{filter: block_sparse_moe, value: 2}, {value: 1}]",
}


@pytest.mark.parametrize("chosen", SCALES)
def test_filters_and_slices_see_experts_in_packed_tensors(
    chosen: str, saved: Callable[[str], Path], tmp_path: Path, soak: bool
) -> None:
    """The pairs of equal layouts are tested only with --soak."""
    models, opened = saved("mixtral"), []
    pairs = itertools.product(LAYOUTS, repeat=2) if soak else (LAYOUTS, LAYOUTS[::-1])
    for math, code in pairs:
        recipe = SLICES.format(math, code, scale=SCALES[chosen])
        out = merge(models, recipe, tmp_path / f"{math}-{code}")
        opened.append(loaded("mixtral", out).state_dict())
    for other in opened[1:]:
        assert_equal(other, opened[0])
    ours = tensors_of(tmp_path / "packed-published")["model.layers.1.mlp.experts.gate_up_proj"]
    theirs = tensors_of(models / "math-packed")["model.layers.1.mlp.experts.gate_up_proj"]
    factors = torch.ones(4, 48, 1)
    match chosen:
        case "one expert":
            factors[2] = 2
        case "a projection":
            factors[:, :24] = 3
        case "gates":
            factors[:, :24], factors[:, 24:] = 2, 3
        case _:
            factors[:] = 2
    assert torch.equal(ours, theirs * factors)


def test_filters_see_the_names_of_granites_packed_files(
    saved: Callable[[str], Path], tmp_path: Path
) -> None:
    models, name = saved("granitemoe"), "model.layers.1.block_sparse_moe.input_linear.weight"
    theirs = tensors_of(models / "base-published")[name]
    for chosen in ("input_linear", "experts.gate_up_proj"):
        recipe = (
            "merge_method: passthrough\nmodels: [{model: base-published, parameters: "
            f"{{scale: [{{filter: {chosen}, value: 2}}, {{value: 1}}]}}}}]\n"
        )
        out = merge(models, recipe, tmp_path / chosen)
        assert torch.equal(tensors_of(out)[name], 2 * theirs)


TWO_STAGES = """
name: first
merge_method: ties
base_model: base-{0}
models: [{{model: math-{1}, parameters: {{weight: 1, density: 0.5}}}}]
{more}
---
merge_method: ties
base_model: first
models: [{{model: code-{2}, parameters: {{weight: 1, density: 0.5}}}}]
{more}
"""


@pytest.mark.parametrize("more", [APART, TOGETHER], ids=["apart", "together"])
@pytest.mark.parametrize("base", LAYOUTS)
def test_a_stage_is_like_the_model_that_it_would_be(
    base: str, more: str, saved: Callable[[str], Path], tmp_path: Path
) -> None:
    models = saved("mixtral")
    at_once = TWO_STAGES.format(base, "packed", "published", more=more)
    steps = at_once.split("---")
    merge(models, steps[0], tmp_path / "first")
    then = steps[1].replace("model: first", f"model: {tmp_path / 'first'}")
    then = then.replace("base_model: first", f"base_model: {tmp_path / 'first'}")
    out = merge(models, then, tmp_path / "out")
    assert shards_of(merge(models, at_once, tmp_path / "at-once")) == shards_of(out)


def test_a_packed_tensor_is_in_one_shard(saved: Callable[[str], Path], tmp_path: Path) -> None:
    recipe = text("ties", "packed", "packed", "published")
    whole = tensors_of(merge(saved("mixtral"), recipe, tmp_path / "whole"))
    out = merge(saved("mixtral"), recipe, tmp_path / "out", shard_size=10_000)
    assert len(shards_of(out)) > 8
    assert_equal(tensors_of(out), whole)
    loaded("mixtral", out)


OF_EXPERTS = ("gate_up_proj", "gate_up_proj_bias", "down_proj", "down_proj_bias")


def test_experts_of_gpt_oss_are_merged_one_by_one_or_together(
    saved: Callable[[str], Path], tmp_path: Path
) -> None:
    """gpt-oss has gates and ups interleaved, transposed matrices, and biases of experts."""
    models, found = saved("gpt_oss"), {}
    for more in (APART, TOGETHER):
        out = merge(models, text("ties", *LAYOUTS, "packed", more), tmp_path / f"out{len(more)}")
        output("gpt_oss", loaded("gpt_oss", out))
        found[more] = tensors_of(out)
    base, math, code = (tensors_of(models / f"{v}-packed") for v in ("base", "math", "code"))
    assert shapes(found[APART]) == shapes(base) == shapes(found[TOGETHER])
    for kind in OF_EXPERTS:
        name = f"model.layers.1.mlp.experts.{kind}"
        first, deltas = base[name], (math[name] - base[name], code[name] - base[name])
        assert not torch.equal(found[APART][name], found[TOGETHER][name])
        for expert in range(4):
            expected = first[expert] + ties(*(delta[expert] for delta in deltas))
            torch.testing.assert_close(found[APART][name][expert], expected, rtol=0, atol=1e-6)
        expected = first + ties(*deltas)
        torch.testing.assert_close(found[TOGETHER][name], expected, rtol=0, atol=1e-6)


def test_gpt_oss_has_one_layout(saved: Callable[[str], Path]) -> None:
    """transformers has no published names for gpt-oss: both formats have the same tensors."""
    published, packed = (tensors_of(saved("gpt_oss") / f"base-{layout}") for layout in LAYOUTS)
    assert_equal(published, packed)
    experts = "model.layers.0.mlp.experts."
    assert {experts + kind for kind in OF_EXPERTS} == {n for n in packed if n.startswith(experts)}


def single(head: str, kind: str, number: int, value: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return an expert's tensor, as the matrix of a linear layer or its bias."""
    end = "bias" if value.dim() == 1 else "weight"
    return {f"{head}.{number}.{kind}.{end}": value.T if value.dim() == 2 else value}


def projections(head: str, kind: str, number: int, value: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return an expert's tensors, as `single` does, with gates and ups apart."""
    if kind == "down_proj":
        return single(head, kind, number, value)
    gates, ups = (value[..., start::2] for start in (0, 1))
    return single(head, "gate_proj", number, gates) | single(head, "up_proj", number, ups)


def lists(head: str, kind: str, number: int, value: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return an expert's tensor in a list of linear layers for each kind, as trainers have it."""
    [(name, tensor)] = single(head, kind, number, value).items()
    return {name.replace(f"{number}.{kind}", f"{kind}s.{number}"): tensor}


FORMS = [single, projections, lists]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
@pytest.mark.parametrize("is_base", [True, False], ids=["base", "other"])
def test_gpt_oss_in_another_form_is_told(
    form: Callable[..., dict[str, torch.Tensor]],
    is_base: bool,
    saved: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    models, other = saved("gpt_oss"), tmp_path / "other"
    shutil.copytree(models / "math-packed", other)
    tensors = {}
    for name, tensor in load_file(other / "model.safetensors").items():
        head, found, kind = name.partition(".experts.")
        if not found:
            tensors[name] = tensor
        for number, value in enumerate(tensor if found else ()):
            tensors |= form(f"{head}.experts", kind.removesuffix("_bias"), number, value)
    apart = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(apart, other / "model.safetensors", metadata={"format": "pt"})
    base, model = (other, "code-packed") if is_base else ("base-packed", other)
    recipe = f"merge_method: linear\nbase_model: {base}\nparameters: {{weight: 0.5}}\n"
    recipe += f"models: [{{model: {base}}}, {{model: {model}}}]\n"
    with pytest.raises(InputError, match=r"tensors are missing from(.|\n)*mlp\.experts\.") as told:
        merge(models, recipe, tmp_path / "out")
    assert "would be lost" in str(told.value) or " lacks: " in str(told.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("lacking", "said"), [("other", "missing from"), ("base", "be lost")])
def test_gpt_oss_without_biases_of_experts_is_told(
    lacking: str, said: str, saved: Callable[[str], Path], tmp_path: Path
) -> None:
    models = tmp_path / "models"
    shutil.copytree(saved("gpt_oss"), models)
    file = models / ("base" if lacking == "base" else "math") / "model.safetensors"
    file = file.parent.with_name(f"{file.parent.name}-packed") / file.name
    tensors = {n: t for n, t in load_file(file).items() if not n.endswith("experts.down_proj_bias")}
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(InputError, match=f"16 tensors .*{said}"):
        merge(models, text("ties", "packed", "packed", "packed"), tmp_path / "out")


def ties(*deltas: torch.Tensor) -> torch.Tensor:
    """Compute TIES of task vectors with the weights 0.6 and the density 0.4."""
    kept = [torch.where(delta.abs() >= threshold(delta), delta, 0) * 0.6 for delta in deltas]
    total = sum(kept)
    agree = [torch.where(delta.sign() == total.sign(), delta, 0) for delta in kept]
    weights = sum((delta != 0) * 0.6 for delta in agree)
    return sum(agree) / weights.clamp(min=1e-8)


def threshold(delta: torch.Tensor) -> torch.Tensor:
    return delta.abs().flatten().topk(int(delta.numel() * 0.4)).values[-1]


def notes_of(models: Path, recipe: str, folder: Path) -> list[str]:
    (folder / "recipe.yaml").write_text(recipe)
    with working_in(models):
        notes: list[str] = resumerge.plan(folder / "recipe.yaml")["notes"]
    return notes


def test_what_a_person_should_know_is_noted_once(
    saved: Callable[[str], Path], tmp_path: Path
) -> None:
    notes = notes_of(saved("mixtral"), text("ties", *LAYOUTS[::-1], "packed"), tmp_path)
    assert sum("routers like any tensor" in note for note in notes) == 1
    assert sum("each expert is merged by itself" in note for note in notes) == 1
    elementwise = text("task_arithmetic", *LAYOUTS[::-1], "packed")
    notes = notes_of(saved("mixtral"), elementwise, tmp_path)
    assert not any("each expert is merged by itself" in note for note in notes)


def test_what_would_be_lost_is_refused(saved: Callable[[str], Path], tmp_path: Path) -> None:
    """Transposed packed matrices beside separate ones are refused."""
    models = tmp_path / "models"
    shutil.copytree(saved("qwen3_moe"), models)
    file = models / "math-packed" / "model.safetensors"
    tensors = load_file(file)
    packed = [name for name in tensors if ".experts." in name]
    swapped = {name: tensors[name].transpose(1, 2).contiguous() for name in packed}
    save_file({**tensors, **swapped}, file, metadata={"format": "pt"})
    with pytest.raises(InputError, match="gates and ups interleaved, or matrices transposed"):
        merge(models, text("ties", "published", "packed", "packed"), tmp_path / "lost")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("place", ["base", "math"])
def test_what_a_file_has_twice_is_refused(
    saved: Callable[[str], Path], tmp_path: Path, layout: str, place: str
) -> None:
    """The file has the experts packed, and apart with other values."""
    models = tmp_path / "models"
    shutil.copytree(saved("qwen3_moe"), models)
    other = load_file(models / "code-published" / "model.safetensors")
    apart = {name: tensor for name, tensor in other.items() if ".experts." in name}
    file = models / f"{place}-packed" / "model.safetensors"
    save_file({**load_file(file), **apart}, file, metadata={"format": "pt"})
    recipe = text("ties", "packed", "packed", layout)
    with pytest.raises(InputError, match=r"would be lost|missing from"):
        merge(models, recipe, tmp_path / "out")


def test_one_tensor_has_one_dtype(saved: Callable[[str], Path], tmp_path: Path) -> None:
    models = tmp_path / "models"
    shutil.copytree(saved("qwen3_moe"), models)
    wide = "model.layers.1.mlp.experts.2.up_proj.weight"
    for folder in ("base-packed", "math-packed", "code-published"):
        file = models / folder / "model.safetensors"
        halves = {n: t if n == wide else t.half() for n, t in load_file(file).items()}
        save_file(halves, file, metadata={"format": "pt"})
    recipe = text("task_arithmetic", "packed", "packed", "published")
    with pytest.raises(InputError, match="have different dtypes"):
        merge(models, recipe, tmp_path / "mixed")
    out = tensors_of(merge(models, recipe + "dtype: float16\n", tmp_path / "out"))
    assert {tensor.dtype for tensor in out.values()} == {torch.float16}


def assert_equal(ours: Mapping[str, torch.Tensor], theirs: Mapping[str, torch.Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


def shapes(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}
