"""Recipes that use every method and most features, of the models in `models`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Case:
    """A recipe and the options that it is run with."""

    name: str
    recipe: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Use:
    """One way to use a method.

    Args:
        tunes: how many fine-tunes it merges, of three.
        base: whether there is a base model.
        models: parameters that each fine-tune has, by the parameter's name.
        merge: parameters of the whole merge.
    """

    method: str
    tunes: int = 3
    base: bool = True
    models: Mapping[str, Sequence[float]] | None = None
    merge: Mapping[str, float | bool] | None = None
    variant: str = ""


WEIGHTS = (0.6, 0.3, -0.2)
KEEP = {"weight": WEIGHTS, "density": (0.5, 0.3, 0.8)}
MOST = {"weight": WEIGHTS, "density": (0.8, 0.6, 0.7)}
USES = [
    Use("linear", base=False, models={"weight": WEIGHTS}),
    Use("linear", 2, False, {"weight": (1, 2)}, {"normalize": False}, "sum"),
    Use("slerp", 1, merge={"t": 0.35}),
    Use("nuslerp", 2, False, {"weight": (0.7, 0.2)}),
    Use("nuslerp", 2, True, {"weight": (0.7, 0.2)}, variant="base"),
    Use("nuslerp", 2, True, {"weight": (1, 3)}, {"nuslerp_flatten": False}, "columns"),
    Use(
        "nuslerp",
        2,
        False,
        {"weight": (1, 3)},
        {"nuslerp_flatten": False, "nuslerp_row_wise": True},
        "rows",
    ),
    Use("multislerp", base=False, models={"weight": (0.5, 0.3, 0.2)}),
    Use("multislerp", models={"weight": (0.5, 0.3, 0.2)}, variant="base"),
    Use("karcher", base=False, merge={"max_iter": 20}),
    Use("task_arithmetic", models={"weight": WEIGHTS}, merge={"lambda": 0.8}),
    Use("task_arithmetic", models={"weight": WEIGHTS}, merge={"normalize": True}, variant="mean"),
    Use("ties", models=KEEP),
    Use("ties", models=KEEP, merge={"rescale": True, "normalize": False}, variant="rescale"),
    Use("dare_linear", models=KEEP),
    Use("dare_ties", models=KEEP, merge={"rescale": False}),
    Use("dare_ties", models=KEEP, merge={"lambda": 1.2, "normalize": True}, variant="rescale"),
    Use("della", models=MOST, merge={"epsilon": 0.1}),
    Use("della_linear", models=MOST, merge={"epsilon": 0.05, "rescale": False}),
    Use("breadcrumbs", models=MOST, merge={"gamma": 0.02}),
    Use("breadcrumbs_ties", models=MOST, merge={"gamma": 0.02, "rescale": True}),
    Use("sce", merge={"select_topk": 0.4}),
    Use("sce", merge={"select_topk": 1.0}, variant="all"),
    Use("model_stock"),
    Use("model_stock", merge={"filter_wise": True}, variant="rows"),
    Use("nearswap", 1, merge={"t": 0.001}),
    Use("arcee_fusion", 1),
    Use("ram", merge={"epsilon": 1e-4}),
    Use("ramplus_tl", merge={"r": 0.2, "alpha": 0.3}),
    Use("consensus_ta", models={"weight": WEIGHTS, "threshold": (0.3, 0.4, 0.5)}),
    Use("iso_c", models={"weight": WEIGHTS}, merge={"lambda": 0.7}),
    Use("trimmed_mean", base=False),
    Use("trimmed_mean", base=False, merge={"trim": 0.34}, variant="mean"),
    Use("passthrough", 1, False, {"scale": (0.75,)}),
    Use("passthrough", 1, False, variant="copy"),
]


def recipe_of(use: Use, base: str, tunes: Sequence[str], **keys: Any) -> str:
    """The recipe in JSON, which is YAML too.

    Args:
        keys: further keys of the recipe.
    """
    models = []
    for number, tune in enumerate(tunes[: use.tunes]):
        parameters = {name: each[number] for name, each in (use.models or {}).items()}
        models.append({"model": tune, **({"parameters": parameters} if parameters else {})})
    document = {"merge_method": use.method, "models": models, **keys}
    if use.base:
        document["base_model"] = base
    if use.merge:
        document["parameters"] = dict(use.merge)
    return json.dumps(document, indent=1) + "\n"


def of_methods() -> Iterator[Case]:
    """Every method with bf16 models, with tensors of any shape, and some with f16 models."""
    for use in USES:
        name = f"{use.method}-{use.variant}" if use.variant else use.method
        bf16 = recipe_of(use, "base", ["math", "code", "chat"], dtype="bfloat16")
        yield Case(name, bf16)
        shapes = [f"shape-{letter}" for letter in "abc"]
        yield Case(f"{name}.shapes", recipe_of(use, "shape-base", shapes))
        if use.tunes < 3 or use.method in ("ties", "dare_ties", "della", "sce"):
            halves = ["half-math", "half-code", "mixed"]
            yield Case(f"{name}.f16", recipe_of(use, "half-base", halves, out_dtype="float16"))


GRADIENT = """\
# Comments and the order of keys are kept in the output.
merge_method: linear
models:
  - model: math
    parameters: {weight: [0, 0.5, 1]}
  - model: ./code
    parameters:
      weight:
        - {filter: self_attn, value: [1, 0.2]}
        - filter: mlp
          value: 0.7
        - value: 0.4
"""
FILTERS = """\
merge_method: ties
base_model: base
models:
  - model: math
    parameters: {density: [1, 0.6, 0.1], weight: 1.0}
  - model: {model: {path: code}}
    parameters:
      density: 0.33
      weight: [{filter: mlp, value: [0.2, 0.9]}, {filter: layers.2., value: 0}, {value: 0.3}]
parameters: {normalize: true, int8_mask: true, lambda: [1, 0.5]}
dtype: bfloat16
"""
SLERP = """\
merge_method: slerp
base_model: base
slices:
  - sources:
      - {model: base, layer_range: [0, 4]}
      - {model: math, layer_range: [0, 4]}
parameters:
  t:
    - {filter: self_attn, value: [0, 0.5, 0.3, 0.7, 1]}
    - {filter: mlp, value: [1, 0.5, 0.7, 0.3, 0]}
    - {value: 0.5}
"""
TASKS = """\
merge_method: task_arithmetic
base_model: BASE
models:
  - {model: MATH, parameters: {weight: 0.8}}
  - {model: CODE, parameters: {weight: 0.5}}
"""
DARE = """\
merge_method: dare_ties
base_model: base
models:
  - {model: math, parameters: {weight: 0.6}}
  - {model: code, parameters: {weight: 0.4}}
parameters: {density: 0.53}
dtype: bfloat16
"""
STACK = """\
merge_method: passthrough
slices:
  - sources: [{model: deep-a, layer_range: [0, 4]}]
  - sources:
      - model: deep-b
        layer_range: [1, 6]
        parameters:
          scale: [{filter: o_proj, value: 0}, {filter: down_proj, value: [0.5, 1.5]}, {value: 1}]
  - sources: [{model: deep-a, layer_range: [5, 6]}]
"""
LEVELS = """\
merge_method: linear
base_model: deep-a
slices:
  - sources:
      - {model: deep-a, layer_range: [0, 2], parameters: {weight: 0.7}}
      - {model: deep-b, layer_range: [2, 4]}
    parameters: {weight: [{filter: self_attn, value: [0.2, 0.4]}]}
  - sources:
      - {model: deep-b, layer_range: [1, 3]}
      - {model: deep-a, layer_range: [2, 4]}
parameters: {weight: [1, 1.5, 3], normalize: false}
dtype: float32
out_dtype: bfloat16
"""
MODULES = """\
merge_method: passthrough
modules:
  text_decoder:
    slices:
      - sources: [{model: seeing-a, layer_range: [0, 2]}]
        parameters: {scale: [0.5, 1.5]}
      - sources: [{model: seeing-b, layer_range: [1, 3]}]
  vision_tower:
    models: [{model: seeing-b}]
    parameters: {scale: 2}
  multi_modal_projector:
    models: [{model: seeing-a}]
"""
WORDS = """\
merge_method: linear
models:
  - {model: words-a, parameters: {weight: 0.5}}
  - {model: words-b, parameters: {weight: 0.3}}
  - {model: words-c, parameters: {weight: 0.2}}
"""
TIES_OF_WORDS = """\
merge_method: ties
base_model: words-a
models:
  - {model: words-b, parameters: {weight: 0.3, density: 0.5}}
  - {model: words-c, parameters: {weight: 0.2, density: 0.7}}
"""
PIECES = """\
merge_method: slerp
base_model: pieces-a
models: [{model: pieces-a}, {model: pieces-b}]
parameters: {t: 0.4}
"""
TOKENS = """\
tokenizer:
  source: union
  pad_to_multiple_of: 64
  tokens:
    "[A]": {source: words-a, force: true}
    "[B]": {source: {kind: zero}}
    "[new]": {source: {kind: model_token, model: words-b, token: "[B]"}}
    "<both>": {source: {kind: model_token, model: words-c, token_id: 4}}
"""
TEMPLATE = "chat_template: \"{% for m in messages %}{{ m['content'] }};{% endfor %}\"\n"


def linear(*models: str, **keys: Any) -> str:
    """An average, the first model counting most."""
    document = {
        "merge_method": "linear",
        "models": [
            {"model": model, "parameters": {"weight": 1 / (number + 2)}}
            for number, model in enumerate(models)
        ],
    }
    return json.dumps({**document, **keys}) + "\n"


def tasks(base: str, *tunes: str) -> str:
    text = TASKS.replace("BASE", base)
    return text.replace("MATH", tunes[0]).replace("CODE", tunes[1])


def copy(model: str, **keys: Any) -> str:
    document = {"merge_method": "passthrough", "models": [{"model": model}], **keys}
    return json.dumps(document) + "\n"


def of_features() -> Iterator[Case]:
    """What recipes and options can say besides the method."""
    yield Case("gradient", GRADIENT)
    yield Case("filters", FILTERS)
    yield Case("slerp-slices", SLERP)
    yield Case("stack", STACK)
    yield Case("stack-f16", STACK + "dtype: float16\n")
    yield Case("levels", LEVELS)
    yield Case("modules", MODULES)
    yield Case("other-names", tasks("gpt-base", "gpt-math", "gpt-base+lora-gpt"))
    yield Case("sentences", linear("sentence-a", "sentence-b"))

    merged = tasks("base", "math", "code")
    yield Case("out-dtype", merged + "dtype: float32\nout_dtype: bfloat16\n")
    yield Case("dtype-f16", merged + "dtype: float16\n")
    yield Case("dtype-f64", merged + "dtype: float32\nout_dtype: float64\n")
    yield Case("from-f64", linear("double", "math", dtype="float32"))
    yield Case("mixed-types", linear("mixed", "math"))
    yield Case("own-head", linear("half-base", "math"))
    yield Case("tied-head", linear("math", "half-math"))

    yield Case("torch", copy("torch"))
    yield Case("torch-and-others", tasks("base", "torch", "math") + "dtype: bfloat16\n")
    yield Case("lora", copy("base+lora"))
    yield Case("dora", copy("base+dora", dtype="float32"))
    yield Case("lora-merged", tasks("base", "base+lora", "base+dora") + "dtype: bfloat16\n")
    yield Case("lora-on-torch", linear("torch+lora", "code"), ("--shard-size", "700KB"))
    yield Case("lora-embedding", linear("words-a+lora-words", "words-a"))
    yield Case("lora-transposed", copy("gpt-base+lora-gpt"))

    yield Case("union", WORDS + "tokenizer_source: union\n")
    yield Case("union-base", TIES_OF_WORDS + "tokenizer_source: union\n")
    yield Case("union-unigram", PIECES + "tokenizer: {source: union}\n")
    yield Case("vocabulary-of-base", TIES_OF_WORDS + "tokenizer_source: base\n")
    yield Case("vocabulary-of-one", WORDS + "tokenizer_source: words-c\n")
    yield Case("tokens", WORDS + TOKENS)
    yield Case("tokens-base", TIES_OF_WORDS + TOKENS + "chat_template: chatml\n")
    yield Case("union-lora", linear("words-a+lora-words", "words-b", tokenizer_source="union"))
    yield Case("chat-auto", WORDS + "tokenizer_source: union\nchat_template: auto\n")
    yield Case("chat-llama3", linear("base", "math", chat_template="llama3"))
    yield Case("chat-own", merged + TEMPLATE)

    for size in ("100KB", "700KB", "3MB"):
        yield Case(f"shards-{size}", FILTERS, ("--shard-size", size))
    yield Case("shards-mixed", linear("mixed", "math"), ("--shard-size", "400KB"))
    for threads in ("1", "2", "3"):
        yield Case(f"threads-{threads}", FILTERS, ("--threads", threads))
        yield Case(f"threads-{threads}-dare", DARE, ("--threads", threads))
    for seed in ("7", "123456789"):
        yield Case(f"seed-{seed}", DARE, ("--seed", seed))
        della = Use("della", models=MOST)
        text = recipe_of(della, "base", ["math", "code", "chat"], dtype="bfloat16")
        yield Case(f"seed-{seed}-della", text, ("--seed", seed))
