"""The compared models, and their matched tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from resumerge.engine.context import RunContext
from resumerge.engine.opening.open_sources import folder_hint
from resumerge.engine.opening.opened_stages import NO_STAGES, OpenedStages, open_stages
from resumerge.engine.opening.streamed_sources import whole_files
from resumerge.engine.resources.device import check_torch
from resumerge.errors import InputError, Problem, Resumable, refuse
from resumerge.layout.layers import infer_layers
from resumerge.layout.match import match_names
from resumerge.layout.vocabulary_tensors import find_vocabulary
from resumerge.planning import read_recipe
from resumerge.recipe import ModelRef
from resumerge.recipe.invalid import InvalidValue
from resumerge.recipe.references import read_reference
from resumerge.sources import Source, open_source
from resumerge.sources.remote.files import remote_file
from resumerge.tensors import Tensor, stored_in
from resumerge.tensors.dtypes import FLOATS

Pair = tuple[int, int]
"""The numbers of two models; the relation of a pair is that of the second to the first."""


@dataclass(frozen=True)
class MatchedTensor:
    """The tensors of several models that correspond to each other and are compared together.

    Args:
        name: the name in the first model that has such a tensor.
        tensors: the tensor of each model; None for a model without a comparable tensor.
        elements: the number of compared elements: all elements, or for tables of tokens those of
            the rows that all models have.
        row: the elements of a row of a matrix; 0 for tensors of other dimensions.
    """

    name: str
    tensors: tuple[Tensor | None, ...]
    elements: int
    row: int

    @property
    def is_float(self) -> bool:
        """Whether all stored tensors have a dtype of floats."""
        return all(t.dtype in FLOATS for t in self.tensors if t is not None)


@dataclass(frozen=True)
class Models:
    """The models of one comparison, the base first if there is one.

    Args:
        sources: the opened models, one for each reference.
        has_base: whether the first model is the base of the others.
        stages: the models that are stages of a recipe, with the models that they are computed from.
    """

    sources: tuple[Source, ...]
    has_base: bool
    stages: OpenedStages = NO_STAGES

    @property
    def needs_torch(self) -> bool:
        """Whether torch computes a tensor of a model, such as a weight that an adapter changes."""
        return any(t.needs_torch for source in self.sources for t in source.tensors.values())

    @property
    def read(self) -> dict[int, Source]:
        """The models whose files are read, by the source numbers of their stored tensors."""
        read = (*self.stages.sources, *(each for each in self.sources if each.kind != "stage"))
        return {source.number: source for source in read}

    @property
    def names(self) -> list[str]:
        """The models as the user named them."""
        return [source.ref.text for source in self.sources]

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """The compared pairs: the base with each model, and the first model with later ones."""
        numbers = range(len(self.sources))
        pairs = [(0, n) for n in numbers[1:]]
        return (*pairs, *((1, n) for n in numbers[2:] if self.has_base))

    @cached_property
    def by_name(self) -> dict[str, tuple[Tensor | None, ...]]:
        """Every tensor of any model, by its name in the first model that has it."""
        tensors_by_name: dict[str, list[Tensor | None]] = {}
        for number, source in enumerate(self.sources):
            matches, _ = match_names(list(tensors_by_name), source.tensors) if number else ({}, [])
            name_by_theirs = {their_name: name for name, their_name in matches.items()}
            for name, tensor in source.tensors.items():
                row = tensors_by_name.setdefault(
                    name_by_theirs.get(name, name), [None] * len(self.sources)
                )
                row[number] = tensor
        return {name: tuple(tensors) for name, tensors in tensors_by_name.items()}

    @cached_property
    def vocabularies(self) -> list[frozenset[str]]:
        """The names of the tensors of each model that have a row for each token."""
        return [
            find_vocabulary(source, infer_layers(source.tensors, source.config)).found
            for source in self.sources
        ]

    def matched_tensors(self) -> Iterator[MatchedTensor]:
        """Yield the tensors that at least two models have, in the first model's order."""
        for name, tensors in self.by_name.items():
            present_tensors = [tensor for tensor in tensors if tensor is not None]
            if len(present_tensors) < 2:
                continue
            comparable_tensors = tuple(
                tensor if tensor and self._fits(present_tensors[0], tensor) else None
                for tensor in tensors
            )
            shapes = [tensor.shape for tensor in comparable_tensors if tensor is not None]
            if len(shapes) < 2:
                continue
            shape = (min(shape[0] for shape in shapes), *shapes[0][1:]) if shapes[0] else ()
            row = shape[1] if len(shape) == 2 else 0
            yield MatchedTensor(name, comparable_tensors, math.prod(shape), row)

    def _fits(self, first: Tensor, other: Tensor) -> bool:
        """Return whether two tensors can be compared: by their dtypes and shapes."""
        if (first.dtype in FLOATS) != (other.dtype in FLOATS):
            return False
        if first.dtype not in FLOATS and first.dtype != other.dtype:
            return False
        if first.shape == other.shape:
            return True
        are_token_tables = any(first.name in names for names in self.vocabularies)
        are_token_tables &= any(other.name in names for names in self.vocabularies)
        return are_token_tables and first.shape[1:] == other.shape[1:]


def open_models(
    context: RunContext, names: Sequence[str], base: str | None, recipe: Path | None = None
) -> Models:
    """Open the models; remote files that are not on this disk are read by ranges.

    Args:
        context: the context of the command: its reporter shows the phase, and its metadata cache is
            used.
        names: the references of two models or more; with a base, of one model or more.
        base: the reference of their base; None without a base.
        recipe: a recipe whose stages the references may name; None without a recipe.

    Raises:
        InputError: a reference names no model, or a file cannot be read by ranges.
        Resumable: the network failed.
    """
    reference_texts = [*([base] if base is not None else []), *names]
    if len(reference_texts) < 2:
        raise refuse(
            "There is nothing to compare with",
            expected="two models, or one model and a base",
            found=", ".join(reference_texts) or "no model",
            fix="name another model",
        )
    context.reporter.doing("opening the models")
    references, problems = [], []
    for text in reference_texts:
        try:
            references.append(read_reference(text))
        except InvalidValue as error:
            problems.append(
                Problem(error.what, text, "", None, error.expected, error.found, error.fix)
            )
    if problems:
        raise InputError(problems)
    stages = NO_STAGES
    if recipe is not None:
        stages = open_stages(context, read_recipe(recipe), references)
    sources: list[Source] = []
    for ref in references:
        try:
            number = stages.count + len(sources)
            sources.append(stages.models.get(ref) or _open(context, ref, number))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    models = Models(tuple(sources), base is not None, stages)
    if problems := [*_unreadable(models, offline=context.options.offline)]:
        raise InputError(problems)
    if models.needs_torch:
        purpose = "Torch, which applies adapters and computes some methods, is not installed"
        check_torch(purpose, "torch, for models with an adapter, and for stages with such a method")
    return models


def _open(context: RunContext, ref: ModelRef, number: int) -> Source:
    try:
        source = open_source(ref, offline=context.options.offline, metadata=context.metadata)
    except Resumable as error:
        raise Resumable(error.reason, f"{error}\n{folder_hint(ref)}".strip()) from error
    return replace(source.numbered(number), streams=True)


def _unreadable(models: Models, *, offline: bool) -> Iterator[Problem]:
    """Yield a problem for each file that is not on this disk and cannot be read by ranges."""
    sources: Mapping[int, Source] = models.read
    tensors = (tensor for source in models.sources for tensor in source.tensors.values())
    stored_tensors = dict.fromkeys(
        stored_tensor for tensor in tensors for stored_tensor in stored_in(tensor)
    )
    if offline:
        absent_files = {
            (tensor.source, tensor.file): ""
            for tensor in stored_tensors
            if sources[tensor.source].is_streamed(tensor.file)
        }
        reasons = dict.fromkeys(absent_files, "it is not in the cache, and --offline was given")
    else:
        reasons = whole_files(stored_tensors, sources)
    for (number, name), reason in reasons.items():
        yield Problem(
            "A file cannot be read by ranges",
            where=remote_file(sources[number], name).where,
            expected="a file on this disk, or one that its server sends in parts",
            found=reason,
            fix="download the model, and name its folder",
        )
