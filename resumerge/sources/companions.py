"""Which files beside the weights belong to a model: tokenizer, configs, chat templates, code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

LARGEST = 100_000_000
"""Bytes; a file above this is data, not a companion."""

TEXT = frozenset({".json", ".jsonl", ".yaml", ".yml", ".txt", ".py", ".jinja"})

VOCABULARY = frozenset({".model", ".spm", ".tiktoken", ".bpe", ".vocab", ".v1", ".v3", ".v7"})
"""``.v1`` and on are the numbered SentencePiece files, as in ``tokenizer.model.v3``."""

OTHER_FORMATS = frozenset({"onnx", "openvino", "coreml", "metal", "original", "gguf"})
"""Folders that hold the model again, for another runtime."""


def companion_files(sizes: Mapping[str, int]) -> list[str]:
    """Choose the companion files of a model from a listing.

    They lie at the top level or one folder down, like sentence-transformers'
    ``1_Pooling/config.json``. Weights and their indexes, other formats, training leftovers and the
    model card are left out.

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
    if len(path.parts) == 2 and path.parts[0].lower().startswith(("checkpoint-", *OTHER_FORMATS)):
        return False
    if path.stem.lower() in ("readme", "trainer_state") or name.endswith(".index.json"):
        return False
    return path.suffix.lower() in TEXT | VOCABULARY
