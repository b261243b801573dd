"""Pipelines of diffusers: ``model_index.json``, and a folder for each component.

A component with weights is a part of the model: its folder's name and a slash stand before the
names of its tensors. Other components (schedulers, tokenizers) are companions.
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
"""The file that makes a folder a pipeline: it says which class each component is of."""

_DIFFUSERS = "diffusion_pytorch_model.safetensors"

_WEIGHTS = (_DIFFUSERS, "model.safetensors", "diffusion_pytorch_model.bin", "pytorch_model.bin")
"""The names of a component's weights in diffusers and transformers, in order of preference."""

_VARIANTS = ("", ".fp16", ".bf16")
"""The variants of weights' names for other dtypes. The full weights are preferred."""

_OF_TRANSFORMERS = ("model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True)
class Component(Contents):
    """The weights of one component.

    Args:
        library: the library that loads the component.
    """

    library: str = "diffusers"

    @property
    def weights(self) -> list[str]:
        """The names of weights and their indexes, in the order of the library that loads them.

        If there are an index and a single file, transformers reads the file, diffusers the index.
        """
        of_diffusers = self.library == "diffusers"
        names = sorted(_WEIGHTS, key=lambda n: (n in _OF_TRANSFORMERS) == of_diffusers)
        found = []
        for variant in _VARIANTS:
            for name in names:
                stem, _, suffix = name.partition(".")
                single = f"{stem}{variant}.{suffix}"
                index = name + INDEX_SUFFIX.replace(".json", f"{variant}.json")
                older = f"{name}{variant}{INDEX_SUFFIX}"
                first = [index, older, single] if name == _DIFFUSERS else [single, index, older]
                found += first
        return [self.prefix + name for name in dict.fromkeys(found)]

    def is_variant(self, file: str) -> bool:
        return any(variant and f"{variant}." in file for variant in _VARIANTS)

    def named(self, tensors: Mapping[str, Stored]) -> dict[str, Stored]:
        """Return the component's tensors by their names in the pipeline."""
        return {
            (own := self.prefix + name): replace(tensor, name=own)
            for name, tensor in tensors.items()
        }


def component(name: str, library: str) -> Component:
    """Return the kind of weights that is looked for in a component's folder."""
    return Component(
        f"the component {name}",
        f"{name}/config.json",
        lambda known: known.model_file,
        "save the pipeline with diffusers' save_pretrained",
        f"{name}/",
        library=library,
    )


def is_pipeline(contents: Contents, files: Collection[str]) -> bool:
    """Return whether files are those of a pipeline, not of a model."""
    return contents.may_have_any_name(files) and PIPELINE in files


def components_of(described: Mapping[str, Any]) -> dict[str, str]:
    """Return the components that a pipeline has, each with its library.

    Args:
        described: model_index.json: the library and class of each component, or two nulls.
    """
    return {
        name: str(value[0])
        for name, value in sorted(described.items())
        if isinstance(value, list) and len(value) == 2 and all(value)
        if PurePosixPath(name).name == name and name not in (".", "..") and "\\" not in name
    }


@dataclass(frozen=True)
class Pipeline:
    """The weights of all components of a pipeline, as those of one model.

    Args:
        tensors: the tensors, by their names in the pipeline.
        headers: the header of each weight file, by the file's name.
        stems: the `weights_stem` of each component; empty for one without weights.
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
    """Return the weights of every component that has some.

    Args:
        described: model_index.json.
        files: the names of the files in the pipeline's folders.
        read: reads a component's weights.
    """
    tensors: dict[str, Stored] = {}
    headers: dict[str, Header] = {}
    stems: dict[str, str] = {}
    notes: list[str] = []
    for name, library in components_of(described).items():
        part, stems[name] = component(name, library), ""
        if has_weights(part, files):
            found = read(part)
            stems[name] = weights_stem(found.file)
            tensors |= part.named(found.tensors)
            headers |= found.headers
            notes += found.notes
    return Pipeline(tensors, headers, stems, tuple(notes))


def has_weights(part: Component, files: Collection[str]) -> bool:
    """Return whether a component has weights, or a config that says that it should."""
    return part.config in files or not set(part.weights).isdisjoint(files)


def weights_stem(file: str) -> str:
    """Return how the names of a component's weight files begin in the output.

    Args:
        file: the component's index, or its only weight file.
    """
    stem = PurePosixPath(file).name.partition(".")[0]
    return "model" if stem == "pytorch_model" else stem
