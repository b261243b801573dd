"""The whole tensors of an adapter, which replace tensors of the model."""

from __future__ import annotations

import re
from dataclasses import replace

from resumerge.sources.adapter_programs.config import LoraConfig
from resumerge.sources.adapters.adapter_names import AdapterNames
from resumerge.sources.adapters.heads import is_of_new_head
from resumerge.sources.adapters.model_names import ModelNames
from resumerge.sources.adapters.refusals import Refusals
from resumerge.sources.adapters.uses import Uses
from resumerge.sources.adapters.weight_tying import AdapterTies
from resumerge.sources.left_out import LeftOut
from resumerge.sources.tied_names import is_embedding
from resumerge.sources.tied_weights import is_head
from resumerge.tensor_uses import UnusedReason
from resumerge.tensors import Rounded, Tensor
from resumerge.tensors.dtypes import FLOATS


class Replacements:
    """The replacement of a model's tensors by the whole tensors of an adapter.

    Args:
        names: the parsed names of the adapter's tensors.
        known: the names of the model's tensors, looked up by the adapter's names for them.
        settings: the adapter's settings, from its config; the defaults if it has none.
        ties: the model's tied names, under which a whole tensor is stored, too.
        uses: the record of uses, which gets every whole tensor that replaces one.
        refusals: the collector of problems, to which misfits are added; none is raised.

    Attributes:
        new_head: the tensors of a head that the adapter's task adds, by name; complete after
            `apply`.
        left_out: the tied tensors of the model that are replaced, too; complete after `apply`.
    """

    def __init__(
        self,
        names: AdapterNames,
        known: ModelNames,
        settings: LoraConfig,
        ties: AdapterTies,
        uses: Uses,
        refusals: Refusals,
    ) -> None:
        self._names, self._known, self._settings = names, known, settings
        self._ties, self._uses, self._refusals = ties, uses, refusals
        self.new_head: dict[str, Tensor] = {}
        self.left_out: list[LeftOut] = []

    def apply(self, tensors: dict[str, Tensor]) -> None:
        """Replace tensors of the model by all whole tensors of the adapter.

        Args:
            tensors: the model's tensors by name, which are changed in place.
        """
        keys = self._names.keys
        # Copies come last: other tensors are loaded under all tied names, a copy under one name.
        for name in sorted(self._names.whole, key=lambda name: self._ties.is_copy(keys[name, ""])):
            self._replace(name, self._names.whole[name], tensors)

    def _replace(self, name: str, tensor: Tensor, tensors: dict[str, Tensor]) -> None:
        key = self._names.keys[name, ""]
        target = self._known.find(name)
        if target is None and is_of_new_head(name, self._settings):
            target = name
            self.new_head[name] = replace(tensor, name=name)
        if target is None:
            self._refusals.no_place(key)
            return
        self._uses.use(target, "", key)
        tensors[target] = self._replacing(target, tensor)
        for tied_name in self._ties.sharing(target, key):
            self.left_out.append(LeftOut(tensors[tied_name], UnusedReason.TIED))
            tensors[tied_name] = replace(tensors[target], name=tied_name)

    def _replacing(self, name: str, tensor: Tensor) -> Tensor:
        """Return a whole tensor of the adapter with the name and dtype of the one it replaces."""
        base_tensor = self._ties.tensors.get(name)
        tensor = replace(tensor, name=name)
        if base_tensor is None:
            return tensor
        is_of_head = is_head(re.sub(r"\bbias$", "weight", name))
        is_grown = (is_embedding(name) or is_of_head) and tensor.shape[1:] == base_tensor.shape[1:]
        if tensor.shape != base_tensor.shape and not is_grown:
            expected_shape = f"{list(base_tensor.shape)}, as in {self._refusals.model}"
            self._refusals.mismatch(name, expected_shape, tensor)
        are_both_floats = {tensor.dtype, base_tensor.dtype} <= FLOATS.keys()
        return (
            Rounded.of(tensor, base_tensor.dtype, takes_operand=True) if are_both_floats else tensor
        )
