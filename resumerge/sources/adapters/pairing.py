"""Assigns each tensor of an adapter to the tensor of the model that it changes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from resumerge.errors import Problem
from resumerge.sizes import some
from resumerge.sources.adapter_programs.config import LoraConfig
from resumerge.sources.adapter_programs.kohya import FlatNames
from resumerge.sources.adapters.adapter_names import AdapterNames
from resumerge.sources.adapters.completeness import lacking
from resumerge.sources.adapters.experts import (
    ExpertParameter,
    Experts,
    is_stored_transposed,
    restacked,
    whole_parameter,
)
from resumerge.sources.adapters.heads import is_language_head, is_of_new_head
from resumerge.sources.adapters.model_names import ModelNames
from resumerge.sources.adapters.module_changes import ModuleChanges
from resumerge.sources.adapters.orientation import Orientations
from resumerge.sources.adapters.refusals import Refusals
from resumerge.sources.adapters.vocabulary import check_tokens, grow_biases_of_heads
from resumerge.sources.adapters.weight_tying import AdapterTies
from resumerge.sources.left_out import LeftOut
from resumerge.sources.tied_names import is_embedding
from resumerge.sources.tied_weights import is_head
from resumerge.sources.types import Source
from resumerge.tensor_uses import UnusedReason
from resumerge.tensors import Rounded, Tensor
from resumerge.tensors.dtypes import FLOATS

SHOWN = 5
"""The largest number of names in a note."""


class Pairing:
    """The pairing of an adapter's tensors with the tensors of its base model.

    Args:
        base: the model.
        adapter: the adapter.
        settings: the adapter's config.
        ties: the model's tensors by all their names, with the file names of the combined source.
        of_adapter: the adapter's tensors under PEFT's names, with the file names of the combined
            source.

    Attributes:
        notes: sentences for the user, on tensors that are not used and on a model that becomes a
            classifier; complete after `tensors`.
        left_out: the tensors that are not used: the adapter's, and tied ones of the model that a
            whole tensor replaces; complete after `tensors`.
        new_head: the tensors of a head that the adapter's task adds, by name; complete after
            `tensors`.
    """

    def __init__(
        self,
        base: Source,
        adapter: Source,
        settings: LoraConfig,
        ties: AdapterTies,
        of_adapter: Mapping[str, Tensor],
    ) -> None:
        self._base = base
        self._adapter = adapter
        self._refusals = Refusals(base, adapter)
        self._settings = settings
        self._ties = ties
        self._of_base = of_base = ties.tensors
        self._of_adapter = of_adapter
        self._names = AdapterNames.of(of_adapter)
        self._known = ModelNames(of_base)
        self._flat = FlatNames(of_base)
        orientations = Orientations(of_base, settings.fan_in_fan_out)
        self._models = base.ref.text, f"{base.ref.text}+{adapter.ref.text}"
        self._modules = ModuleChanges(self._models, settings, orientations, self._refusals)
        self._experts = Experts(self._known, of_base)
        self._used: dict[tuple[str, str], str] = {}
        self._in_packed: dict[tuple[str, int], dict[int, Tensor]] = defaultdict(dict)
        self._of_experts: dict[str, list[str]] = defaultdict(list)
        self.notes: list[str] = []
        self.left_out: list[LeftOut] = []
        self.new_head: dict[str, Tensor] = {}

    @property
    def problems(self) -> list[Problem]:
        """The problems of the adapter; complete after `tensors`."""
        return self._refusals.problems

    def tensors(self) -> dict[str, Tensor]:
        """Return the model's tensors, changed by the adapter. Problems are added to `problems`."""
        names = self._names
        if not (names.keys or names.unknown or self._refusals.problems):
            self._refusals.problem("The adapter has no tensors", "none", expected="LoRA matrices")
        for key in names.unknown:
            self._refusals.unknown(key)
        for pair in names.doubled:
            self._refusals.doubled(*pair)
        self._known.learn_prefix(f"{module}.weight" for module in names.modules)
        tensors = dict(self._of_base)
        # Copies come last: other tensors are loaded under all tied names, a copy under one name.
        for name in sorted(names.whole, key=lambda name: self._ties.is_copy(names.keys[name, ""])):
            self._replace(name, names.whole[name], tensors)
        for module in names.modules:
            self._adapt(module, tensors)
        self._adapt_experts(tensors)
        if not self._refusals.problems:
            self._check_complete()
        check_tokens(tensors, self._of_base, self._refusals)
        grow_biases_of_heads(tensors, ties=self._ties, refusals=self._refusals)
        if strange := self._ties.strange(tensors):
            self._refusals.unknown_ties(strange)
        self._leave_out(tensors)
        return tensors

    def _adapt(self, module: str, tensors: dict[str, Tensor]) -> None:
        """Change the model's weight for a module of the adapter.

        Changes of experts are only collected here, for `_adapt_experts`.

        Args:
            module: the module's name in the adapter.
            tensors: the model's tensors by name, which are changed in place.
        """
        roles = self._names.modules[module]
        name = self._known.find(f"{module}.weight") or self._flat.find(module)
        if name is not None:
            weight = tensors[name]
            self._use_all(name, module)
            if len(weight.shape) == 3 and "A" in roles and len(roles["A"].shape) == 2:
                self._adapt_parameters([module], [whole_parameter(name, name, weight)], tensors)
            elif changed := self._modules.changed(name, module, roles, weight):
                tensors[name] = changed
                if "delta" in roles and is_embedding(name):  # peft ties only these changes
                    tensors |= {n: replace(changed, name=n) for n in self._tied_rows(name)}
        elif place := self._experts.place(module):
            packed = tensors[place.packed]
            self._use_all(f"{place.packed}[{place.number(packed)}]", module)
            changed = self._modules.changed(f"{module}.weight", module, roles, place.matrix(packed))
            if changed:
                self._in_packed[place.packed, place.height][place.number(packed)] = changed
        elif self._experts.parameters(_unwrapped(module)):
            self._of_experts[_unwrapped(module)].append(module)
        else:
            self._refusals.no_module(module, self._flat.expected(module))

    def _tied_rows(self, name: str) -> list[str]:
        """Return the names that are tied to an embedding and have no rows of tokens themselves."""
        modules = self._names.modules.items()
        adapted_names = {
            self._known.find(f"{m}.weight") for m, roles in modules if "delta" in roles
        }
        return [other for other in self._ties.others(name) if other not in adapted_names]

    def _adapt_experts(self, tensors: dict[str, Tensor]) -> None:
        """Apply the changes of experts that `_adapt` has collected."""
        for (name, height), changed in self._in_packed.items():
            tensors[name] = restacked(tensors[name], changed, height)
        for container, modules in self._of_experts.items():
            target_parameters = self._settings.parameters
            parameters = [
                parameter
                for parameter in self._experts.parameters(container)
                if not target_parameters
                or any(f".{parameter.name}".endswith(f".{end}") for end in target_parameters)
            ]
            # peft wraps the parameters in the order of their declaration; the first is innermost
            modules.sort(key=len, reverse=True)
            if len(modules) != len(parameters):
                self._refusals.problem(
                    "The adapter has not one pair of matrices for each parameter of the experts",
                    ", ".join(modules),
                    expected=", ".join(p.name for p in parameters)
                    or "target_parameters in its config",
                )
                continue
            self._adapt_parameters(modules, parameters, tensors)

    def _adapt_parameters(
        self, modules: list[str], parameters: list[ExpertParameter], tensors: dict[str, Tensor]
    ) -> None:
        """Change parameters of experts, each by the matrices of the module at the same index."""
        pairs = []
        for module, parameter in zip(modules, parameters):
            roles = self._names.modules[module]
            if roles.keys() != {"A", "B"}:
                self._refusals.problem(
                    "The adapter lacks one of the two matrices of a module", module
                )
                return
            a, b = roles["A"], roles["B"]
            fitting = (
                parameter.fitting_orientations(a, b) if {a.dtype, b.dtype} <= FLOATS.keys() else []
            )
            if not fitting:
                count, (rows, columns) = len(parameter.experts), parameter.shape
                self._refusals.mismatch(
                    module,
                    f"A and B of {count} experts of shape {[rows, columns]}: {parameter.name}",
                    f"A {a.dtype} {list(a.shape)} and B {b.dtype} {list(b.shape)}",
                )
                return
            pairs.append((module, parameter, a, b, fitting))
        # A square parameter fits in both orientations. It is stored like the parameters that are
        # not square, or else as the shapes of the experts' parameters show.
        unambiguous = {fitting[0] for *_, fitting in pairs if len(fitting) == 1}
        if len(unambiguous) == 1:
            square_transposed = unambiguous.pop()
        else:
            experts = self._experts.parameters(_unwrapped(modules[0]))
            square_transposed = bool(is_stored_transposed(experts))
        for module, parameter, a, b, fitting in pairs:
            transposed = fitting[0] if len(fitting) == 1 else square_transposed
            rank = a.shape[0] // len(parameter.experts)
            if not self._modules.has_rank(parameter.name, rank):
                return
            scale = self._settings.scale(parameter.name, rank)
            for name, tensor in parameter.changed(a, b, scale, transposed, self._models):
                self._use_all(name, module)
                tensors[name] = tensor

    def _use_all(self, name: str, module: str) -> None:
        """Record that one tensor of the model is changed by all tensors of a module."""
        for role in self._names.modules[module]:
            self._use(name, role, self._names.keys[module, role])

    def _use(self, name: str, role: str, key: str) -> None:
        """Record the use of a tensor of the adapter; refuse a second tensor for the same use.

        Args:
            name: the model's name of the changed tensor.
            role: the role of the adapter's tensor; empty for a whole tensor.
            key: the adapter's name of its tensor.
        """
        first_key = self._used.setdefault((name, role), key)
        if first_key != key:
            self._refusals.doubled(first_key, key)

    def _replace(self, name: str, tensor: Tensor, tensors: dict[str, Tensor]) -> None:
        """Replace a tensor of the model by a whole tensor of the adapter.

        Args:
            name: the name of the whole tensor in `AdapterNames.whole`.
            tensor: the whole tensor.
            tensors: the model's tensors by name, which are changed in place.
        """
        key = self._names.keys[name, ""]
        target = self._known.find(name)
        if target is None and is_of_new_head(name, self._settings):
            target = name
            self.new_head[name] = replace(tensor, name=name)
        if target is None:
            self._refusals.no_place(key)
            return
        self._use(target, "", key)
        tensors[target] = self._replacing(target, tensor)
        for other in self._ties.sharing(target, key):
            self.left_out.append(LeftOut(tensors[other], UnusedReason.TIED))
            tensors[other] = replace(tensors[target], name=other)

    def _replacing(self, name: str, tensor: Tensor) -> Tensor:
        """Return a whole tensor of the adapter with the name and dtype of the one it replaces."""
        base_tensor = self._of_base.get(name)
        tensor = replace(tensor, name=name)
        if base_tensor is None:
            return tensor
        of_head = is_head(re.sub(r"\bbias$", "weight", name))
        grown = (is_embedding(name) or of_head) and tensor.shape[1:] == base_tensor.shape[1:]
        if tensor.shape != base_tensor.shape and not grown:
            self._refusals.mismatch(
                name, f"{list(base_tensor.shape)}, as in {self._base.ref}", tensor
            )
        both_floats = {tensor.dtype, base_tensor.dtype} <= FLOATS.keys()
        return Rounded.of(tensor, base_tensor.dtype, takes_operand=True) if both_floats else tensor

    def _check_complete(self) -> None:
        """Check that the file has all tensors that the config promises.

        Alphas must exist for all modules or for none, and so must magnitude vectors.
        """
        whole_tensors = self._names.whole
        replaced = {name for name, role in self._used if not role}
        changed = {name for name, role in self._used if role}
        missing = list(lacking(self._settings, self._of_base, whole_tensors, replaced, changed))
        if self._settings.tokens and not any(role == "delta" for _, role in self._used):
            missing.append("trainable_tokens_delta")
        for name in missing:
            self._refusals.problem(
                "The adapter lacks a tensor that its config says it has",
                name,
                expected="what modules_to_save, bias and trainable_token_indices name",
            )
        pairs = [
            (module, roles)
            for module, roles in self._names.modules.items()
            if roles.keys() & {"A", "embedding_A"}
        ]
        for role, words in (("magnitude", "magnitude vector"), ("alpha", "alpha")):
            incomplete = [module for module, roles in pairs if role not in roles]
            if 0 < len(incomplete) < len(pairs):
                self._refusals.problem(
                    f"The adapter lacks the {words} of a module",
                    incomplete[0],
                    expected="one for each",
                )

    def _leave_out(self, tensors: dict[str, Tensor]) -> None:
        """Remove the language model's head from a classifier, and note the unused tensors."""
        adapter = self._adapter.ref.text
        ignored = (self._of_adapter[name] for name in self._names.ignored)
        self.left_out += (LeftOut(tensor, UnusedReason.NOT_LOADED) for tensor in ignored)
        if self._names.ignored:
            self.notes.append(
                f"{adapter}: originals and copies beside the tensors that peft loads are not "
                f"used: {some(self._names.ignored, most=SHOWN)}"
            )
        if self.new_head:
            heads = [name for name in tensors if is_language_head(name) and name in self._of_base]
            for name in heads:
                del tensors[name]
            added_names = some(list(self.new_head), most=SHOWN)
            self.notes.append(
                f"{adapter} makes the model a classifier: the output has {added_names}"
                + (f", and not {some(heads, most=SHOWN)}" if heads else "")
            )


def _unwrapped(module: str) -> str:
    """Return a module's name without the ``.base_layer`` that peft adds for each wrapper."""
    return re.sub(r"(\.base_layer)+$", "", module)
