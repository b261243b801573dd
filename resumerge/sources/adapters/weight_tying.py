"""Tied tensors of a model that an adapter changes.

peft adds matrices to one module or copies it. The modules that are tied to it keep the base's
tensor, although the model had one tensor for all of them. A whole tensor that is not a copy is
loaded into all tied modules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from resumerge.sources.adapter_programs.config import LoraConfig
from resumerge.sources.tied_names import (
    head_is_unknown,
    is_embedding,
    tied_groups,
    tied_names,
    untied_config,
)
from resumerge.sources.tied_weights import is_head
from resumerge.sources.types import Source
from resumerge.tensors import Tensor


class AdapterTies:
    """The groups of tied names of one model, before and after an adapter changes tensors.

    Args:
        base: the model without the adapter; its config and names show which tensors are tied.
        settings: the adapter's settings, from its config; the defaults if it has none.
        of_base: the model's tensors, with the file names of the combined source.
    """

    def __init__(self, base: Source, settings: LoraConfig, of_base: Mapping[str, Tensor]) -> None:
        self._config = base.config
        self._settings = settings
        self._groups = tied_groups(base.config, base.tensors)
        self._absent = tied_names(base.config, base.tensors)
        self._before = dict(of_base) | {
            name: replace(of_base[stored_name], name=name)
            for name, stored_name in self._absent.items()
        }

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The model's tensors by all their names: a tied tensor has an entry for each name."""
        return self._before

    def sharing(self, name: str, key: str) -> Iterator[str]:
        """Yield the tied names under which peft also loads a whole tensor of the adapter.

        Args:
            name: the model's name of the replaced tensor.
            key: the adapter's name of the whole tensor.
        """
        if not self.is_copy(key):
            yield from self.others(name)

    def others(self, name: str) -> Iterator[str]:
        """Yield the names that are tied to a name of the model."""
        yield from (n for group in self._groups if name in group for n in group if n != name)

    def is_copy(self, key: str) -> bool:
        """Return whether peft keeps a whole tensor in a copy of the base's module.

        Args:
            key: the adapter's name of the whole tensor.
        """
        if ".base_layer." in key:
            return False
        module = key.rpartition(".")[0]
        words = module.split(".")
        module_and_parents = [".".join(words[: n + 1]) for n in range(len(words))]
        saved_modules = self._settings.modules_to_save
        return ".modules_to_save" in key or any(
            module_name.endswith(saved_module)
            for module_name in module_and_parents
            for saved_module in saved_modules
        )

    def after(self, tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the tensors and the config of the model with the adapter.

        If all names of each group still mean one tensor, they stay tied. Otherwise each name gets
        its own tensor, and the config states that weights are not tied.

        Args:
            tensors: the tensors as the adapter changes them, with an entry for each name.
        """
        changed_tensors = dict(tensors)
        if self._settings.ties_weights:
            self._tie(changed_tensors)
        if all(self._is_one(group, changed_tensors) for group in self._groups):
            for name in self._absent:
                changed_tensors.pop(name, None)
            return changed_tensors, dict(self._config)
        return changed_tensors, untied_config(self._config)

    def strange(self, tensors: Mapping[str, Tensor]) -> str | None:
        """Return the name of a changed embedding or head whose ties are unknown; None if none."""
        if not head_is_unknown(self._config, self._before):
            return None
        changed_names = (
            name for name, tensor in tensors.items() if tensor != self._before.get(name)
        )
        return next((name for name in changed_names if is_embedding(name) or is_head(name)), None)

    def _tie(self, tensors: dict[str, Tensor]) -> None:
        """Store a changed embedding under all its tied names (``ensure_weight_tying``)."""
        for group in self._groups:
            embedding_name = next((n for n in group if is_embedding(n)), None)
            if (
                embedding_name is not None
                and tensors[embedding_name] != self._before[embedding_name]
            ):
                tensors |= {name: replace(tensors[embedding_name], name=name) for name in group}

    def _is_one(self, group: tuple[str, ...], tensors: Mapping[str, Tensor]) -> bool:
        """Return whether all names of a group still mean one tensor."""
        if all(tensors.get(name) == self._before[name] for name in group):
            return True
        first_tensor, *other_tensors = (tensors.get(name) for name in group)
        return all(
            first_tensor and other_tensor and _is_same(first_tensor, other_tensor)
            for other_tensor in other_tensors
        )


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors differ at most in their names."""
    if replace(one, name=other.name) == other:
        return True
    return one.children() == other.children() != () and one.as_json() == other.as_json()
