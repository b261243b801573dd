"""Small Llamas whose vocabulary is that of a tokenizer trained on the spot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tiny_models import LLAMA, llama_shapes, random_tensors, write_model
from tiny_tokenizers import CHAT, CODE, write_tokenizer
from tokenizers import Tokenizer
from torch import Tensor

TOKENS = ("model.embed_tokens.weight", "lm_head.weight")


def write_token_model(
    folder: Path,
    family: str,
    seed: int,
    padding: int = 0,
    config: dict[str, Any] | None = None,
    **tokenizer: Any,
) -> Path:
    """Write a model folder with a tokenizer.

    Args:
        seed: the seed of the weights.
        padding: rows that the embedding has beyond the tokenizer's tokens.
        config: settings that differ from a Llama of one layer.
        tokenizer: arguments of `write_tokenizer`.
    """
    tokens = len(write_tokenizer(folder, family, **tokenizer))
    facts = {**LLAMA, "num_hidden_layers": 1, **(config or {}), "vocab_size": tokens + padding}
    tensors = random_tensors(llama_shapes(facts), seed, str(facts["dtype"]))
    return write_model(folder, tensors, facts)


def write_relatives(folder: Path, family: str) -> Path:
    """Write ``FAMILY-a`` and ``-b`` with one vocabulary and different added tokens, and ``-c``.

    ``FAMILY-c`` is of the same kind, with another vocabulary and a padded embedding.
    """
    write_token_model(
        folder / f"{family}-a",
        family,
        1,
        added=["[A1]", "shared"],
        special=["<|spA|>"],
        chat_template=CHAT,
    )
    write_token_model(
        folder / f"{family}-b", family, 2, added=["shared", "[B1]"], special=["<|spB|>", "<|x|>"]
    )
    write_token_model(
        folder / f"{family}-c",
        family,
        3,
        padding=7,
        corpus=CODE,
        added=["[C1]", "[B1]"],
        chat_template=CHAT + "c",
    )
    return folder


def vocabulary(folder: Path) -> dict[str, int]:
    """Return every token with its number."""
    return dict(Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab())


def rows_by_token(folder: Path, tensor: Tensor) -> dict[str, Tensor]:
    """Return a tensor's row of each token."""
    return {token: tensor[number] for token, number in vocabulary(folder).items()}


def json_of(folder: Path, name: str = "config.json") -> dict[str, Any]:
    return dict(json.loads((folder / name).read_text()))
