"""The plan of a model that is written as one GGUF file."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from resumerge.errors import InputError, Problem, refuse
from resumerge.output.config import output_config
from resumerge.output.gguf.header import ALIGNMENT, Placed, Value, aligned_end, header
from resumerge.output.gguf.hyperparameters import Hyperparameters
from resumerge.output.gguf.tensors import TYPES, Written, WrittenTensors
from resumerge.output.gguf.vocabulary import WrittenTokenizer
from resumerge.planning.plan import Plan, Shard, Unit
from resumerge.recipe import Recipe
from resumerge.recipe.schema.output_dtypes import OF_GGUF
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.tensors.dtypes import BY_TORCH_NAME
from resumerge.tensors.generated import Literal
from resumerge.tensors.target import BLOCK_ELEMENTS
from resumerge.tokenizers.origin import has_tokenizer
from resumerge.tokenizers.output_files import extended_tokenizer
from resumerge.tokenizers.vocabulary import CONFIG, read_chat_template, read_json, read_vocabulary

_FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 7, "BF16": 32}
"""llama.cpp's numbers for the types of files. Source: gguf-py, LlamaFileType."""

_QUANTISATION_VERSION = 2


def problems_of_types(recipe: Recipe, *, is_gguf: bool) -> Iterator[Problem]:
    """Yield the problems of a recipe's output types that do not fit the output's file format.

    Args:
        recipe: the last document of a recipe, whose stages are checked with it.
        is_gguf: whether the result is written as GGUF.
    """
    if is_gguf and recipe.quantised_as:
        yield _not_written(recipe, "out_dtype", recipe.quantised_as)
    for document in recipe.documents:
        out_dtype = document.out_dtype
        if out_dtype in OF_GGUF and not (is_gguf and document is recipe):
            yield document.problem(
                f"{out_dtype} is a type of GGUF files",
                "out_dtype",
                expected="an output whose name ends in .gguf"
                if document is recipe
                else "another type: the result of a stage is not written as GGUF",
                found=out_dtype,
                fix="name the output NAME.gguf, or write another out_dtype"
                if document is recipe
                else "write it in the last document",
            )


def _not_written(recipe: Recipe, key: str, asked: str) -> Problem:
    return recipe.problem(
        "This type is not written to GGUF files",
        key,
        expected="float32, float16, bfloat16, q8_0 or q4_0",
        found=asked,
        fix="write one of these as out_dtype; for another type, quantise a file in bfloat16 with "
        "llama.cpp's llama-quantize",
    )


def planned_recipe(recipe: Recipe) -> Recipe:
    """Return the recipe to plan the model with, before `with_gguf`.

    If the output is quantised, the model is computed in float32, so that tensors are rounded only
    once.
    """
    return replace(recipe, out_dtype="float32") if recipe.out_dtype in OF_GGUF else recipe


def with_gguf(
    plan: Plan, recipe: Recipe, name: str, metadata: MetadataCache, *, offline: bool = False
) -> Plan:
    """Return the plan of a GGUF file from the plan of a model.

    Args:
        plan: the plan of the model, made with the recipe that `planned_recipe` returns.
        recipe: the recipe as the user wrote it, which becomes the recipe of the plan; its out_dtype
            or dtype is the requested type.
        name: the name of the file, like ``model.gguf``; the model's name in the metadata is made of
            it.
        metadata: the metadata cache of remote files.
        offline: whether the network must not be used.

    Raises:
        InputError: llama.cpp does not support the family or tokenizer, or GGUF cannot represent a
            value.
        Resumable: the network failed.
    """
    model, requested_type = plan.reference_model.ref.text, _requested_type(recipe)
    config, tensors = output_config(plan), plan.tensors()
    if not config:
        raise refuse(
            "A GGUF file needs the model's config.json",
            where=model,
            expected="a folder with config.json",
            found="weights alone",
            fix="name a file that ends in .safetensors as output",
        )
    shape_by_name = {name: tensor.shape for name, tensor in tensors.items()}
    hyperparameters = Hyperparameters(model, config, shape_by_name)
    converter = WrittenTensors(hyperparameters, requested_type)
    written_tensors = tuple(converter.of(tensors))
    tokenizer, digest_by_model = _tokenizer(plan, config, shape_by_name, metadata, offline=offline)
    values: dict[str, Value] = {
        "general.architecture": hyperparameters.architecture,
        "general.type": "model",
        "general.name": tokenizer.label(name.removesuffix(".gguf")),
        "general.file_type": _FILE_TYPES[_main_type(written_tensors)],
        "general.quantization_version": _QUANTISATION_VERSION,
        "general.alignment": ALIGNMENT,
        **hyperparameters.values(),
        **{f"tokenizer.{key}": value for key, value in tokenizer.values().items()},
    }
    units, shard = _placed(written_tensors, values, name)
    notes = [*plan.notes, *hyperparameters.notes(), *converter.notes, *tokenizer.notes]
    return replace(
        plan,
        recipe=recipe,
        units=units,
        shards=(shard,),
        notes=tuple(dict.fromkeys(notes)),
        tokenizers={**plan.tokenizers, **digest_by_model},
    )


def _requested_type(recipe: Recipe) -> str | None:
    """Return the GGUF type of the recipe's out_dtype or dtype; None if the recipe has neither."""
    requested_dtype = recipe.out_dtype or recipe.dtype
    if requested_dtype is None:
        return None
    file_type = BY_TORCH_NAME.get(requested_dtype, requested_dtype.upper())
    if file_type in TYPES:
        return file_type
    raise InputError(
        [_not_written(recipe, "out_dtype" if recipe.out_dtype else "dtype", requested_dtype)]
    )


def _main_type(written: Sequence[Written]) -> str:
    """Return the GGUF type that most elements of the file have."""
    elements_by_type = dict.fromkeys(TYPES, 0)
    for tensor in written:
        elements_by_type[tensor.type] += math.prod(tensor.shape)
    return max(elements_by_type, key=elements_by_type.__getitem__)


def _no_tokenizer(model: str) -> InputError:
    return refuse(
        "A GGUF file needs a tokenizer, and the model has none",
        where=model,
        expected="tokenizer.json beside the weights of the model whose tokenizer the output gets",
        found="no tokenizer files",
        fix="save the tokenizer into the model's folder; or write 'tokenizer_source: MODEL' with a "
        "model that has one; or name an output folder, which needs none",
    )


def _tokenizer(
    plan: Plan, config: dict[str, Any], shapes: Any, metadata: MetadataCache, *, offline: bool
) -> tuple[WrittenTokenizer, dict[str, str]]:
    """Return the output's tokenizer, and the digest of its source's tokenizer files, by model."""
    vocabulary = plan.vocabulary
    if vocabulary is None and not has_tokenizer(plan.reference_model):
        raise _no_tokenizer(plan.reference_model.ref.text)
    host = (
        vocabulary.host
        if vocabulary
        else read_vocabulary(plan.reference_model, metadata, offline=offline)
    )
    definitions = (
        {token.content: token.definition for token in vocabulary.new} if vocabulary else {}
    )
    tokenizer = WrittenTokenizer(
        model=host.ref.text,
        facts=extended_tokenizer(vocabulary) if vocabulary and vocabulary.new else host.facts(),
        settings=read_json(host.source, CONFIG) if CONFIG in host.files else {},
        ids=vocabulary.ids if vocabulary else host.ids,
        added={
            **host.added,
            **{
                token: definition
                for token, definition in definitions.items()
                if definition is not None
            },
        },
        config=config,
        rows=shapes["model.embed_tokens.weight"][0],
        template=plan.chat_template or read_chat_template(host.source, metadata, offline=offline),
    )
    return tokenizer, {host.ref.text: host.digest}


def _placed(
    written: Sequence[Written], values: dict[str, Value], name: str
) -> tuple[tuple[Unit, ...], Shard]:
    """Return the units of the file, and the file as a shard.

    Args:
        written: the tensors, in the order of the file.
        values: the metadata by full GGUF key, in the order of the file.
        name: the name of the file, for the shard and for the problem.

    Raises:
        InputError: a value cannot be written as GGUF.
    """
    placed_tensors, end = [], 0
    for tensor in written:
        placed_tensors.append(Placed(tensor.name, tensor.shape, tensor.type, end))
        end = aligned_end(end + sum(part.nbytes for part in tensor.parts))
    try:
        header_bytes = header(values, placed_tensors)
    except (UnicodeEncodeError, struct.error, OverflowError) as error:
        raise refuse(
            "The metadata of the model cannot be written to a GGUF file",
            where=name,
            expected="text in UTF-8, and numbers of 32 bits",
            found=str(error)[:100],
            fix="correct the model's config.json or chat template",
        ) from None
    units: list[Unit] = []
    for tensor in written:
        for part in _parts(tensor):
            offset = units[-1].offset + units[-1].nbytes if units else len(header_bytes)
            units.append(replace(part, number=len(units), offset=offset))
    assert units[-1].offset + units[-1].nbytes == len(header_bytes) + end
    return tuple(units), Shard(
        number=0,
        name=name,
        header=header_bytes,
        nbytes=len(header_bytes) + end,
        first=0,
        last=len(units),
    )


def _parts(tensor: Written) -> Iterator[Unit]:
    """Yield the units of a tensor, followed by a unit of zeros if the next tensor needs alignment.

    Their numbers and offsets are 0.
    """
    unit_template = Unit(
        number=0,
        name=tensor.name,
        dtype="",
        shape=(),
        shard=0,
        offset=0,
        nbytes=0,
        block_elements=BLOCK_ELEMENTS,
        expression=tensor.parts[0],
    )
    rows = tensor.shape[:-1] if len(tensor.parts) > 1 else ()
    for part_number, part in enumerate(tensor.parts):
        shape = (*rows, part.shape[-1]) if rows else part.shape
        yield replace(
            unit_template,
            dtype=part.dtype,
            shape=part.shape,
            nbytes=part.nbytes,
            block_elements=tensor.block_elements,
            expression=part,
            tensors={} if part_number else {tensor.name: shape},
        )
    size = sum(part.nbytes for part in tensor.parts)
    if padding_bytes := aligned_end(size) - size:
        padding = Literal.of(f"after {tensor.name}", "U8", (0,) * padding_bytes)
        yield replace(
            unit_template,
            name=padding.name,
            dtype="U8",
            shape=(padding_bytes,),
            nbytes=padding_bytes,
            expression=padding,
        )
