"""Pipelines of diffusers: ``model_index.json``, and a folder for each component.

A component with weights is a part of the model: the names of its tensors begin with its folder's
name and a slash. Other components (schedulers, tokenizers) are companions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from resumerge.sources.formats.weight_format import Header
from resumerge.sources.index import INDEX_SUFFIX, Contents, Weights
from resumerge.tensors import Stored

PIPELINE = "model_index.json"
"""The file that makes a folder a pipeline: it states library and class of each component."""

_DIFFUSERS = "diffusion_pytorch_model.safetensors"

_WEIGHTS = (_DIFFUSERS, "model.safetensors", "diffusion_pytorch_model.bin", "pytorch_model.bin")
"""The weight files of a component in diffusers and transformers, in order of preference."""

_VARIANTS = ("", ".fp16", ".bf16")
"""The variants of a weight file's name, one for each dtype. The full precision comes first."""

_OF_TRANSFORMERS = ("model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True)
class Component(Contents):
    """The weights of one component of a pipeline, or of a module of sentence-transformers.

    Args:
        library: the library that loads the component.
    """

    library: str = "diffusers"

    @property
    def weights(self) -> list[str]:
        """The names of weight files and indexes, in the order in which the library prefers them.

        The single file comes before its index, except for diffusers' safetensors, whose index comes
        first.
        """
        of_diffusers = self.library == "diffusers"
        names = sorted(_WEIGHTS, key=lambda n: (n in _OF_TRANSFORMERS) == of_diffusers)
        files = []
        for variant in _VARIANTS:
            for name in names:
                stem, _, suffix = name.partition(".")
                single_file = f"{stem}{variant}.{suffix}"
                index = name + INDEX_SUFFIX.replace(".json", f"{variant}.json")
                old_index = f"{name}{variant}{INDEX_SUFFIX}"
                names_by_preference = (
                    [index, old_index, single_file]
                    if name == _DIFFUSERS
                    else [single_file, index, old_index]
                )
                files += names_by_preference
        return [self.prefix + name for name in dict.fromkeys(files)]

    def is_variant(self, file: str) -> bool:
        return any(variant and f"{variant}." in file for variant in _VARIANTS)

    def named(self, tensors: Mapping[str, Stored]) -> dict[str, Stored]:
        """Return the component's tensors under their names in the pipeline."""
        return {
            (name_in_pipeline := self.prefix + name): replace(tensor, name=name_in_pipeline)
            for name, tensor in tensors.items()
        }


def component(name: str, library: str) -> Component:
    """Return the description of the weights in a component's folder.

    Args:
        name: the component's name, which is also its folder's.
        library: the library that loads the component.
    """
    return Component(
        f"the component {name}",
        f"{name}/config.json",
        lambda known: known.model_file,
        "save the pipeline with diffusers' save_pretrained",
        f"{name}/",
        library=library,
    )


def is_pipeline(contents: Contents, files: Collection[str]) -> bool:
    """Return whether files are those of a pipeline of diffusers."""
    return contents.may_have_any_name(files) and PIPELINE in files


def components_of(described: Mapping[str, Any]) -> dict[str, str]:
    """Return the library of each component of a pipeline, by the component's name.

    Args:
        described: model_index.json, which has the library and class of each component, or two nulls
            for a component that this pipeline lacks.
    """
    return {
        name: str(value[0])
        for name, value in sorted(described.items())
        if isinstance(value, list) and len(value) == 2 and all(value)
        if PurePosixPath(name).name == name and name not in (".", "..") and "\\" not in name
    }


@dataclass(frozen=True)
class Pipeline:
    """The weights of all components of a pipeline, under one model's names.

    Args:
        tensors: the tensors, by their names in the pipeline.
        headers: the header of each weight file, by the file's name.
        stems: the `weights_stem` of each component; empty for a component without weights.
        notes: sentences for the user.
    """

    tensors: dict[str, Stored]
    headers: dict[str, Header]
    stems: dict[str, str]
    notes: tuple[str, ...]


def read_pipeline(
    described: Mapping[str, Any],
    files: Collection[str],
    read: Callable[[Component], Weights],
) -> Pipeline:
    """Read the weights of every component that has weights.

    Args:
        described: the content of model_index.json.
        files: the names of the files in the pipeline's folders.
        read: reads a component's weights.
    """
    tensors: dict[str, Stored] = {}
    headers: dict[str, Header] = {}
    stems: dict[str, str] = {}
    notes: list[str] = []
    for name, library in components_of(described).items():
        component_contents, stems[name] = component(name, library), ""
        if has_weights(component_contents, files):
            weights = read(component_contents)
            stems[name] = weights_stem(weights.file)
            tensors |= component_contents.named(weights.tensors)
            headers |= weights.headers
            notes += weights.notes
    return Pipeline(tensors, headers, stems, tuple(notes))


def has_weights(part: Component, files: Collection[str]) -> bool:
    """Return whether a component has weights. A component with a config counts as having some."""
    return part.config in files or not set(part.weights).isdisjoint(files)


def weights_stem(file: str) -> str:
    """Return the first part of the names of a component's weight files in the output.

    Args:
        file: the name of the component's index, or of its only weight file.
    """
    stem = PurePosixPath(file).name.partition(".")[0]
    return "model" if stem == "pytorch_model" else stem
