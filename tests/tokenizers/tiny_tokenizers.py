"""Small tokenizers of every family, trained on the spot and saved as transformers saves them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

PROSE = (
    "The merge of two models keeps what both of them know. A tokenizer cuts text into tokens, "
    "and every token has a row in the embedding. The quick brown fox jumps over the lazy dog. "
) * 4
CODE = (
    "def merge(models, weights): return sum(w * m for w, m in zip(weights, models))\n"
    "class Tokenizer: vocabulary = {}; merges = []\nfor layer in range(12): print(layer)\n"
) * 4
MIXED = (
    "Grüße aus Zürich, naïve café! Привет, мир. 日本語のテキスト、中文。 "
    "مرحبا بالعالم  🙂👩‍🚀  def f(x): return x**2\t# done\nनमस्ते"
)
"""Text in many scripts, with runs of blanks, a tab, a line break and an emoji of several parts."""

CHAT = (
    "{{ bos_token }}{% for message in messages %}<<{{ message['role'] }}>>{{ message['content'] }}"
    "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<<assistant>>{% endif %}"
)


def llama(corpus: str, size: int) -> Tokenizer:
    """Train a BPE with ``▁`` for blanks and bytes for unknown characters, as in Llama 2."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    head = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=size + len(head), special_tokens=head, show_progress=False
    )
    tokenizer.train_from_iterator(corpus.split("\n"), trainer)
    facts = json.loads(tokenizer.to_str())
    facts["added_tokens"] = facts["added_tokens"][:3]  # the bytes are plain entries
    tokenizer = Tokenizer.from_str(json.dumps(facts))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return tokenizer


def gpt2(corpus: str, size: int) -> Tokenizer:
    """Train a byte-level BPE, as in GPT-2: the special token has the last id."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    _train_bytes(tokenizer, corpus, size)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


def qwen(corpus: str, size: int) -> Tokenizer:
    """Train a byte-level BPE with NFC and a pattern, as in Qwen: special tokens are at the end."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    pattern = Regex(
        r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+"
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pattern, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    _train_bytes(tokenizer, corpus, size)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    return tokenizer


def unigram(corpus: str, size: int) -> Tokenizer:
    """Train a Unigram model with Metaspace, as in T5: a score for every token, no bytes."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=size,
        special_tokens=["<pad>", "</s>", "<unk>"],
        unk_token="<unk>",
        show_progress=False,
    )
    tokenizer.train_from_iterator([*corpus.split("\n"), MIXED], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    return tokenizer


def wordpiece(corpus: str, size: int) -> Tokenizer:
    """Train a WordPiece model with [CLS] and [SEP], as in BERT."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        show_progress=False,
    )
    tokenizer.train_from_iterator([*corpus.split("\n"), MIXED], trainer)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


FAMILIES: dict[str, Callable[[str, int], Tokenizer]] = {
    "llama": llama,
    "gpt2": gpt2,
    "qwen": qwen,
    "unigram": unigram,
    "wordpiece": wordpiece,
}
NAMED = {
    "llama": {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
    "gpt2": {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"},
    "qwen": {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
    "unigram": {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>"},
    "wordpiece": {
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "mask_token": "[MASK]",
    },
}


def write_tokenizer(
    folder: Path,
    family: str,
    corpus: str = PROSE,
    size: int = 120,
    added: Sequence[str] = (),
    special: Sequence[str] = (),
    chat_template: str | None = None,
) -> PreTrainedTokenizerFast:
    """Train a tokenizer and save it as transformers does.

    Args:
        size: about the size of the trained vocabulary, without bytes and special tokens.
        added: tokens added after training that are matched in the text.
        special: the same, and left out when decoding.
    """
    trained = FAMILIES[family](corpus, size)
    trained.add_tokens([AddedToken(token, normalized=False) for token in added])
    trained.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=trained, **NAMED[family])
    tokenizer.chat_template = chat_template
    tokenizer.save_pretrained(folder)
    return tokenizer


def _train_bytes(tokenizer: Tokenizer, corpus: str, size: int) -> None:
    trainer = trainers.BpeTrainer(
        vocab_size=size + 256,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus.split("\n"), trainer)
