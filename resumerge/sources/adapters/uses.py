"""The uses of an adapter's tensors: which tensor of the model each of them changes."""

from __future__ import annotations

from resumerge.sources.adapters.adapter_names import AdapterNames
from resumerge.sources.adapters.refusals import Refusals


class Uses:
    """The record of the uses of an adapter's tensors. A second tensor for one use is refused.

    Args:
        names: the parsed names of the adapter's tensors.
        refusals: the collector of problems, which gets a second tensor for one use.
    """

    def __init__(self, names: AdapterNames, refusals: Refusals) -> None:
        self._names, self._refusals = names, refusals
        self._keys: dict[tuple[str, str], str] = {}

    def use(self, name: str, role: str, key: str) -> None:
        """Record the use of a tensor of the adapter.

        Args:
            name: the model's name of the changed tensor.
            role: the role of the adapter's tensor; empty for a whole tensor.
            key: the adapter's name of its tensor.
        """
        first_key = self._keys.setdefault((name, role), key)
        if first_key != key:
            self._refusals.doubled(first_key, key)

    def use_module(self, name: str, module: str) -> None:
        """Record that all tensors of a module of the adapter change one tensor of the model."""
        for role in self._names.modules[module]:
            self.use(name, role, self._names.keys[module, role])

    @property
    def replaced(self) -> set[str]:
        """The model's names of the tensors that whole tensors replace."""
        return {name for name, role in self._keys if not role}

    @property
    def adapted(self) -> set[str]:
        """The model's names of the tensors that modules of the adapter change."""
        return {name for name, role in self._keys if role}

    @property
    def have_rows_of_tokens(self) -> bool:
        """Whether a tensor of the adapter has rows of single tokens."""
        return any(role == "delta" for _, role in self._keys)
