"""The files beside the shards, in the order in which the engine writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from resumerge.output.adapter_files import adapter_files
from resumerge.output.card import model_card
from resumerge.output.config import main_dtype, output_config
from resumerge.output.index import index_files
from resumerge.output.token_ids import remap_token_ids
from resumerge.output_path import CARD
from resumerge.planning.plan import Plan
from resumerge.sources import MetadataCache, Source, fetch, list_companions
from resumerge.sources.companions import is_tokenizer_file
from resumerge.sources.pipelines import PIPELINE
from resumerge.sources.quantised import unquantised_config
from resumerge.tokenizers.companion_content import companion
from resumerge.tokenizers.origin import tokenizer_part
from resumerge.tokenizers.output_files import tokenizer_files
from resumerge.tokenizers.vocabulary import read_json

GENERATION = "generation_config.json"

RECIPE_IN_OUTPUT = "mergekit_config.yml"
"""The name of the output's file with the recipe. mergekit writes its recipe to the same name."""


def companions(
    plan: Plan,
    name: str,
    metadata: MetadataCache,
    contents: Mapping[str, str],
    *,
    section: Sequence[str] = (),
    offline: bool = False,
) -> Iterator[tuple[str, bytes | Path]]:
    """Yield every file of the output except shards.

    Tokenizer, generation config and other files are copied from the reference model, unless the
    recipe says otherwise. If the reference model has an adapter with a tokenizer, that tokenizer is
    used. config.json comes last, so that loaders do not recognise an incomplete folder as a model.
    A GGUF file contains config and tokenizer itself.

    Args:
        plan: the plan of one model; for a model of a sweep or a stage, its own plan.
        name: the model's name, for the model card.
        metadata: the metadata cache of remote files, for those that have to be fetched.
        contents: the checksum of the bytes that were read of each local model, by the text of its
            reference.
        section: the lines of a further section of the model card.
        offline: whether the network must not be used.

    Yields:
        the name of each file, and its bytes or the file to copy.
    """
    if plan.is_gguf:
        yield RECIPE_IN_OUTPUT, plan.recipe.text.encode()
        yield CARD, model_card(plan, name, contents, "gguf").encode()
        return
    if plan.adapter is not None:
        yield RECIPE_IN_OUTPUT, plan.recipe.text.encode()
        yield from adapter_files(
            plan, plan.adapter, name, metadata, contents, section, offline=offline
        )
        return
    reference = plan.reference_model
    carrier = reference.carrier
    names = [
        name_of_companion
        for name_of_companion in list_companions(carrier)
        if name_of_companion != "config.json"
    ]
    vocabulary, template = plan.vocabulary, plan.chat_template
    if vocabulary or template is not None or tokenizer_part(reference) is not carrier:
        names = [
            name_of_companion
            for name_of_companion in names
            if not is_tokenizer_file(name_of_companion)
        ]
        yield from tokenizer_files(reference, vocabulary, template, metadata, offline=offline)
    fetch(carrier, names, metadata, offline=offline)
    for file in sorted(names, key=lambda file: file == PIPELINE):
        if file == GENERATION and plan.vocabulary is not None:
            host_config = _generation_config_of_host(plan, metadata, offline=offline)
            generation_config = read_json(carrier, file)
            yield file, _json(remap_token_ids(generation_config, plan.vocabulary, host_config))
            continue
        if file == PIPELINE:
            yield from ((index, text.encode()) for index, text in index_files(plan))
        config = _component_config(plan, carrier, file)
        yield file, _json(config) if config else companion(carrier, file)
    if not carrier.components:
        yield from ((index, text.encode()) for index, text in index_files(plan))
    yield RECIPE_IN_OUTPUT, plan.recipe.text.encode()
    config = output_config(plan)
    library = "transformers" if config else "diffusers" if carrier.components else None
    library = "sentence-transformers" if "modules.json" in names else library
    yield CARD, model_card(plan, name, contents, library, section).encode()
    if config:
        yield "config.json", _json(config)


def _generation_config_of_host(
    plan: Plan, metadata: MetadataCache, *, offline: bool
) -> dict[str, Any]:
    """Return generation_config.json of the tokenizer's model, or its config.json without one."""
    assert plan.vocabulary is not None
    host = plan.vocabulary.host.source
    if GENERATION not in list_companions(host):
        return dict(host.config)
    fetch(host, [GENERATION], metadata, offline=offline)
    return read_json(host, GENERATION)


def _component_config(plan: Plan, carrier: Source, name: str) -> dict[str, Any] | None:
    """Return a pipeline component's config with the dtype of its weights; None if unchanged."""
    folder = name.removesuffix("config.json")
    dtype = main_dtype(plan, folder) if name.endswith("/config.json") else None
    if dtype is None:
        return None
    config = read_json(carrier, name)
    dtype_keys = [key for key in ("dtype", "torch_dtype") if config.get(key) not in (None, dtype)]
    updated_config = {**unquantised_config(config), **dict.fromkeys(dtype_keys, dtype)}
    return updated_config if updated_config != config else None


def _json(value: Mapping[str, Any]) -> bytes:
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    return text.encode(errors="backslashreplace")  # JSON's own escape of a lone surrogate
