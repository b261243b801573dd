"""Whether two versions of the program write the same bytes: to check that a refactoring is one.

Makes small models, merges recipes that use every method and most features with them, by the command
line alone, and prints for each recipe a SHA-256 of the output folder: of every file's name and
content. Nothing is left out, as no file of the output holds a path, a date or a version. The last
line has one hash over all recipes.

In the tree before the change, then in the tree after it:

    python benchmarks/identical.py --save before.json
    python benchmarks/identical.py --compare before.json

The second command exits with 1 and names the recipes and files that differ. It tests the package in
the folder that it is started in, or else the one that is installed; ``--command`` takes any other
command. ``RESUMERGE_KERNELS`` chooses the kernels, as ever.

The models are the same on every machine, but for the description inside of the torch checkpoint,
which the version of torch decides. Outputs are to be compared on one machine: singular vectors
(``iso_c``) come from a library that may compute them otherwise on another processor.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Tensors = dict[str, Floats]
Shapes = dict[str, tuple[int, ...]]
Json = dict[str, Any]
Hashes = dict[str, dict[str, str]]
"""SHA-256 of each file, by recipe and by the file's name."""

FAILED = "exit code"
"""In the place of files, where a recipe failed."""

HIDDEN, WIDE, HEADS, KEYS = 96, 160, 4, 2
ROWS = 6000
"""Of the embedding: more than two blocks of 2**18 elements, and no whole number of them."""

CHAT = "{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}{% endfor %}"


# Numbers, which only whole numbers and powers of two go into: they are the same everywhere


def numbers(name: str, shape: tuple[int, ...], scale: float) -> Floats:
    """Numbers that are about normally distributed, the same for the same name.

    Args:
        scale: a power of two; the numbers lie between twice it and minus twice it.
    """
    count = math.prod(shape)
    raw = np.random.PCG64(zlib.crc32(name.encode())).random_raw(count)
    sums = np.asarray(raw, np.uint64).astype("<u8").view("<u2").reshape(count, 4).sum(1, np.int64)
    found: Floats = ((sums - 131070).astype(np.float32) * np.float32(scale / 65536)).reshape(shape)
    return found


def tensors_of(shapes: Shapes, model: str) -> Tensors:
    """A tensor for every shape; norms are about one."""
    found = {}
    for name, shape in shapes.items():
        found[name] = numbers(f"{model} {name}", shape, 2**-5)
        if "norm" in name:
            found[name] += np.float32(1)
    return found


def tuned(base: Tensors, model: str) -> Tensors:
    """The tensors after a change of about a tenth; a quarter of the elements stay as they are."""
    found = {}
    for name, values in base.items():
        change = numbers(f"{model} {name}", values.shape, 2**-8)
        which = numbers(f"{model} {name} which", values.shape, 1)
        found[name] = values + np.where(which > np.float32(-0.4), change, np.float32(0))
    return found


# Files


def as_stored(values: NDArray[Any], kind: str) -> NDArray[Any]:
    """The numbers as a type of safetensors has them; BF16 as its upper halves of float32."""
    if kind == "BF16":
        bits = np.ascontiguousarray(values, np.float32).reshape(values.shape).view(np.uint32)
        upper: NDArray[Any] = (bits >> np.uint32(16)).astype(np.uint16)
        return upper
    plain = {"F16": np.float16, "F32": np.float32, "F64": np.float64, "I64": np.int64}
    stored: NDArray[Any] = values.astype(plain[kind])
    return stored


def write_safetensors(file: Path, stored: Mapping[str, tuple[str, NDArray[Any]]]) -> None:
    """Written here, as libraries may order tensors and pad headers otherwise in other versions.

    Args:
        stored: type and numbers of every tensor.
    """
    header: Json = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (kind, values) in stored.items():
        begin, end = end, end + values.nbytes
        shape = list(values.shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(values.tobytes() for _, values in stored.values())
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write_json(file: Path, value: Json) -> None:
    file.write_text(json.dumps(value, indent=2) + "\n")


def write_model(
    folder: Path,
    tensors: Mapping[str, NDArray[Any]],
    config: Json | None = None,
    kind: str = "BF16",
    kinds: Mapping[str, str] | None = None,
    shards: int = 1,
) -> Path:
    """A model folder.

    Args:
        kind: the tensors' type.
        kinds: other types, by a part of a tensor's name.
        shards: how many files the weights are in.
    """
    folder.mkdir()
    stored = {}
    for name, values in tensors.items():
        own = next((k for part, k in (kinds or {}).items() if part in name), kind)
        stored[name] = (own, as_stored(values, own))
    if config is not None:
        write_json(folder / "config.json", config)
    if shards == 1:
        write_safetensors(folder / "model.safetensors", stored)
        return folder
    weight_map: dict[str, str] = {}
    for number, names in enumerate(cut(list(stored), shards), 1):
        file = f"model-{number:05d}-of-{shards:05d}.safetensors"
        write_safetensors(folder / file, {name: stored[name] for name in names})
        weight_map |= dict.fromkeys(names, file)
    write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})
    return folder


def write_torch(folder: Path, tensors: Tensors, config: Json, parts: int) -> None:
    """A model in torch's own format, in bfloat16: some tensors transposed, two in one storage."""
    import torch

    folder.mkdir()
    write_json(folder / "config.json", config)
    found = {}
    for name, values in tensors.items():
        turned = "up_proj" in name
        bits = as_stored(values.T if turned else values, "BF16")
        tensor = torch.from_numpy(bits.view(np.int16).copy()).view(torch.bfloat16)
        found[name] = tensor.t() if turned else tensor
    first, second = (n for n in found if "layers.0." in n and "layernorm" in n)
    both = torch.cat([found[first], found[second]])
    found[first], found[second] = both[:HIDDEN], both[HIDDEN:]
    weight_map: dict[str, str] = {}
    for number, names in enumerate(cut(list(found), parts), 1):
        file = f"pytorch_model-{number:05d}-of-{parts:05d}.bin"
        torch.save({name: found[name] for name in names}, folder / file)
        weight_map |= dict.fromkeys(names, file)
    write_json(folder / "pytorch_model.bin.index.json", {"metadata": {}, "weight_map": weight_map})


def cut(names: list[str], parts: int) -> list[list[str]]:
    """A list in so many parts, one after the other."""
    size = -(-len(names) // parts)
    return [names[at : at + size] for at in range(0, len(names), size)]


# Models


def llama_config(layers: int = 4, **other: Any) -> Json:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": WIDE,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEYS,
        "vocab_size": ROWS,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "bfloat16",
        **other,
    }


def llama_shapes(config: Json) -> Shapes:
    """Name and shape of every tensor; no head where it is tied to the embedding."""
    hidden, wide, rows = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    keys = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    shapes: Shapes = {"model.embed_tokens.weight": (rows, hidden)}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        shapes |= {
            f"{at}.input_layernorm.weight": (hidden,),
            f"{at}.self_attn.q_proj.weight": (hidden, hidden),
            f"{at}.self_attn.k_proj.weight": (keys, hidden),
            f"{at}.self_attn.v_proj.weight": (keys, hidden),
            f"{at}.self_attn.o_proj.weight": (hidden, hidden),
            f"{at}.post_attention_layernorm.weight": (hidden,),
            f"{at}.mlp.gate_proj.weight": (wide, hidden),
            f"{at}.mlp.up_proj.weight": (wide, hidden),
            f"{at}.mlp.down_proj.weight": (hidden, wide),
        }
    shapes["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (rows, hidden)
    return shapes


def make_models(folder: Path) -> None:
    """Every model that the recipes name."""
    make_llamas(folder)
    make_shapes(folder)
    make_vocabularies(folder)
    make_others(folder)
    make_adapters(folder)


def make_llamas(folder: Path) -> None:
    """``base`` and fine-tunes of it in bf16; the same with other types, layers and files."""
    config = llama_config()
    base = tensors_of(llama_shapes(config), "base")
    write_model(folder / "base", base, config, shards=3)
    write_tokenizer(folder / "base", bpe(["merge", "model"]), template=CHAT)
    write_json(folder / "base" / "generation_config.json", {"eos_token_id": [2, 5], "top_k": 7})
    (folder / "base" / "LICENSE").write_text("Do what you like with it.\n")
    (folder / "base" / "notes.txt").write_text("No part of the model.\n")
    for name in ("math", "code", "chat"):
        write_model(folder / name, tuned(base, name), config, shards=2)
    write_torch(folder / "torch", tuned(base, "torch"), config, parts=2)

    mixed = {**tuned(base, "mixed"), "model.steps": np.arange(5, dtype=np.float32)}
    kinds = {"norm": "F32", "mlp": "F16", "steps": "I64"}
    write_model(folder / "mixed", mixed, config, kinds=kinds)
    write_model(folder / "double", tuned(base, "double"), config, kind="F64")

    tied = llama_config(tie_word_embeddings=True, torch_dtype="float16")
    half = {name: base[name] for name in llama_shapes(tied)}
    write_model(folder / "half-base", half, tied, kind="F16", shards=2)
    write_model(folder / "half-math", tuned(half, "half-math"), tied, kind="F16")
    write_model(folder / "half-code", tuned(half, "half-code"), tied, kind="F16")

    listed = ["full_attention", "sliding_attention", "full_attention"]
    deep = llama_config(6, vocab_size=50, layer_types=listed * 2, no_rope_layers=[1, 0, 1, 0, 0, 1])
    for name in ("deep-a", "deep-b"):
        write_model(folder / name, tensors_of(llama_shapes(deep), name), deep, kind="F32")


def make_shapes(folder: Path) -> None:
    """Tensors of any shape, in float32, without a config; some with odd values."""
    shapes: Shapes = {
        "scalar": (),
        "empty": (0,),
        "one": (1,),
        "seven": (7,),
        "square": (1, 1),
        "hollow": (3, 0),
        "flat": (1, 50),
        "high": (50, 1),
        "matrix": (40, 13),
        "cube": (4, 5, 6),
        "coarse": (30, 31),
        "wild": (20, 21),
        "same": (9, 9),
        "zeros": (8, 8),
        "long": (600_001,),
        "rows": (700, 401),
    }
    base = tensors_of(shapes, "shape-base")
    base["zeros"] *= np.float32(0)
    models = {"shape-base": base}
    models |= {f"shape-{letter}": tuned(base, f"shape-{letter}") for letter in "abc"}
    odd = [np.nan, np.inf, -np.inf, -0.0, 1e-41, 3e38, -3e38, 65520.0]
    for number, (name, tensors) in enumerate(models.items()):
        tensors["same"] = base["same"]
        tensors["coarse"] = np.round(numbers(f"{name} coarse", (30, 31), 4)) / np.float32(4)
        tensors["wild"].reshape(-1)[number::11][: len(odd)] = np.roll(odd, number)
        write_model(folder / name, tensors, kind="F32")


def bpe(words: Sequence[str]) -> Json:
    """The model of a tokenizer that puts these words together letter by letter."""
    pieces = ["<unk>", "<s>", "</s>", "▁", *"abcdefghijklmnopqrstuvwxyz"]
    merges = []
    for word in words:
        for end in range(1, len(word) + 1):
            pair = "▁" + word[: end - 1], word[end - 1]
            if "".join(pair) not in pieces:
                pieces.append("".join(pair))
                merges.append(" ".join(pair))
    vocab = {piece: number for number, piece in enumerate(pieces)}
    return {"type": "BPE", "unk_token": "<unk>", "vocab": vocab, "merges": merges}


def unigram(words: Sequence[str]) -> Json:
    """The model of a tokenizer that has these words whole, with scores."""
    pieces = ["<unk>", "<s>", "</s>", *(f"▁{word}" for word in words), *"abcdefghij"]
    vocab = [[piece, -float(number)] for number, piece in enumerate(pieces)]
    return {"type": "Unigram", "unk_id": 0, "vocab": vocab}


def write_tokenizer(
    folder: Path, model: Json, added: Sequence[str] = (), template: str | None = None
) -> None:
    """A tokenizer's files, into a model's folder.

    Args:
        added: tokens that follow those of the model.
        template: for chats.
    """
    definition = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    size = len(model["vocab"])
    contents = ["<unk>", "<s>", "</s>", *added]
    ids = [0, 1, 2, *range(size, size + len(added))]
    listed = {
        number: {"content": content, **definition, "special": content.startswith("<")}
        for number, content in zip(ids, contents)
    }
    blanks: Json = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}
    facts = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, **entry} for number, entry in listed.items()],
        "normalizer": None,
        "pre_tokenizer": blanks,
        "post_processor": None,
        "decoder": blanks,
        "model": model,
    }
    config: Json = {
        "added_tokens_decoder": {str(number): entry for number, entry in listed.items()},
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    if template is not None:
        config["chat_template"] = template
    write_json(folder / "tokenizer.json", facts)
    write_json(folder / "tokenizer_config.json", config)
    write_json(folder / "special_tokens_map.json", {"bos_token": "<s>", "eos_token": "</s>"})
    write_json(folder / "added_tokens.json", dict(zip(added, ids[3:])))


def make_vocabularies(folder: Path) -> None:
    """Models whose vocabularies differ: ``words-b`` goes on with that of ``words-a``."""
    a, b, c = ["merge", "model"], ["merge", "model", "layer"], ["token", "merge"]
    made: list[tuple[str, Json, list[str], str | None, int]] = [
        ("words-a", bpe(a), ["[A]", "<both>"], CHAT, 0),
        ("words-b", bpe(b), ["<both>", "[B]"], None, 3),
        ("words-c", bpe(c), ["[C]"], CHAT + "c", 11),
        ("pieces-a", unigram(a), ["[A]"], None, 0),
        ("pieces-b", unigram(c), ["[B]", "[A]"], CHAT, 5),
    ]
    for name, model, added, template, padding in made:
        tokens = len(model["vocab"]) + len(added)
        rows = tokens + padding
        config = llama_config(2, hidden_size=32, intermediate_size=40, vocab_size=rows)
        write_model(folder / name, tensors_of(llama_shapes(config), name), config, kind="F32")
        write_tokenizer(folder / name, model, added, template)
        numbered = {"pad_token_id": tokens - 1, "suppress_tokens": [3, tokens - 2]}
        write_json(folder / name / "generation_config.json", numbered)


def make_others(folder: Path) -> None:
    """A model of several parts, one of transposed weights, and one for sentences."""
    seeing = {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "text_config": {**llama_config(3), "vocab_size": 70, "hidden_size": 24},
        "vision_config": {"num_hidden_layers": 2, "hidden_size": 16},
    }
    text, image = "language_model.model", "vision_tower.vision_model"
    shapes: Shapes = {f"{text}.embed_tokens.weight": (70, 24), f"{text}.norm.weight": (24,)}
    for layer in range(3):
        shapes[f"{text}.layers.{layer}.mlp.up_proj.weight"] = (50, 24)
        shapes[f"{text}.layers.{layer}.mlp.down_proj.weight"] = (24, 50)
    for layer in range(2):
        shapes[f"{image}.encoder.layers.{layer}.mlp.fc1.weight"] = (16, 30)
    shapes |= {f"{image}.post_layernorm.weight": (16,), "multi_modal_projector.weight": (24, 16)}
    for name in ("seeing-a", "seeing-b"):
        write_model(folder / name, tensors_of(shapes, name), seeing, kind="F32")

    gpt = {"model_type": "gpt2", "n_layer": 2, "n_embd": 24, "vocab_size": 60}
    parts: Shapes = {"wte.weight": (60, 24), "wpe.weight": (32, 24), "ln_f.weight": (24,)}
    for layer in range(2):
        parts[f"h.{layer}.attn.c_attn.weight"] = (24, 72)
        parts[f"h.{layer}.attn.c_attn.bias"] = (72,)
    plain = tensors_of(parts, "gpt-base")
    write_model(folder / "gpt-base", plain, gpt, kind="F32")
    named = {f"transformer.{name}": values for name, values in tuned(plain, "gpt-math").items()}
    write_model(folder / "gpt-math", named, gpt, kind="F32")

    bert = {"model_type": "bert", "num_hidden_layers": 2, "hidden_size": 20, "vocab_size": 40}
    shapes = {"embeddings.word_embeddings.weight": (40, 20)}
    for layer in range(2):
        shapes[f"encoder.layer.{layer}.output.dense.weight"] = (20, 20)
    for name in ("sentence-a", "sentence-b"):
        place = write_model(folder / name, tensors_of(shapes, name), bert, kind="F16")
        (place / "modules.json").write_text('[{"idx": 0, "name": "0", "path": ""}]\n')
        (place / "1_Pooling").mkdir()
        write_json(place / "1_Pooling" / "config.json", {"word_embedding_dimension": 20})


def make_adapters(folder: Path) -> None:
    """LoRA adapters: a plain one, one with magnitudes, one of embeddings, one of transposed
    weights.
    """
    shapes = llama_shapes(llama_config())
    chosen = [n for n in shapes if "q_proj" in n or "v_proj" in n or "down_proj" in n]
    plain = low_rank({name: shapes[name] for name in chosen}, "lora")
    write_adapter(folder / "lora", plain, {"r": 4, "lora_alpha": 8})

    dora = low_rank({name: shapes[name] for name in chosen}, "dora")
    for name in chosen:
        key = name.replace(".weight", ".lora_magnitude_vector")
        size = numbers(f"dora {key}", shapes[name][:1], 2**-4)
        dora[f"base_model.model.{key}"] = np.abs(size) + np.float32(0.25)
    dora["base_model.model.lm_head.weight"] = numbers("dora head", (ROWS, HIDDEN), 2**-5)
    patterns = {"q_proj": 3, "layers.1.mlp.down_proj": 5}
    facts: Json = {"r": 4, "lora_alpha": 6, "use_dora": True, "use_rslora": True}
    facts |= {"alpha_pattern": patterns, "modules_to_save": ["lm_head"]}
    write_adapter(folder / "dora", dora, facts, kind="F16")

    rows = len(json.loads((folder / "words-a" / "tokenizer.json").read_text())["model"]["vocab"])
    at = "base_model.model.model.embed_tokens.lora_embedding"
    embedding = {f"{at}_A": numbers("A", (3, rows + 2), 2**-3)}
    embedding[f"{at}_B"] = numbers("B", (32, 3), 2**-3)
    write_adapter(folder / "lora-words", embedding, {"r": 3, "lora_alpha": 3})
    write_tokenizer(folder / "lora-words", bpe(["merge", "model"]), ["[A]", "<both>"], CHAT + "l")

    turned = low_rank({f"h.{n}.attn.c_attn.weight": (72, 24) for n in (0, 1)}, "lora-gpt")
    names = {name: name.replace(".model.h.", ".model.transformer.h.") for name in turned}
    turned = {names[name]: values for name, values in turned.items()}
    write_adapter(folder / "lora-gpt", turned, {"r": 4, "lora_alpha": 4, "fan_in_fan_out": True})


def low_rank(shapes: Shapes, adapter: str) -> Tensors:
    """The two matrices of rank 4 for each weight, of shape (out, in)."""
    found = {}
    for name, (rows, columns) in shapes.items():
        at = f"base_model.model.{name.removesuffix('.weight')}"
        found[f"{at}.lora_A.weight"] = numbers(f"{adapter} {at} A", (4, columns), 2**-4)
        found[f"{at}.lora_B.weight"] = numbers(f"{adapter} {at} B", (rows, 4), 2**-4)
    return found


def write_adapter(folder: Path, tensors: Tensors, facts: Json, kind: str = "F32") -> None:
    folder.mkdir()
    write_json(folder / "adapter_config.json", {"peft_type": "LORA", **facts})
    stored = {name: (kind, as_stored(values, kind)) for name, values in tensors.items()}
    write_safetensors(folder / "adapter_model.safetensors", stored)


# Recipes


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


# Merging, and what came out


@dataclass(frozen=True)
class Program:
    """The command that is tested, and where it works."""

    command: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command, *arguments],
            cwd=self.folder,
            env=dict(self.environment),
            capture_output=True,
            text=True,
        )

    def merge(self, case: Case) -> dict[str, str]:
        """SHA-256 of every file of the output, by its name; how it ended if it failed."""
        place = self.folder / f"merge {case.name}"
        place.mkdir()
        recipe, out = place / "recipe.yaml", place / "merged"
        recipe.write_text(case.recipe)
        state = ("--state-dir", str(place / "state"))
        ended = self.run("run", str(recipe), str(out), *state, "--no-supervise", *case.options)
        if ended.returncode:
            print(f"{case.name} failed:\n{ended.stderr.strip()}", file=sys.stderr)
            files = {FAILED: str(ended.returncode)}
        else:
            files = hashed(out)
        shutil.rmtree(place)
        return files


def hashed(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def together(lines: Mapping[str, str]) -> str:
    """One SHA-256 of names and their hashes, in the order of the names."""
    text = "".join(f"{name} {value}\n" for name, value in sorted(lines.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def differences(before: Hashes, after: Hashes) -> Iterator[str]:
    """What is not the same, a line for each recipe."""
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            yield f"{name}: only {'after' if old is None else 'before'}"
        elif old != new:
            files = sorted(f for f in old.keys() | new.keys() if old.get(f) != new.get(f))
            yield f"{name}: {', '.join(files)}"


def program(command: str | None, folder: Path) -> Program:
    """The command, looking for the package in the working folder first."""
    environment = dict(os.environ)
    paths = [str(Path.cwd()), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    if command is not None:
        return Program(tuple(shlex.split(command)), folder, environment)
    python = Program((sys.executable,), folder, environment)
    found = python.run("-c", "import resumerge; print(resumerge.__file__)")
    print(f"testing {found.stdout.strip() or found.stderr.strip()}", file=sys.stderr)
    return Program((sys.executable, "-m", "resumerge"), folder, environment)


def missed_methods(tested: Program) -> list[str]:
    """Methods of the program that no recipe uses."""
    ended = tested.run("methods", "--json")
    if ended.returncode:
        raise SystemExit(f"The command does not work:\n{ended.stderr.strip()}")
    listed = {method["name"] for method in json.loads(ended.stdout)["methods"]}
    return sorted(listed - {use.method for use in USES})


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--command", help="what is run (default: python -m resumerge)")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="recipes with this in their name"
    )
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the hashes to a file")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="compare with a saved file")
    parser.add_argument("--jobs", type=int, default=2, help="recipes at the same time (2)")
    options = parser.parse_args()
    before: Hashes | None = None
    if options.compare is not None:
        before = json.loads(options.compare.read_text())
    start = time.perf_counter()
    found: Hashes = {}
    with tempfile.TemporaryDirectory(prefix="identical-") as name:
        folder = Path(name).resolve()
        make_models(folder)
        tested = program(options.command, folder)
        if missed := missed_methods(tested):
            print(f"no recipe uses {', '.join(missed)}", file=sys.stderr)
        cases = [case for case in (*of_methods(), *of_features()) if options.only in case.name]
        with ThreadPoolExecutor(options.jobs) as pool:
            for case, files in zip(cases, pool.map(tested.merge, cases)):
                found[case.name] = files
                print(f"{case.name:28} {together(files)}", flush=True)
    failed = [name for name, files in found.items() if FAILED in files]
    every = together({name: together(files) for name, files in found.items()})
    print(f"{f'all {len(found)}':28} {every}", flush=True)
    print(f"{len(failed)} failed, {time.perf_counter() - start:.0f} s", file=sys.stderr)
    if options.save is not None:
        options.save.write_text(json.dumps(found, indent=1) + "\n")
    if before is None:
        return bool(failed)
    before = {name: files for name, files in before.items() if options.only in name}
    changed = list(differences(before, found))
    for line in changed:
        print(f"differs: {line}", file=sys.stderr)
    return bool(failed or changed)


if __name__ == "__main__":
    sys.exit(main())
