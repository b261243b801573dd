"""Which files beside the weights belong to a model: tokenizer, configs, chat templates, code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

LARGEST = 100_000_000
"""Bytes; a file above this is data, not a companion."""

TEXT = frozenset({".json", ".jsonl", ".yaml", ".yml", ".txt", ".py", ".jinja"})

VOCABULARY = frozenset({".model", ".spm", ".tiktoken", ".bpe", ".vocab", ".v1", ".v3", ".v7"})
"""``.v1`` and on are the numbered SentencePiece files, as in ``tokenizer.model.v3``."""

NEEDED_FOLDERS = re.compile(r"\d+_\w+|additional_chat_templates")
"""The folders that a model is opened with: sentence-transformers' modules (``1_Pooling``,
``2_Dense``) and chat templates. All others hold the model again in another format, or its history.
"""

MODULE_WEIGHTS = frozenset({"model.safetensors", "pytorch_model.bin"})
"""What a module of sentence-transformers keeps its own weights in; a dense layer's are small."""

LEFTOVERS = re.compile(
    r"readme|trainer_state|trainer_log|.*_results|requirements.*|dataset_infos?|mergekit_config"
    r"|adapter_\w+|quantize_config|params|.*\.index"
)
"""Stems of files that tell how a model was made, or belong to its weights as they were."""

_OF_TOKENIZERS = re.compile(
    r"(tokenizer|added_tokens|special_tokens_map|vocab|merges|chat_template|spiece|sentencepiece)"
    r"[\w.]*\.(json|jinja|txt|model|spm|v\d+|bpe|tiktoken|vocab)|.+\.(model|spm|bpe|tiktoken|vocab)"
)


def companion_files(sizes: Mapping[str, int]) -> list[str]:
    """Choose the companion files of a model from a listing.

    They lie at the top level or in a folder that the model is opened with, like
    sentence-transformers' ``1_Pooling/config.json``. Weights and their indexes, other formats,
    training leftovers and the model card are left out.

    Args:
        sizes: bytes by file name, with ``/`` between folders.

    Returns:
        The names chosen, sorted. config.json is among them.
    """
    return sorted(name for name, size in sizes.items() if size <= LARGEST and _belongs(name))


def folder_companions(folder: Path) -> list[str]:
    """`companion_files` of a local folder."""
    found = [path for pattern in ("*", "*/*") for path in folder.glob(pattern) if path.is_file()]
    return companion_files(
        {path.relative_to(folder).as_posix(): path.stat().st_size for path in found}
    )


def _belongs(name: str) -> bool:
    path = PurePosixPath(name)
    if path.is_absolute() or "\\" in name or len(path.parts) > 2:
        return False
    if any(part.startswith(".") for part in path.parts):
        return False
    if len(path.parts) == 2:
        if not NEEDED_FOLDERS.fullmatch(path.parts[0]):
            return False
        if path.name in MODULE_WEIGHTS:
            return True
    if LEFTOVERS.fullmatch(path.stem.lower()):
        return False
    return path.suffix.lower() in TEXT | VOCABULARY


def is_tokenizer_file(name: str) -> bool:
    """Whether a companion belongs to the tokenizer."""
    return _OF_TOKENIZERS.fullmatch(name) is not None
