"""The rules of `resolve`, seen in what mergekit writes.

Linear with ``normalize: false`` of a model of ones writes the resolved weight into each tensor.
"""

import json
from pathlib import Path

import pytest
from beside_mergekit import MERGEKIT, run_mergekit

from resumerge.recipe import Slice, parse_recipe, resolve

HIDDEN, WIDE, VOCAB, LAYERS = 8, 16, 16, 5

RECIPES = {
    "levels": """
slices:
  - sources:
      - model: {ones}
        layer_range: [0, 2]
        parameters: {{weight: [{{filter: mlp, value: [0.1, 0.7, 0.2]}}]}}
    parameters: {{weight: [{{filter: input_layernorm, value: 4}}]}}
  - sources: [{{model: {ones}, layer_range: [1, 2]}}]
    parameters: {{weight: [3, 4]}}
  - sources: [{{model: {ones}, layer_range: [1, 5]}}]
parameters: {{normalize: false, weight: [5, 6.3, 8]}}
""",
    "models": """
models:
  - model: {ones}
    parameters:
      weight:
        - {{filter: layers.3., value: [0.3, 0.9]}}
        - {{filter: 'layers.*', value: 9}}
        - {{filter: MLP, value: 9}}
        - {{filter: mlp, value: 1e-3}}
        - {{filter: '', value: [1, 2]}}
parameters: {{normalize: false}}
""",
}


@pytest.fixture(scope="module")
def ones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a Llama of ones, in float64 so that weights are exact to the last bit."""
    torch = pytest.importorskip("torch")
    save_file = pytest.importorskip("safetensors.torch").save_file
    folder = tmp_path_factory.mktemp("models") / "ones"
    folder.mkdir()
    shapes = {
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        "lm_head.weight": (VOCAB, HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    for i in range(LAYERS):
        for name in "qkvo":
            shapes[f"model.layers.{i}.self_attn.{name}_proj.weight"] = (HIDDEN, HIDDEN)
        for name in ("gate", "up"):
            shapes[f"model.layers.{i}.mlp.{name}_proj.weight"] = (WIDE, HIDDEN)
        shapes[f"model.layers.{i}.mlp.down_proj.weight"] = (HIDDEN, WIDE)
        for name in ("input", "post_attention"):
            shapes[f"model.layers.{i}.{name}_layernorm.weight"] = (HIDDEN,)
    tensors = {name: torch.ones(shape, dtype=torch.float64) for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": WIDE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "vocab_size": VOCAB,
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.skipif(MERGEKIT is None, reason="mergekit is not installed")
@pytest.mark.parametrize("name", RECIPES)
def test_same_weights_to_the_last_bit(name: str, ones: Path, tmp_path: Path) -> None:
    load_file = pytest.importorskip("safetensors.torch").load_file
    text = "merge_method: linear\ndtype: float64\n" + RECIPES[name].format(ones=ones)
    run_mergekit(tmp_path, {name: text})
    written = {}
    for file in (tmp_path / f"{name}.mergekit").glob("*.safetensors"):
        written.update(load_file(file))

    recipe = parse_recipe(text)
    places: dict[str, tuple[Slice, float]] = {}
    layer = 0
    for slice_ in recipe.slices:
        start, stop = slice_.inputs[0].layer_range or (0, LAYERS)
        count = stop - start
        for i in range(count):
            places[f"model.layers.{layer}."] = (slice_, i / (count - 1) if count > 1 else 1.0)
            layer += 1
    places["model.embed_tokens."] = (recipe.slices[0], 0.0)
    places["model.norm."] = places["lm_head."] = (recipe.slices[-1], 0.0)

    assert len(written) == 9 * layer + 3
    for tensor, data in written.items():
        slice_, t = next(place for prefix, place in places.items() if tensor.startswith(prefix))
        weight = resolve(
            recipe, "weight", names=[tensor], t=t, slice_=slice_, input_=slice_.inputs[0]
        )
        assert set(data.flatten().tolist()) == {weight}, tensor
