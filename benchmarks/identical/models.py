"""Small models of many kinds, the same on every machine."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Tensors = dict[str, Floats]
Shapes = dict[str, tuple[int, ...]]
Json = dict[str, Any]

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
