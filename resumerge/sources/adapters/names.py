"""The names of an adapter's tensors: what each of them is, and of which module."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from resumerge.tensors import Tensor

_ADDED = "base_model.model."
"""The prefix that peft adds to the names of a model's tensors."""

_ROLE = re.compile(
    r"(?P<module>.+)\.(?:"
    r"lora_(?P<matrix>A|B)(?:\.default)?\.weight|"
    r"lora_(?P<kohya>down|up)\.weight|"
    r"lora_(?P<embedding>embedding_[AB])(?:\.default)?|"
    r"lora_(?P<magnitude>magnitude)_vector(?:\.default)?(?:\.weight)?|"
    r"(?P<alpha>alpha)|"
    r"token_adapter\.trainable_tokens_(?P<tokens>delta)(?:\.default)?)",
    re.DOTALL,
)
_KOHYA = {"down": "A", "up": "B"}
_NOT_WEIGHTS = re.compile(r"(^|\.)(lora_|token_adapter\.)")
_COPY = re.compile(r"\.modules_to_save(\.default)?(?=\.)")
_ORIGINAL = re.compile(r"\.original_module(?=\.)")


@dataclass
class AdapterNames:
    """The parsed names of an adapter's tensors; each of them is in exactly one of these.

    Args:
        modules: the tensors of each module, by role: ``A``, ``B`` (or ``embedding_A``,
            ``embedding_B``), ``magnitude``, ``alpha``, and ``delta`` for rows of single tokens.
        whole: tensors that take the place of the model's, by the names that peft loads them under.
        keys: the name in the adapter of each tensor above, by module and role; a whole tensor has
            no role.
        unknown: names of no known kind.
        doubled: pairs of names that mean the same.
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
        names = cls()
        for key, tensor in adapter.items():
            names._add(key, tensor, adapter)
        return names

    def _add(self, key: str, tensor: Tensor, adapter: Mapping[str, Tensor]) -> None:
        name = key.removeprefix(_ADDED)
        found = _ROLE.fullmatch(name)
        if found:
            role = _KOHYA.get(found["kohya"] or "") or next(filter(None, found.groups()[1:]))
            if self._is_new(found["module"], role, key):
                self.modules.setdefault(found["module"], {})[role] = tensor
        elif _NOT_WEIGHTS.search(name):
            self.unknown.append(key)
        elif self._is_unused(key, adapter):
            self.ignored.append(key)
        else:
            plain = _COPY.sub("", name).replace(".base_layer.", ".")
            if self._is_new(plain, "", key):
                self.whole[plain] = tensor

    def _is_new(self, name: str, role: str, key: str) -> bool:
        before = self.keys.setdefault((name, role), key)
        if before != key:
            self.doubled.append((before, key))
        return before == key

    def _is_unused(self, key: str, adapter: Mapping[str, Tensor]) -> bool:
        """Return whether peft writes a tensor beside the one that it loads.

        It is the original of a module that is saved whole, or a copy of the module's tensor.
        """
        plain = _COPY.sub("", key)
        if plain != key and plain in adapter:
            return True
        kept = _ORIGINAL.sub("", key)
        copies = (_ORIGINAL.sub(f".modules_to_save{name}", key) for name in ("", ".default"))
        return kept != key and (kept in adapter or any(copy in adapter for copy in copies))
