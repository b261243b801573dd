"""The types of quantisation schemes: `Scheme`, its argument `Checkpoint`, its results `Weight`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from resumerge.errors import InputError, refuse
from resumerge.quantisation.output import Layout
from resumerge.tensors import Stored, Tensor
from resumerge.tensors.dtypes import BITS, BY_TORCH_NAME

USUAL_DTYPE = "BF16"
"""The dtype of copied weights if no config states a dtype."""

STATED = ("quantization_config", "compression_config")
"""The keys of config.json that describe the quantisation of weights."""


@dataclass(frozen=True)
class Weight:
    """A weight that is stored as several tensors.

    Args:
        name: the plain name of the weight.
        tensor: the tensor that computes the weight, in float32.
        parts: the names of the tensors that the weight is computed from.
        kind: a description of the scheme, for messages.
        unused: the names of tensors that only describe the weight, such as shapes and codebooks.
        written: the layout in which a changed weight is written; None if it cannot be written.
    """

    name: str
    tensor: Tensor
    parts: tuple[str, ...]
    kind: str
    unused: tuple[str, ...] = ()
    written: Layout | None = None


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a model, as stored in its files.

    Args:
        model: the model's reference in the recipe, for messages.
        tensors: the tensors, by name.
        config: the parsed config.json.
        read: returns the bytes of a small tensor.
    """

    model: str
    tensors: Mapping[str, Tensor]
    config: Mapping[str, Any]
    read: Callable[[Stored], bytes]

    @cached_property
    def stated(self) -> Mapping[str, Any]:
        """The section of config.json that describes the quantisation; empty if there is none."""
        configs = [self.config, *(v for v in self.config.values() if isinstance(v, Mapping))]
        sections = (config.get(key) for config in configs for key in STATED)
        return next(
            (section for section in sections if isinstance(section, Mapping) and section), {}
        )

    def without(self, names: Collection[str]) -> Checkpoint:
        """Return the checkpoint without the tensors of some names."""
        if not names:
            return self
        remaining_tensors = {
            name: tensor for name, tensor in self.tensors.items() if name not in names
        }
        return replace(self, tensors=remaining_tensors)

    def ending(self, suffix: str) -> Iterator[tuple[str, Stored]]:
        """Yield (name without the suffix, tensor) for each stored tensor with a suffix."""
        for name, tensor in self.tensors.items():
            if name.endswith(suffix) and isinstance(tensor, Stored):
                yield name.removesuffix(suffix), tensor

    def of_types(self, dtypes: Container[str]) -> Iterator[tuple[str, Stored]]:
        """Yield (name, tensor) for each stored tensor with one of several dtypes."""
        for name, tensor in self.tensors.items():
            if isinstance(tensor, Stored) and tensor.dtype in dtypes:
                yield name, tensor

    def names(self, *names: str) -> tuple[str, ...]:
        """Return the names for which the checkpoint has a tensor."""
        return tuple(name for name in names if name in self.tensors)

    def find(self, name: str) -> Stored | None:
        """Return the stored tensor with a name; None if there is no such tensor."""
        tensor = self.tensors.get(name)
        return tensor if isinstance(tensor, Stored) else None

    def need(self, name: str, beside: str) -> Stored:
        """Return a stored tensor that another tensor needs.

        Args:
            name: the name of the needed tensor.
            beside: the name of the tensor that needs it, for the message.

        Raises:
            InputError: there is no such tensor.
        """
        tensor = self.find(name)
        if tensor is None:
            raise self.unfit(beside, f"the tensor {name}", "no such tensor")
        return tensor

    def unfit(self, name: str, expected: str, found: str) -> InputError:
        """Return the error for tensors of a weight that do not fit together.

        Args:
            name: the name of the tensor, or of the weight.
            expected: a description of tensors that would fit.
            found: a description of the tensors.
        """
        return refuse(
            "The tensors of a quantised weight do not fit together",
            where=f"{self.model}: {name}",
            expected=expected,
            found=found,
            fix="download the model again, or name the original model, without quantisation",
        )


def stated_dtype(section: Mapping[str, Any]) -> str | None:
    """Return the dtype of unquantised weights that a config states, by its name in safetensors.

    The result is None if the config states no dtype, or one of fewer than 16 bits.
    """
    dtypes = (BY_TORCH_NAME.get(str(section.get(key))) for key in ("dtype", "torch_dtype"))
    return next((dtype for dtype in dtypes if dtype is not None and BITS[dtype] >= 16), None)


class Scheme(ABC):
    """A format that stores weights as numbers of fewer bits."""

    @abstractmethod
    def weights(self, checkpoint: Checkpoint) -> Iterator[Weight]:
        """Yield the weights of a model that are stored in this scheme.

        Raises:
            InputError: the tensors of a weight do not fit together.
        """
