"""The place of a run's model: a folder of its own, or one file in a folder of the user's.

The name alone decides, so that a run has the same form on every machine. In a folder the weight
files have names that loaders look for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

SUFFIX = ".safetensors"
"""The suffix of shards, and of an output that is one file of weights alone."""

GGUF = ".gguf"
"""The suffix of an output that is one file with a whole model, for llama.cpp."""

ONE_FILE = (SUFFIX, GGUF)
"""The suffixes of outputs that are one file."""

STEM = "model"
"""The beginning of the names of files that transformers looks for."""

ADAPTER_STEM = "adapter_model"
"""The same of files that peft looks for."""

EXTRACTION = "extract_lora"
"""The name that stands for the method of a recipe that extracts an adapter; the key of its part."""

CARD = "README.md"
"""The name of the model card. A user may edit the card, so an edited one stays as it is."""

STAGES = "stages"
"""The folder in the output that has a folder for each stage that is kept."""

_STAGE = r"\w[\w.-]{0,99}"
"""The pattern of a folder's name that every system takes."""

_SHARD = re.compile(
    rf"((({STAGES}/)?{_STAGE}/)?(\w+/)?(diffusion_pytorch_)?{STEM}(-[0-9]{{5}}-of-[0-9]{{5,6}})?"
    rf"|{ADAPTER_STEM}){re.escape(SUFFIX)}",
    re.ASCII,
)


def shard_name(number: int, count: int, stem: str = STEM) -> str:
    """Return the name of a shard that transformers and diffusers look for.

    Args:
        number: the shard's number, counted from 0.
        count: the number of shards that the model has.
        stem: the beginning of the name.
    """
    if count == 1:
        return f"{stem}{SUFFIX}"
    return f"{stem}-{number + 1:05d}-of-{count:05d}{SUFFIX}"


def is_weights(name: str) -> bool:
    """Return whether a file of a model that a merge wrote holds weights, by its suffix."""
    return name.endswith(ONE_FILE)


def is_shard_name(text: str) -> bool:
    """Return whether a shard can have this name where the output is a folder.

    The name begins with the folder of its stage or variant, and that of its component, if it has
    them.
    """
    return _SHARD.fullmatch(text) is not None


def is_stage_folder(name: str) -> bool:
    """Return whether the folder of a kept stage, or a variant, can have this name everywhere."""
    return re.fullmatch(_STAGE, name, re.ASCII) is not None


@dataclass(frozen=True)
class OutputPath:
    """The output as the user names it.

    Args:
        path: the path of a folder or, with a suffix of `ONE_FILE`, of a file.
    """

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def is_file(self) -> bool:
        """Whether one file is all that is written."""
        return self.path.suffix in ONE_FILE

    @property
    def is_gguf(self) -> bool:
        """Whether the file is a model in GGUF."""
        return self.path.suffix == GGUF

    @property
    def folder(self) -> Path:
        """The folder of the run's files. For an output of one file, it is the user's."""
        return self.path.parent if self.is_file else self.path

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.path.stem if self.is_file else self.path.name
