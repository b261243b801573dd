"""mergekit's options that are accepted without effect, and those that are not supported yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resumerge.recipe.unfit import Unfit, describe

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
_UNSUPPORTED = {
    "tokenizer": "Delete it: the base model's tokenizer, or else the first model's, is copied",
    "tokenizer_source": "Write 'tokenizer_source: base', or delete it",
    "chat_template": "Delete it: the base model's chat template is copied with its tokenizer. "
    "To use another, edit chat_template in the output's tokenizer_config.json",
}
OPTIONS = frozenset(_WITHOUT_MEANING) | frozenset(_UNSUPPORTED)
"""Keys of the top level that `read_options` speaks for."""


def read_options(top: Mapping[Any, Any]) -> tuple[list[str], list[Unfit]]:
    """What to say about the options on a recipe's top level: notes, and what is unsupported.

    An option that is null is not there. ``tokenizer_source`` is accepted where it names the base
    model, since the base's tokenizer is the one that is copied.
    """
    notes = [
        f"{name} has no effect: {why}" for name, why in _WITHOUT_MEANING.items() if name in top
    ]
    unfits = []
    for name, fix in _UNSUPPORTED.items():
        value = top.get(name)
        if value is None:
            continue
        if _means_the_base(name, value, top.get("base_model")):
            notes.append(
                f"{name} has no effect: the base's tokenizer is copied anyway, and embeddings are "
                "merged row by row, so all models must number their tokens alike"
            )
            continue
        unfits.append(
            Unfit(
                f"The option '{name}' is not supported yet",
                expected="a recipe without it",
                found=describe(value),
                fix=fix,
                at=(name,),
            )
        )
    return notes, unfits


def _means_the_base(name: str, value: object, base: object) -> bool:
    if name == "tokenizer" and isinstance(value, Mapping) and set(value) == {"source"}:
        value = value["source"]
    elif name != "tokenizer_source":
        return False
    return value == "base" or (base is not None and value == base)
