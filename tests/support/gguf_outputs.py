"""Small checkpoints of the families that are written as GGUF, with tokenizers of both kinds."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from gguf_models import EXPERTS, FAMILIES, HEADS, HIDDEN, KEYS, LAYERS, WIDE, Arrays, Made
from safetensors.numpy import save_file

ROWS = 640
"""The rows of the embeddings, which are more than the tokens."""

LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_2 = LLAMA_3.replace(r"\p{N}{1,3}", r"\p{N}")

_TEXT = """The quick brown fox jumps over the lazy dog, and isn't tired: 1234567 times, it'll say.
def main(argument: int) -> None:
    print("Größe", argument + 3.14159)   # naïve café
Привет, мир! 你好，世界。 こんにちは 🦙🚀  \t tabs and   spaces\n\n\nNew lines.
We've been told he's there; don't you think they're right? I'D LIKE 100,000 of THEM.
"""

_PARTS = (
    *("hello world", "It's", "I'LL", "don't", " ", "  ", "\n", "\n\n", "\t", "12345", "3.14"),
    *("Größe", "café", "Привет", "你好，世界", "🦙🚀", "<tool>", "</s>", "a_b-c", "...!?", "\r\n"),
    *("def f(x):\n    return x", "ABCdef", "e\u0301", "\u00a0x", "'s't", "100,000"),
)


def texts(*more: str) -> list[str]:
    """Return texts of parts that tokenizers split in different ways, and of further parts."""
    draw, parts = random.Random(3), (*_PARTS, *more)
    return [
        "".join(draw.choice(parts) + draw.choice(("", " ")) for _ in range(draw.randint(1, 9)))
        for _ in range(200)
    ]


_KEYS: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "intermediate_size": WIDE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEYS,
    "max_position_embeddings": 128,
    "vocab_size": ROWS,
    "rms_norm_eps": 1e-6,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_EXPERTS = {"num_experts": EXPERTS, "num_experts_per_tok": 2}
_MORE: dict[str, dict[str, Any]] = {
    "mixtral": {"num_local_experts": EXPERTS, "num_experts_per_tok": 2, "sliding_window": None},
    "mistral": {"sliding_window": None},
    "phi3": {"sliding_window": 64},
    "gemma2": {"query_pre_attn_scalar": 128, "sliding_window": 32},
    "gemma3": {"query_pre_attn_scalar": 128, "sliding_window": 32},
    "qwen2moe": {
        **_EXPERTS,
        "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632,
    },
    "qwen3moe": {**_EXPERTS, "moe_intermediate_size": 768, "norm_topk_prob": True},
}
MADE: dict[str, Made] = {**FAMILIES, "mistral": replace(FAMILIES["llama"], model_type="mistral")}


def write_checkpoint(
    folder: Path, name: str = "llama", seed: int = 1, dtype: str = "float32", **config: Any
) -> Arrays:
    """Write a model of a family, with a config of transformers' class and a tokenizer.

    Returns:
        The tensors of the model, in float32.
    """
    from transformers import AutoConfig

    made = MADE[name]
    folder.mkdir()
    keys = {**_KEYS, "head_dim": made.head, "tie_word_embeddings": made.tied, **_MORE.get(name, {})}
    AutoConfig.for_model(made.model_type, **keys | config).save_pretrained(folder)
    tensors = made.tensors(seed)
    for key in ("model.embed_tokens.weight", "lm_head.weight"):
        if key in tensors:
            draw = np.random.default_rng([seed, len(key)])
            tensors[key] = (0.05 * draw.standard_normal((ROWS, HIDDEN))).astype(np.float32)
    if dtype == "bfloat16":
        import torch
        from safetensors.torch import save_file as save_torch

        narrow = {key: torch.from_numpy(value).bfloat16() for key, value in tensors.items()}
        save_torch(narrow, folder / "model.safetensors", {"format": "pt"})
        tensors = {key: value.float().numpy() for key, value in narrow.items()}
    else:
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    if name.startswith("gemma") or name in ("mistral", "mixtral", "phi3"):
        write_pieces(folder, prefix=not name.startswith("gemma"))
    else:
        write_bytes(folder, LLAMA_3 if name == "llama" else QWEN_2)
    return tensors


def write_bytes(folder: Path, expression: str | None = LLAMA_3, *, digits: bool = False) -> None:
    """Write a byte-level BPE that was trained on a few lines.

    Args:
        folder: the model's folder.
        expression: the regular expression that splits the text first; None for GPT-2's.
        digits: whether digits are split before that.
    """
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors, trainers
    from tokenizers.decoders import ByteLevel

    tokenizer = Tokenizer(models.BPE(ignore_merges=expression == LLAMA_3))
    bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=expression is None)
    steps: list[Any] = [bytes_of]
    if expression is not None:
        steps.insert(0, pre_tokenizers.Split(Regex(expression), "isolated"))
    if digits:
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else bytes_of
    tokenizer.decoder = ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=["<pad>", "<s>", "</s>", "<|user|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([_TEXT] * 8, trainer)
    tokenizer.add_tokens(["<tool>"])
    if expression == LLAMA_3:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
        )
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_settings(folder)


def write_pieces(folder: Path, *, prefix: bool = True) -> None:
    """Write a tokenizer.json as transformers makes it from a model that SentencePiece trained.

    Args:
        folder: the model's folder.
        prefix: whether a space is added before a text, as in Llama 2 and not in gemma.
    """
    import io

    import sentencepiece
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(_TEXT.splitlines() * 8),
        model_writer=trained,
        vocab_size=480,
        model_type="bpe",
        byte_fallback=True,
        pad_id=0,
        bos_id=1,
        eos_id=2,
        unk_id=3,
        pad_piece="<pad>",
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
        minloglevel=2,
    )
    pieces = sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())
    (folder / "pieces.model").write_bytes(trained.getvalue())
    vocab = {pieces.id_to_piece(n): n for n in range(pieces.get_piece_size())}
    merges = []
    for piece, number in sorted(vocab.items(), key=lambda item: item[1]):
        if number > 3 and not pieces.is_byte(number):
            cuts = [(piece[:n], piece[n:]) for n in range(1, len(piece))]
            merges += [cut for cut in cuts if cut[0] in vocab and cut[1] in vocab]
    tokenizer = Tokenizer(
        models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    to_signs = normalizers.Replace(" ", "\u2581")
    first = [normalizers.Prepend("\u2581")] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*first, to_signs]) if prefix else to_signs
    strips = [decoders.Strip(content=" ", left=1)] if prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), *strips]
    )
    tokenizer.add_special_tokens(["<pad>", "<s>", "</s>", "<unk>"])
    tokenizer.add_special_tokens(["<|user|>"])
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_settings(folder)


def _write_settings(folder: Path) -> None:
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "chat_template": "{% for m in messages %}<|user|>{{ m.content }}{% endfor %}",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
