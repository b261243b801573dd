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
from resumerge.sources.index import INDEX_SUFFIX, Contents
from resumerge.tensors import Stored

PIPELINE = "model_index.json"
"""The file that makes a folder a pipeline: it says which class each component is of."""

_WEIGHTS = (
    *("diffusion_pytorch_model.safetensors", "model.safetensors"),
    *("diffusion_pytorch_model.bin", "pytorch_model.bin"),
)
"""The names of a component's weights in diffusers and transformers, in order of preference."""

_VARIANTS = ("", ".fp16", ".bf16")
"""The variants of weights' names for other dtypes. The full weights are preferred."""


@dataclass(frozen=True)
class Component(Contents):
    """The weights of one component."""

    @property
    def weights(self) -> list[tuple[str, str]]:
        found = []
        for variant in _VARIANTS:
            for name in _WEIGHTS:
                stem, _, suffix = name.partition(".")
                index = name + INDEX_SUFFIX.replace(".json", f"{variant}.json")
                single = f"{stem}{variant}.{suffix}"
                found.append((self.prefix + index, self.prefix + single))
        return found

    def named(self, tensors: Mapping[str, Stored]) -> dict[str, Stored]:
        """Return the component's tensors by their names in the pipeline."""
        return {
            (own := self.prefix + name): replace(tensor, name=own)
            for name, tensor in tensors.items()
        }


def component(name: str) -> Component:
    """Return the kind of weights that is looked for in a component's folder."""
    return Component(
        f"the component {name}",
        f"{name}/config.json",
        lambda known: known.model_file,
        "save the pipeline with diffusers' save_pretrained",
        f"{name}/",
    )


def is_pipeline(contents: Contents, files: Collection[str]) -> bool:
    """Return whether files are those of a pipeline, not of a model."""
    return contents.may_have_any_name(files) and PIPELINE in files


def component_names(described: Mapping[str, Any]) -> list[str]:
    """Return the components that a pipeline has.

    Args:
        described: model_index.json: the library and class of each component, or two nulls.
    """
    return sorted(
        name
        for name, value in described.items()
        if isinstance(value, list) and len(value) == 2 and all(value)
        if PurePosixPath(name).name == name and name not in (".", "..") and "\\" not in name
    )


@dataclass(frozen=True)
class Pipeline:
    """The weights of all components of a pipeline, as those of one model.

    Args:
        tensors: the tensors, by their names in the pipeline.
        headers: the header of each weight file, by the file's name.
        stems: the `weights_stem` of each component; empty for one without weights.
    """

    tensors: dict[str, Stored]
    headers: dict[str, Header]
    stems: dict[str, str]


def read_pipeline(
    described: Mapping[str, Any],
    files: Collection[str],
    read: Callable[[Component], tuple[dict[str, Stored], dict[str, Header], str]],
) -> Pipeline:
    """Return the weights of every component that has some.

    Args:
        described: model_index.json.
        files: the names of the files in the pipeline's folders.
        read: returns a component's tensors by their names there, the header of each weight file,
            and the name of the index or else of the only weight file.
    """
    tensors: dict[str, Stored] = {}
    headers: dict[str, Header] = {}
    stems: dict[str, str] = {}
    for name in component_names(described):
        part, stems[name] = component(name), ""
        if has_weights(part, files):
            found, more, file = read(part)
            stems[name] = weights_stem(file)
            tensors |= part.named(found)
            headers |= more
    return Pipeline(tensors, headers, stems)


def has_weights(part: Component, files: Collection[str]) -> bool:
    """Return whether a component has weights, or a config that says that it should."""
    return part.config in files or any(not {*pair}.isdisjoint(files) for pair in part.weights)


def weights_stem(file: str) -> str:
    """Return how the names of a component's weight files begin in the output.

    Args:
        file: the component's index, or its only weight file.
    """
    stem = PurePosixPath(file).name.partition(".")[0]
    return "model" if stem == "pytorch_model" else stem
