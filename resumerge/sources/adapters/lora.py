"""A model with a LoRA adapter: pairs the adapter's tensors with those that they change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from resumerge.errors import InputError, Problem
from resumerge.recipe.types import ModelRef
from resumerge.sources.adapters.config import LoraConfig, parse_adapter_config
from resumerge.sources.adapters.names import Names
from resumerge.sources.tied_weights import find_tensor, is_embedding, is_head
from resumerge.sources.types import Source
from resumerge.tensors import Adapted, Rounded, Tensor, with_stored
from resumerge.tensors.dtypes import FLOATS

SHOWN = 5
"""The number of problems of one adapter that are reported."""


def with_adapter(ref: ModelRef, base: Source, adapter: Source) -> Source:
    """Return a model with an adapter. Nothing is computed yet; the tensors describe what will be.

    If the adapter changes a head that the base ties to its embedding, the result is not tied
    (``tie_word_embeddings: false``), as in training. An embedding with more rows than the base's
    changes ``vocab_size``.

    Args:
        ref: ``model+adapter`` as the recipe names it.
        base: the model, opened.
        adapter: the adapter, opened as an adapter.

    Raises:
        InputError: not a LoRA adapter, a variant that is not supported, or one of another model.
    """
    where = f"{adapter.ref.text}/adapter_config.json"
    settings = parse_adapter_config(adapter.config, where)
    is_stage = base.kind == "stage"  # which has no files; the adapter is a source by itself
    folders = ("", "") if is_stage else ("base/", "adapter/")
    pairing = _Pairing(base, adapter, settings, folders)
    tensors = pairing.tensors()
    parts = {} if is_stage else dict(zip(folders, (base, adapter)))
    if pairing.problems:
        raise InputError(pairing.problems[:SHOWN])
    return Source(
        ref,
        "stage" if is_stage else "lora",
        base.folder,
        f"{base.revision}+{adapter.revision}" if base.revision or adapter.revision else None,
        _config(base, tensors),
        tensors,
        {
            prefix + name: replace(file, name=prefix + name)
            for prefix, part in parts.items()
            for name, file in part.files.items()
        },
        {
            prefix + name: replace(file, name=prefix + name)
            for prefix, part in parts.items()
            for name, file in part.companions.items()
        },
        base,
        adapter,
        base.single,
        (*base.notes, *adapter.notes),
    )


def in_folder(folder: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a part of a source, with their files named as in the whole source."""
    return {
        name: with_stored(tensor, lambda stored: replace(stored, file=folder + stored.file))
        for name, tensor in tensors.items()
    }


class _Pairing:
    """The pairing of an adapter's tensors with those of its base model."""

    def __init__(
        self, base: Source, adapter: Source, settings: LoraConfig, folders: tuple[str, str]
    ) -> None:
        self._base = base
        self._adapter = adapter
        self._settings = settings
        self._of_base = in_folder(folders[0], base.tensors)
        self._of_adapter = in_folder(folders[1], adapter.tensors)
        self.problems: list[Problem] = []

    def tensors(self) -> dict[str, Tensor]:
        if not self._of_adapter:
            self._problem("The adapter has no tensors", "none", expected="LoRA matrices")
        names = Names(self._of_adapter, self._of_base)
        for key in names.unknown:
            self._problem("The adapter has a tensor of an unknown kind", key)
        found = dict(self._of_base)
        for key, name in names.replaced.items():
            found[name] = self._replacing(name, self._of_adapter[key])
        transposed = self._settings.fan_in_fan_out or self._some_transposed(names, found)
        for module, roles in names.modules.items():
            name = f"{names.base_name(module)}.weight"
            weight = found.get(name) or self._tied_embedding(name)
            if weight is None:
                self._problem(
                    "The adapter changes a module that the model lacks",
                    module,
                    expected=f"a tensor {name} in {self._base.ref}",
                    fix="name the model that the adapter was trained on" + self._trained_on(),
                )
            elif changed := self._changed(name, module, roles, weight, transposed):
                found[name] = changed
        self._check_biases_of_heads(found)
        return found

    def _check_biases_of_heads(self, found: Mapping[str, Tensor]) -> None:
        """Check that a vector with an element for each token grows with the embedding."""
        grown = {
            old.shape[0]: found[name].shape[0]
            for name, old in self._of_base.items()
            if is_embedding(name) and found[name].shape[:1] > old.shape[:1] > ()
        }
        for name, info in found.items():
            weight = found.get(f"{name.rpartition('.')[0]}.weight")
            more = grown.get(info.numel)
            if more is None or not name.endswith("bias"):
                continue
            if weight is None or weight.shape[:1] == (more,):
                self._mismatch(name, f"{more} elements, because the adapter adds tokens", info)

    def _replacing(self, name: str, info: Tensor) -> Tensor:
        """Return a tensor of the adapter that replaces the base's, in the base's dtype."""
        old = self._of_base.get(name)
        info = replace(info, name=name)
        if old is None:
            return info
        grown = (is_embedding(name) or is_head(name)) and info.shape[1:] == old.shape[1:]
        if info.shape != old.shape and not grown:
            self._mismatch(name, f"{list(old.shape)}, as in {self._base.ref}", info)
        both_floats = {info.dtype, old.dtype} <= FLOATS.keys()
        return Rounded.of(info, old.dtype) if both_floats else info

    def _changed(
        self,
        name: str,
        module: str,
        roles: Mapping[str, Tensor],
        weight: Tensor,
        transposed: bool,
    ) -> Adapted | None:
        """Return the weight of a module as the adapter changes it; None if there is a problem."""
        a = roles.get("A") or roles.get("embedding_A")
        b = roles.get("B") or roles.get("embedding_B")
        if a is None or b is None or ("A" in roles) != ("B" in roles):
            self._problem("The adapter lacks one of the two matrices of a module", module)
            return None
        magnitude = roles.get("magnitude")
        if self._settings.dora and magnitude is None:
            self._problem("The adapter lacks the magnitude vector of a module (DoRA)", module)
            return None
        for info in (a, b, weight, magnitude):
            if info is not None and info.dtype not in FLOATS:
                self._mismatch(module, "floating-point tensors", info)
                return None
        rank = a.shape[0] if a.shape else 0
        fits = [way for way in (False, True) if _fits(a, b, weight, way)]
        if "embedding_A" in roles:
            fits = [way for way in fits if way]
        if not fits or rank == 0:
            self._mismatch(
                module,
                f"A and B whose product has shape {list(weight.shape)}, as in {self._base.ref}",
                f"A {list(a.shape)} and B {list(b.shape)}",
            )
            return None
        way = transposed if len(fits) == 2 else fits[0]
        outputs = b.shape[0]
        if magnitude is not None and magnitude.numel != outputs:
            self._mismatch(module, f"{outputs} elements", magnitude)
            return None
        scale = self._settings.scale(module, rank)
        return Adapted.of(name, weight, a, b, scale, way, magnitude)

    def _some_transposed(self, names: Names, found: Mapping[str, Tensor]) -> bool:
        """Return whether the weights of this model that are not square are stored as (in, out)."""
        for module, roles in names.modules.items():
            weight = found.get(f"{names.base_name(module)}.weight")
            a, b = roles.get("A"), roles.get("B")
            if weight and a and b and _fits(a, b, weight, True) and not _fits(a, b, weight, False):
                return True
        return False

    def _tied_embedding(self, name: str) -> Tensor | None:
        tied = find_tensor(self._base, name)
        return None if tied is None else self._of_base[tied.name]

    def _trained_on(self) -> str:
        named = self._adapter.config.get("base_model_name_or_path")
        return f": its config says {named[:100]!r}" if isinstance(named, str) and named else ""

    def _mismatch(self, name: str, expected: str, found: Tensor | str) -> None:
        if isinstance(found, Tensor):
            found = f"{found.dtype} {list(found.shape)} of {found.name}"
        self._problem(
            "The adapter does not fit the model",
            name,
            expected=expected,
            found=found,
            fix="name the model that the adapter was trained on" + self._trained_on(),
        )

    def _problem(
        self, what: str, name: str, *, expected: str = "", found: str = "", fix: str = ""
    ) -> None:
        self.problems.append(
            Problem(
                what,
                where=self._adapter.ref.text,
                expected=expected or "an adapter as peft saves it",
                found=f"{name[:200]}: {found}" if found else name[:200],
                fix=fix or "download or save the adapter again, or merge it with peft first",
            )
        )


def _fits(a: Tensor, b: Tensor, weight: Tensor, transposed: bool) -> bool:
    """Return whether ``B @ A`` has the shape of the weight, or of its transpose if `transposed`."""
    if len(a.shape) < 2 or len(b.shape) < 2 or len(weight.shape) < 2:
        return False
    if b.numel != b.shape[0] * b.shape[1] or b.shape[1] != a.shape[0]:
        return False
    if transposed:
        return len(a.shape) == len(weight.shape) == 2 and weight.shape == (a.shape[1], b.shape[0])
    return weight.shape == (b.shape[0], *a.shape[1:])


def _config(base: Source, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the base's config.json, adjusted to the tensors with the adapter."""
    config: dict[str, Any] = dict(base.config)
    grown = [
        (old.shape[0], tensors[name].shape[0])
        for name, old in base.tensors.items()
        if is_embedding(name) and old.shape and tensors[name].shape[0] != old.shape[0]
    ]
    untied = [name for name in tensors.keys() - base.tensors.keys() if find_tensor(base, name)]
    for rows, more in grown:
        config = _with_value(config, "vocab_size", rows, more)
    if untied:
        config = {
            **_with_value(config, "tie_word_embeddings", True, False),
            "tie_word_embeddings": False,
        }
    return config


def _with_value(config: Mapping[str, Any], key: str, old: Any, new: Any) -> dict[str, Any]:
    """Return a config in which `key` is `new` wherever it was `old`, also in nested configs."""
    return {
        name: _with_value(value, key, old, new)
        if isinstance(value, Mapping)
        else (new if name == key and value == old else value)
        for name, value in config.items()
    }
