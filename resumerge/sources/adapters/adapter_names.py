"""Parses the names of an adapter's tensors into the module and the role of each tensor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from resumerge.tensors import Tensor

_ADDED = "base_model.model."
"""The prefix that peft adds to the names of a model's tensors."""

_WRAPPERS = re.compile(r"(^|\.)(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)(?=\.)")
"""The names of torch's wrapper modules, anywhere in a name: compiled, sharded, checkpointed."""


class _Spelling(NamedTuple):
    """One way to name a tensor that changes a module.

    Args:
        text: the words after the module's name.
        role: the tensor's role; see `AdapterNames.modules`.
        ending: a pattern of the text after `text`.
        labelled: whether peft may put the adapter's name after the text, as in
            ``lora_A.default.weight``. peft omits this name when it saves an adapter.
    """

    text: str
    role: str
    ending: str = ""
    labelled: bool = False


_ROLE_SPELLINGS = (
    _Spelling("lora_A", "A", r"\.weight", labelled=True),
    _Spelling("lora_B", "B", r"\.weight", labelled=True),
    _Spelling("lora_down", "A", r"\.weight"),
    _Spelling("lora_up", "B", r"\.weight"),
    _Spelling("lora_embedding_A", "embedding_A", labelled=True),
    _Spelling("lora_embedding_B", "embedding_B", labelled=True),
    _Spelling("lora_magnitude_vector", "magnitude", r"(?:\.weight)?", labelled=True),
    _Spelling("token_adapter.trainable_tokens_delta", "delta", labelled=True),
    _Spelling("alpha", "alpha"),
)
"""All ways to name a tensor that changes a module. The patterns below are built from them."""

_ROLES = {spelling.text: spelling.role for spelling in _ROLE_SPELLINGS}
_TEXTS = "|".join(
    rf"{re.escape(spelling.text)}(?={spelling.ending}\Z)" for spelling in _ROLE_SPELLINGS
)
_CHANGE = re.compile(rf"(?P<module>.+)\.(?P<text>{_TEXTS})(?:\.weight)?", re.DOTALL)

_BEFORE_LABEL = "|".join(
    re.escape(spelling.text.rpartition(".")[2]) for spelling in _ROLE_SPELLINGS if spelling.labelled
)
_LABELLED = re.compile(
    rf".+\.(?:{_BEFORE_LABEL})\.(?!weight$)(?P<label>[^.]+)(?:\.weight)?", re.DOTALL
)
"""The names of tensors that include the adapter's name."""

_NOT_WEIGHTS = re.compile(r"(^|\.)(lora_|token_adapter\.)")
"""The parts of names that only an adapter's own tensors have.

If such a name fits no spelling, it is unknown, and not the name of a whole tensor.
"""

_COPY = re.compile(r"\.modules_to_save(?=\.)")
_ORIGINAL = re.compile(r"\.original_module(?=\.)")


def has_matrices(names: Iterable[str]) -> bool:
    """Return whether tensor names include names of a LoRA's matrices A and B."""
    matches = filter(None, map(_CHANGE.fullmatch, names))
    return {"A", "B"} <= {_ROLES[match["text"]] for match in matches}


@dataclass
class AdapterNames:
    """The parsed names of an adapter's tensors.

    Each name is stored once: in `keys` (its tensor is then in `modules` or `whole`), in `unknown`,
    in `ignored`, or as the second name of a pair in `doubled`.

    Args:
        modules: the tensors of each module, by role: ``A``, ``B`` (or ``embedding_A``,
            ``embedding_B``), ``magnitude``, ``alpha``, and ``delta`` for rows of single tokens.
        whole: tensors that replace the model's, by the names under which peft loads them.
        keys: the name in the adapter of each tensor above, by module and role. For a whole tensor,
            the key is its name in `whole` and an empty role.
        unknown: names that cannot be parsed.
        doubled: pairs of names with the same meaning.
        ignored: names that peft writes and does not load: originals, and copies of whole tensors.
    """

    modules: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    whole: dict[str, Tensor] = field(default_factory=dict)
    keys: dict[tuple[str, str], str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    doubled: list[tuple[str, str]] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, adapter: Mapping[str, Tensor]) -> AdapterNames:
        """Parse the names of an adapter's tensors."""
        names, plain_by_key = cls(), _without_labels(adapter)
        plain_names = frozenset(plain_by_key.values())
        for key, tensor in adapter.items():
            names._add(key, plain_by_key[key], tensor, plain_names)
        return names

    def _add(self, key: str, plain: str, tensor: Tensor, every: frozenset[str]) -> None:
        name = plain.removeprefix(_ADDED)
        match = _CHANGE.fullmatch(name)
        if match:
            role = _ROLES[match["text"]]
            if self._is_new(match["module"], role, key):
                self.modules.setdefault(match["module"], {})[role] = tensor
        elif _NOT_WEIGHTS.search(name):
            self.unknown.append(key)
        elif _is_unused(plain, every):
            self.ignored.append(key)
        else:
            loaded_name = _COPY.sub("", name).replace(".base_layer.", ".")
            if self._is_new(loaded_name, "", key):
                self.whole[loaded_name] = tensor

    def _is_new(self, name: str, role: str, key: str) -> bool:
        first_key = self.keys.setdefault((name, role), key)
        if first_key != key:
            self.doubled.append((first_key, key))
        return first_key == key


def _without_labels(keys: Iterable[str]) -> dict[str, str]:
    """Return each name without torch's wrappers and without the adapter's name, by the full name.

    peft puts the adapter's name into all names or into none. If a file has the tensors of several
    adapters, two tensors get the same name, and are refused later.
    """
    unwrapped_names = {key: _WRAPPERS.sub("", key).lstrip(".") for key in keys}
    adapter_labels = {
        match["label"] for name in unwrapped_names.values() if (match := _LABELLED.fullmatch(name))
    }
    any_label = "|".join(map(re.escape, sorted({"default", *adapter_labels})))
    label_in_name = re.compile(rf"(\.(?:{_BEFORE_LABEL}|modules_to_save))\.(?:{any_label})(?=\.|$)")
    return {key: label_in_name.sub(r"\1", name) for key, name in unwrapped_names.items()}


def _is_unused(name: str, every: frozenset[str]) -> bool:
    """Return whether peft ignores a tensor because it loads another one of the same module.

    An ignored tensor is the original of a module that is saved whole, or a copy of its tensor.

    Args:
        name: the name of the tensor, without wrappers and labels.
        every: the names of all tensors of the adapter, in the same form.
    """
    name_without_copy = _COPY.sub("", name)
    if name_without_copy != name and name_without_copy in every:
        return True
    name_without_original = _ORIGINAL.sub("", name)
    return name_without_original != name and not every.isdisjoint(
        {name_without_original, _ORIGINAL.sub(".modules_to_save", name)}
    )
