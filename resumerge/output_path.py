"""The place of a run's model: a separate folder, or one file in a folder of the user's.

The form follows from the name alone, so a run has the same form on every machine. In a folder,
weight files have the names that loaders expect.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SUFFIX = ".safetensors"
"""The suffix of shards, and of an output that is a single weight file."""

GGUF = ".gguf"
"""The suffix of an output that is a single file with a whole model, for llama.cpp."""

ONE_FILE = (SUFFIX, GGUF)
"""The suffixes of outputs that are a single file."""

STEM = "model"
"""The beginning of the names of weight files that transformers loads."""

ADAPTER_STEM = "adapter_model"
"""The beginning of the names of weight files that PEFT loads."""

EXTRACTION = "extract_lora"
"""The method's name for a recipe that extracts an adapter, and the key of the recipe's section."""

CARD = "README.md"
"""The name of the model card. An edited card is never replaced, since users may edit it."""

STAGES = "stages"
"""The folder in the output that contains a folder for each kept stage."""

_STAGE = r"\w[\w.-]{0,99}"
"""The pattern of a folder name that is valid on every system."""

_SHARD = re.compile(
    rf"((({STAGES}/)?{_STAGE}/)?(\w+/)?(diffusion_pytorch_)?{STEM}(-[0-9]{{5}}-of-[0-9]{{5,6}})?"
    rf"|{ADAPTER_STEM}){re.escape(SUFFIX)}",
    re.ASCII,
)


def twin_of(name: str, others: Iterable[str]) -> str | None:
    """Return the name that would be the same folder on a disk that ignores case; None if none."""
    return next((other for other in others if other.lower() == name.lower()), None)


def shard_name(number: int, count: int, stem: str = STEM) -> str:
    """Return a shard's file name, which transformers and diffusers recognise.

    Args:
        number: the shard's number, counted from 0.
        count: the number of shards that the model has.
        stem: the beginning of the name, before the number.
    """
    if count == 1:
        return f"{stem}{SUFFIX}"
    return f"{stem}-{number + 1:05d}-of-{count:05d}{SUFFIX}"


def is_weights(name: str) -> bool:
    """Return whether a file in an output holds weights, by its suffix."""
    return name.endswith(ONE_FILE)


def is_shard_name(text: str) -> bool:
    """Return whether a shard can have this name in an output folder.

    If the shard belongs to a stage or variant, or to a component, the name begins with their
    folders.
    """
    return _SHARD.fullmatch(text) is not None


def is_stage_folder(name: str) -> bool:
    """Return whether this name of a kept stage's or variant's folder is valid on every system."""
    return re.fullmatch(_STAGE, name, re.ASCII) is not None


@dataclass(frozen=True)
class OutputPath:
    """The output that the user names.

    Args:
        path: the path of a folder or, with a suffix of `ONE_FILE`, of a file.
    """

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def is_file(self) -> bool:
        """Whether the output is a single file, without companions."""
        return self.path.suffix in ONE_FILE

    @property
    def is_gguf(self) -> bool:
        """Whether the output is a GGUF file."""
        return self.path.suffix == GGUF

    @property
    def folder(self) -> Path:
        """The folder of the run's files; for an output of one file, the folder that holds it."""
        return self.path.parent if self.is_file else self.path

    @property
    def model(self) -> str:
        """The model's name: the name of the folder, or of the file without its suffix."""
        return self.path.stem if self.is_file else self.path.name
