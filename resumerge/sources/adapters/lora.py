"""A model with a LoRA adapter as one source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from resumerge.errors import InputError
from resumerge.recipe.types import ModelRef
from resumerge.sources.adapter_programs import PROGRAMS, AdapterProgram
from resumerge.sources.adapter_programs.config import LoraConfig
from resumerge.sources.adapters.heads import classifier, is_language_head
from resumerge.sources.adapters.pairing import pair
from resumerge.sources.adapters.refusals import without_config
from resumerge.sources.adapters.weight_tying import AdapterTies
from resumerge.sources.left_out import LeftOut
from resumerge.sources.tied_names import is_embedding
from resumerge.sources.types import Source
from resumerge.tensor_uses import UnusedReason
from resumerge.tensors import Tensor, with_stored

SHOWN = 5
"""The largest number of problems of one adapter that are reported."""


def with_adapter(ref: ModelRef, base: Source, adapter: Source) -> Source:
    """Return a model with an adapter. Its tensors are expressions that are not computed yet.

    If the adapter makes tied tensors different, the result is not tied
    (``tie_word_embeddings: false``), as in training. An embedding with another number of rows than
    the base's changes ``vocab_size``. The adapter of a classifier makes the model a classifier, in
    which the adapter's head replaces the language model's head.

    Args:
        ref: ``model+adapter`` as the recipe names it.
        base: the model without the adapter.
        adapter: the adapter, opened like a model: its config is an adapter's, and its tensors have
            the names of the program that wrote it.

    Raises:
        InputError: the adapter is not a LoRA, is of an unsupported variant, or does not fit the
            model.
    """
    program = program_of(adapter)
    settings = program.settings(adapter)
    is_stage = base.kind == "stage"  # a stage has no files; its adapter is a separate source
    folders = ("", "") if is_stage else ("base/", "adapter/")
    ties = AdapterTies(base, settings, in_folder(folders[0], base.tensors))
    peft_tensors = program.renamed(in_folder(folders[1], adapter.tensors))
    pairing = pair(base, adapter, settings, ties, peft_tensors)
    tensors, config = ties.after(pairing.tensors)
    sources_by_folder = {} if is_stage else dict(zip(folders, (base, adapter)))
    if pairing.problems:
        raise InputError(pairing.problems[:SHOWN])
    is_pinned = bool(base.revision or adapter.revision)
    return Source(
        ref=ref,
        kind="stage" if is_stage else "lora",
        folder=base.folder,
        revision=f"{base.revision}+{adapter.revision}" if is_pinned else None,
        config=_config(config, base, tensors, settings, pairing.new_head),
        tensors=tensors,
        files={
            prefix + name: replace(file, name=prefix + name)
            for prefix, source in sources_by_folder.items()
            for name, file in source.files.items()
        },
        companions={
            prefix + name: replace(file, name=prefix + name)
            for prefix, source in sources_by_folder.items()
            for name, file in source.companions.items()
        },
        base=base,
        adapter=adapter,
        single=base.single,
        notes=(*base.notes, *adapter.notes, *pairing.notes),
        components=base.components,
        modules=base.modules,
        left_out=(
            *_replaced(ties.tensors, pairing.tensors),
            *_tied(pairing.tensors, tensors),
            *pairing.left_out,
            *(
                replace(entry, tensor=_in_file(folders[0], entry.tensor))
                for entry in base.left_out
                if not is_stage
            ),
        ),
    )


def program_of(adapter: Source) -> AdapterProgram:
    """Return the program that wrote an adapter.

    Raises:
        InputError: the adapter has no config, and no single program writes all of its names.
    """
    for program in PROGRAMS:
        if program.wrote(adapter.config, adapter.tensors):
            return program
    raise without_config(adapter)


def in_folder(folder: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a part of a source with `folder` before the names of their files.

    Args:
        folder: the part's prefix in `Source.files`: ``base/`` or ``adapter/``.
        tensors: the tensors of the part, by name.
    """
    return {name: _in_file(folder, tensor) for name, tensor in tensors.items()}


def _in_file(folder: str, tensor: Tensor) -> Tensor:
    return with_stored(tensor, lambda stored: replace(stored, file=folder + stored.file))


def _replaced(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> Iterator[LeftOut]:
    """Yield the model's tensors that the adapter changes or replaces."""
    for name, tensor in before.items():
        is_removed_head = name not in after and is_language_head(name)
        if is_removed_head or after.get(name, tensor) is not tensor:
            yield LeftOut(tensor, UnusedReason.REPLACED)


def _tied(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> Iterator[LeftOut]:
    """Yield the tensors whose names mean another tensor after tying."""
    for name, tensor in before.items():
        if after.get(name) is not tensor:
            yield LeftOut(tensor, UnusedReason.TIED)


def _config(
    config: dict[str, Any],
    base: Source,
    tensors: Mapping[str, Tensor],
    settings: LoraConfig,
    new_head: Mapping[str, Tensor],
) -> dict[str, Any]:
    """Return a config.json that fits the tensors with the adapter."""
    if new_head:
        config = classifier(config, settings, new_head)
    row_counts = [
        (base_tensor.shape[0], tensors[name].shape[0])
        for name, base_tensor in base.tensors.items()
        if is_embedding(name)
        and base_tensor.shape
        and tensors[name].shape[0] != base_tensor.shape[0]
    ]
    for old_count, new_count in row_counts:
        config = _with_value(config, "vocab_size", old_count, new_count)
    return config


def _with_value(config: Mapping[str, Any], key: str, old: Any, new: Any) -> dict[str, Any]:
    """Return a config with `new` for each `key` whose value was `old`, also in nested configs."""
    return {
        name: _with_value(value, key, old, new)
        if isinstance(value, Mapping)
        else (new if name == key and value == old else value)
        for name, value in config.items()
    }
