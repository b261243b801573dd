"""mergekit's options that are accepted without effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_OF_THE_COMMAND_LINE = {
    "out_shard_size": "give --shard-size to 'resumerge run' instead",
    "random_seed": "give --seed to 'resumerge run' instead",
    "cuda": "give --device to 'resumerge run' instead",
    "low_cpu_memory": "memory is bounded anyway",
    "lazy_unpickle": "files are never loaded whole anyway",
    "copy_tokenizer": "the tokenizer is copied anyway",
    "trust_remote_code": "a model's own code is never run",
    "allow_crimes": "architectures are not compared",
}
_WITHOUT_MEANING = {
    "input_model_parameters": "mergekit ignores it; write each model's parameters below its name",
    "name": "a merge is named by its output folder",
    "int8_mask": "masks take no memory to speak of, and mergekit ignores it here too",
    **_OF_THE_COMMAND_LINE,
}
OPTIONS = frozenset(_WITHOUT_MEANING)
"""Keys of the top level that `read_options` speaks for."""


def read_options(top: Mapping[Any, Any]) -> list[str]:
    """What to say about the options on a recipe's top level, a note each."""
    return [f"{name} has no effect: {why}" for name, why in _WITHOUT_MEANING.items() if name in top]
