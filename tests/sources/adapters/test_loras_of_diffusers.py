"""A LoRA file of diffusers gives the weights that diffusers fuses, and the output is a pipeline."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import DiffusionPipeline, FluxPipeline, StableDiffusionXLPipeline
from merging import merge, tensors_of, working_in
from peft import LoraConfig, get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from tiny_pipelines import write_flux, write_sdxl

from resumerge.errors import InputError
from resumerge.recipe.references import read_reference
from resumerge.sources import open_source

FILE = "pytorch_lora_weights.safetensors"
KINDS = {
    "sdxl": (StableDiffusionXLPipeline, write_sdxl, "unet", ["to_q", "to_out.0", "conv1"]),
    "flux": (FluxPipeline, write_flux, "transformer", ["to_q", "to_out.0", "proj_mlp"]),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "alpha is the rank": {"lora_alpha": 4},
    "alpha is another": {"lora_alpha": 8},
    "modules have others": {
        "lora_alpha": 8,
        "rank_pattern": {"to_q": 2},
        "alpha_pattern": {"to_q": 6},
    },
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("diffusers")
    for kind, (_, write, _, _) in KINDS.items():
        write(folder / kind, 0)
    return folder


def write_lora(models: Path, kind: str, name: str, *, told: bool = True, **options: Any) -> Path:
    """Write a LoRA of the large part and of a text encoder, as diffusers saves it.

    Args:
        told: whether the file's header has the options.
    """
    torch.manual_seed(1)
    family, _, part, modules = KINDS[kind]
    pipeline = family.from_pretrained(models / kind)
    configs = {
        part: LoraConfig(r=4, target_modules=modules, **options),
        "text_encoder": LoraConfig(r=2, lora_alpha=2, target_modules=["q_proj", "fc1"]),
    }
    saved: dict[str, Any] = {}
    for component, config in configs.items():
        model = getattr(pipeline, component)
        model.add_adapter(config)
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data += torch.randn_like(parameter) * 0.1
        saved[f"{component}_lora_layers"] = get_peft_model_state_dict(model)
        if told:
            saved[f"{component}_lora_adapter_metadata"] = model.peft_config["default"].to_dict()
    family.save_lora_weights(models / name, **saved)
    return models / name


def assert_fused_alike(models: Path, kind: str, name: str, out: Path) -> None:
    """Compare the merged pipeline with what diffusers makes of the same file."""
    family, _, part, _ = KINDS[kind]
    theirs = family.from_pretrained(models / kind)
    theirs.load_lora_weights(models / name, weight_name=FILE)
    theirs.fuse_lora(components=[part, "text_encoder"])  # FLUX's default is the first alone
    theirs.unload_lora_weights()
    recipe = f"merge_method: passthrough\nmodels: [{{model: ./{kind}+./{name}}}]\n"
    ours = DiffusionPipeline.from_pretrained(merge(models, recipe, out))
    before = family.from_pretrained(models / kind)
    assert isinstance(ours, family)
    for component in (part, "text_encoder"):
        found, expected, old = (getattr(p, component).state_dict() for p in (ours, theirs, before))
        assert any(not torch.equal(found[key], old[key]) for key in old)
        for key, tensor in expected.items():
            torch.testing.assert_close(found[key], tensor, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("told", [True, False], ids=["told", "not_told"])
def test_the_output_is_what_diffusers_fuses(
    kind: str, options: str, told: bool, models: Path, tmp_path: Path
) -> None:
    """The alphas are the ranks in diffusers if the header does not have them."""
    name = f"{kind} {options} {told}".replace(" ", "_")
    write_lora(models, kind, name, told=told, **OPTIONS[options])
    assert_fused_alike(models, kind, name, tmp_path / "out")


def renamed(folder: Path, change: Callable[[str], str]) -> None:
    tensors = load_file(folder / FILE)
    save_file({change(name): tensor for name, tensor in tensors.items()}, folder / FILE)


def test_names_of_older_versions(models: Path, tmp_path: Path) -> None:
    folder = write_lora(models, "sdxl", "older", told=False, lora_alpha=4)

    def older(name: str) -> str:
        inside = ".lora" if name.startswith("unet.") else ".lora_linear_layer"
        return name.replace(".lora_A", f"{inside}.down").replace(".lora_B", f"{inside}.up")

    renamed(folder, older)
    assert_fused_alike(models, "sdxl", "older", tmp_path / "out")
    folder = write_lora(models, "sdxl", "oldest", told=False, lora_alpha=4)

    def oldest(name: str) -> str:
        name = name.replace(".to_out.0.", ".to_out.")
        for to in ("to_q", "to_out"):
            name = name.replace(f".{to}.lora_A", f".processor.{to}_lora.down")
            name = name.replace(f".{to}.lora_B", f".processor.{to}_lora.up")
        return older(name)

    renamed(folder, oldest)
    assert_fused_alike(models, "sdxl", "oldest", tmp_path / "out_of_oldest")


@pytest.mark.parametrize("prefix", ["unet.", "diffusion_model.", "model.diffusion_model."])
def test_a_file_alone_is_changed_by_any_of_the_prefixes(prefix: str, tmp_path: Path) -> None:
    weight, a, b = torch.randn(8, 8), torch.randn(2, 8), torch.randn(8, 2)
    module = "down_blocks.0.attentions.0.to_q"
    save_file({f"{module}.weight": weight}, tmp_path / "unet.safetensors")
    pair = {"lora_A": a, "lora_B": b}
    lora = {f"{prefix}{module}.{name}.weight": matrix for name, matrix in pair.items()}
    lora[f"{prefix}{module}.alpha"] = torch.tensor(3.0)
    save_file(lora, tmp_path / "lora.safetensors")
    recipe = "merge_method: passthrough\nmodels: [{model: unet.safetensors+lora.safetensors}]\n"
    [found] = tensors_of(merge(tmp_path, recipe, tmp_path / "out")).values()
    torch.testing.assert_close(found, weight + 1.5 * b @ a)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda name: name.replace("lora_A", "hada_w1_a"), "LyCORIS"),
        (lambda name: name.replace("unet.", ""), "put the adapter_config.json"),
        (lambda name: name.replace("to_q", "to_nothing"), "to_nothing"),
    ],
)
def test_what_is_not_known_is_refused_by_name(
    change: Callable[[str], str], told: str, models: Path
) -> None:
    renamed(write_lora(models, "sdxl", "strange", told=False), change)
    with working_in(models), pytest.raises(InputError, match=told):
        open_source(read_reference("./sdxl+./strange"))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"unet.r": 4, "unet.use_rslora": True, "text_encoder.r": 2}, "do not go together"),
        ({"unet.r": 8, "text_encoder.r": 2}, "rank 8"),
        ({"unet.r": 4, "unet.lora_bias": True, "text_encoder.r": 2}, "lora_bias"),
        ("[", "not readable"),
    ],
)
def test_options_in_the_header_are_read_or_refused(said: Any, told: str, models: Path) -> None:
    folder = write_lora(models, "sdxl", "said", told=False)
    text = said if isinstance(said, str) else json.dumps(said)
    save_file(load_file(folder / FILE), folder / FILE, {"lora_adapter_metadata": text})
    with working_in(models), pytest.raises(InputError, match=told):
        open_source(read_reference("./sdxl+./said"))
