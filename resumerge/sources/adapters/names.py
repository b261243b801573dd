"""Names of a PEFT adapter's tensors: their roles, and the model's tensors that they belong to."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from resumerge.tensors import Tensor

_ADDED = "base_model.model."
"""The prefix that peft adds to the names of a model's tensors."""

_ROLE = re.compile(
    r"(?P<module>.+)\.(?:"
    r"lora_(?P<matrix>[AB])\.weight|"
    r"lora_(?P<embedding>embedding_[AB])|"
    r"lora_(?P<magnitude>magnitude)_vector(?:\.weight)?)",
    re.DOTALL,
)
_NOT_WEIGHTS = re.compile(r"(^|\.)(lora_|token_adapter\.)")
_COPY = re.compile(r"\.modules_to_save(?=\.)")
_UNUSED = re.compile(r"\.original_module\.")
"""A part of the names of the originals that peft may save beside modules that it saves whole."""


class Names:
    """The parsed names of an adapter's tensors.

    Attributes:
        modules: each module's ``A``, ``B`` (or ``embedding_A``, ``embedding_B``) and ``magnitude``.
        replaced: the names of the base's tensors that are replaced as a whole, by the adapter's
            names.
        unknown: the names of no known kind.
    """

    def __init__(self, adapter: Mapping[str, Tensor], base: Collection[str]) -> None:
        self.modules: dict[str, dict[str, Tensor]] = {}
        self.unknown: list[str] = []
        whole: dict[str, str] = {}
        for key, info in adapter.items():
            name = key.removeprefix(_ADDED)
            found = _ROLE.fullmatch(name)
            if found:
                role = found["matrix"] or found["embedding"] or found["magnitude"]
                self.modules.setdefault(found["module"], {})[role] = info
            elif _NOT_WEIGHTS.search(name):
                self.unknown.append(key)
            elif not _UNUSED.search(name) and not (
                _COPY.search(key) and _COPY.sub("", key) in adapter
            ):
                whole[key] = _COPY.sub("", name).replace(".base_layer.", ".")
        self._dropped, self._added = _shift(self.modules, base)
        self.replaced = {key: self.base_name(name) for key, name in whole.items()}

    def base_name(self, name: str) -> str:
        """Return the name of a module or tensor in the base model's files."""
        if name.startswith(self._dropped):
            return self._added + name.removeprefix(self._dropped)
        return name


def _shift(modules: Collection[str], base: Collection[str]) -> tuple[str, str]:
    """Return the prefixes by which the names in the base's files differ from those of its modules.

    A library may load ``h.0.attn`` from a file as ``transformer.h.0.attn``.

    Returns:
        The prefix of a module's name to remove, and the one to add.
    """
    weights = {name.removesuffix(".weight") for name in base if name.endswith(".weight")}
    strange = next((module for module in modules if module not in weights), None)
    if strange is None or any(module in weights for module in modules):
        return "", ""
    parts = strange.split(".")
    for k in range(len(parts)):
        rest = ".".join(parts[k:])
        fitting = [name for name in weights if name == rest or name.endswith("." + rest)]
        if len(fitting) == 1:
            return strange.removesuffix(rest), fitting[0].removesuffix(rest)
    return "", ""
