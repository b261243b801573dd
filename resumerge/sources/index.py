"""Which files a model or an adapter is made of, and which of them holds which tensor."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import PurePosixPath

from resumerge.errors import refuse

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


@dataclass(frozen=True)
class Contents:
    """The names of the files that something is saved as.

    Args:
        config: the configuration's.
        weights: the pairs of an index and the single file that is there where there is no index;
            the first that is found is read.
    """

    config: str
    weights: tuple[tuple[str, str], ...]

    @property
    def expected(self) -> str:
        """What a folder should have held, for messages."""
        return ", or ".join(f"{single} or {index} and its files" for index, single in self.weights)


MODEL = Contents(
    "config.json",
    ((INDEX_FILE, SINGLE_FILE), ("pytorch_model.bin.index.json", "pytorch_model.bin")),
)
ADAPTER = Contents(
    "adapter_config.json",
    (
        ("adapter_model.safetensors.index.json", "adapter_model.safetensors"),
        ("adapter_model.bin.index.json", "adapter_model.bin"),
    ),
)


def parse_index(raw: bytes, where: str) -> dict[str, str]:
    """Tensor name to file name, with files outside the model's folder refused.

    Raises:
        InputError: not JSON, no ``weight_map``, or a file name that leads out of the folder.
    """
    try:
        weight_map = json.loads(raw.decode())["weight_map"]
        pairs = {str(tensor): str(file) for tensor, file in weight_map.items()}
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        raise refuse(
            "The index is not readable",
            where=where,
            expected='a JSON object with "weight_map": {tensor: file}',
            found=repr(raw[:60])[1:] if raw else "an empty file",
            fix="download or save this file again",
        ) from None
    for tensor, file in pairs.items():
        path = PurePosixPath(file)
        if path.is_absolute() or ".." in path.parts or "\\" in file or "\0" in file or not file:
            raise refuse(
                "The index names a file outside the model's folder",
                where=where,
                expected="a file name such as model-00001-of-00002.safetensors",
                found=f"{file!r} for tensor {tensor!r}",
                fix="do not use this model: its index is broken or malicious",
            )
    return pairs
