"""Assigns each tensor of an adapter to the tensor of the model that it changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from resumerge.errors import Problem
from resumerge.sizes import some
from resumerge.sources.adapter_programs.config import LoraConfig
from resumerge.sources.adapter_programs.kohya import FlatNames
from resumerge.sources.adapters.adapter_names import AdapterNames
from resumerge.sources.adapters.completeness import check_complete
from resumerge.sources.adapters.expert_changes import ExpertChanges
from resumerge.sources.adapters.experts import Experts, whole_parameter
from resumerge.sources.adapters.heads import is_language_head
from resumerge.sources.adapters.model_names import ModelNames
from resumerge.sources.adapters.module_changes import ModuleChanges
from resumerge.sources.adapters.orientation import Orientations
from resumerge.sources.adapters.refusals import Refusals
from resumerge.sources.adapters.replacements import Replacements
from resumerge.sources.adapters.uses import Uses
from resumerge.sources.adapters.vocabulary import check_tokens, grow_biases_of_heads
from resumerge.sources.adapters.weight_tying import AdapterTies
from resumerge.sources.left_out import LeftOut
from resumerge.sources.tied_names import is_embedding
from resumerge.sources.types import Source
from resumerge.tensor_uses import UnusedReason
from resumerge.tensors import Tensor

SHOWN = 5
"""The largest number of names in a note."""


@dataclass(frozen=True, kw_only=True)
class Paired:
    """The tensors of a model, changed by an adapter.

    Args:
        tensors: the tensors by name, with an entry for each of several tied names.
        new_head: the tensors of a head that the adapter's task adds, by name.
        left_out: the tensors that are not used: the adapter's, and tied ones of the model that a
            whole tensor replaces.
        notes: sentences for the user, on tensors that are not used and on a model that becomes a
            classifier.
        problems: the problems of the adapter. With problems, the other fields are incomplete.
    """

    tensors: dict[str, Tensor]
    new_head: dict[str, Tensor]
    left_out: list[LeftOut]
    notes: list[str]
    problems: list[Problem]


def pair(
    base: Source,
    adapter: Source,
    settings: LoraConfig,
    ties: AdapterTies,
    of_adapter: Mapping[str, Tensor],
) -> Paired:
    """Return the tensors of a model, changed by an adapter.

    Args:
        base: the model without the adapter.
        adapter: the adapter, for its reference and its config in messages and notes.
        settings: the adapter's settings, from its config; the defaults if it has none.
        ties: the model's tensors by all their names, with the file names of the combined source.
        of_adapter: the adapter's tensors under PEFT's names, with the file names of the combined
            source.
    """
    refusals = Refusals(base, adapter)
    names = AdapterNames.of(of_adapter)
    _check_names(names, refusals)
    model_names = ModelNames(ties.tensors)
    model_names.learn_prefix(f"{module}.weight" for module in names.modules)
    uses = Uses(names, refusals)
    tensors = dict(ties.tensors)

    replacements = Replacements(names, model_names, settings, ties, uses, refusals)
    replacements.apply(tensors)
    model_texts = base.ref.text, f"{base.ref.text}+{adapter.ref.text}"
    orientations = Orientations(ties.tensors, settings.fan_in_fan_out)
    module_changes = ModuleChanges(model_texts, settings, orientations, refusals)
    experts = Experts(model_names, ties.tensors)
    expert_changes = ExpertChanges(experts, names, settings, module_changes, uses, refusals)
    _Modules(names, model_names, ties, module_changes, expert_changes, uses, refusals).change(
        tensors
    )
    expert_changes.apply(tensors)

    if not refusals.problems:
        check_complete(settings, ties.tensors, names, uses, refusals)
    check_tokens(tensors, ties.tensors, refusals)
    grow_biases_of_heads(tensors, ties=ties, refusals=refusals)
    if tensor_of_unknown_ties := ties.strange(tensors):
        refusals.unknown_ties(tensor_of_unknown_ties)

    ignored_tensors = [LeftOut(of_adapter[name], UnusedReason.NOT_LOADED) for name in names.ignored]
    removed_heads = _language_heads(tensors, ties.tensors) if replacements.new_head else []
    for name in removed_heads:
        del tensors[name]
    return Paired(
        tensors=tensors,
        new_head=replacements.new_head,
        left_out=[*replacements.left_out, *ignored_tensors],
        notes=_notes(adapter.ref.text, names.ignored, list(replacements.new_head), removed_heads),
        problems=refusals.problems,
    )


class _Modules:
    """The change of a model's weights by the modules of an adapter.

    Args:
        names: the parsed names of the adapter's tensors.
        known: the names of the model's tensors, looked up by the adapter's names for them.
        ties: the model's tied names, which share changed rows of tokens.
        changes: makes the changed weight of each module.
        of_experts: collects the changes of experts, and changes whole packed tensors.
        uses: the record of uses, which gets every module that changes a weight.
        refusals: the collector of problems, to which misfits are added; none is raised.
    """

    def __init__(
        self,
        names: AdapterNames,
        known: ModelNames,
        ties: AdapterTies,
        changes: ModuleChanges,
        of_experts: ExpertChanges,
        uses: Uses,
        refusals: Refusals,
    ) -> None:
        self._names, self._known, self._ties = names, known, ties
        self._changes, self._of_experts = changes, of_experts
        self._uses, self._refusals = uses, refusals
        self._flat = FlatNames(ties.tensors)

    def change(self, tensors: dict[str, Tensor]) -> None:
        """Change the model's weights. Changes of experts are only collected, in `of_experts`.

        Args:
            tensors: the model's tensors by name, which are changed in place.
        """
        for module in self._names.modules:
            name = self._known.find(f"{module}.weight") or self._flat.find(module)
            if name is not None:
                self._change(name, module, tensors)
            elif not self._of_experts.collect(module, tensors):
                self._refusals.no_module(module, self._flat.expected(module))

    def _change(self, name: str, module: str, tensors: dict[str, Tensor]) -> None:
        """Change the model's weight `name` by a module of the adapter."""
        roles, weight = self._names.modules[module], tensors[name]
        self._uses.use_module(name, module)
        if len(weight.shape) == 3 and "A" in roles and len(roles["A"].shape) == 2:
            parameter = whole_parameter(name, name, weight)
            self._of_experts.change_parameters([module], [parameter], tensors)
        elif changed_weight := self._changes.changed(name, module, roles, weight):
            tensors[name] = changed_weight
            if "delta" in roles and is_embedding(name):  # peft ties only these changes
                tensors |= {n: replace(changed_weight, name=n) for n in self._tied_rows(name)}

    def _tied_rows(self, name: str) -> list[str]:
        """Return the names that are tied to an embedding and have no rows of tokens themselves."""
        modules = self._names.modules.items()
        adapted_names = {
            self._known.find(f"{module}.weight") for module, roles in modules if "delta" in roles
        }
        return [
            tied_name for tied_name in self._ties.others(name) if tied_name not in adapted_names
        ]


def _check_names(names: AdapterNames, refusals: Refusals) -> None:
    """Check that the names of an adapter's tensors are known and mean one tensor each."""
    if not (names.keys or names.unknown):
        refusals.problem("The adapter has no tensors", "none", expected="LoRA matrices")
    for key in names.unknown:
        refusals.unknown(key)
    for first_name, second_name in names.doubled:
        refusals.doubled(first_name, second_name)


def _language_heads(tensors: Mapping[str, Tensor], base: Mapping[str, Tensor]) -> list[str]:
    """Return the names of the language model's heads, which a classifier does not have."""
    return [name for name in tensors if is_language_head(name) and name in base]


def _notes(adapter: str, ignored: list[str], new_head: list[str], removed: list[str]) -> list[str]:
    """Return the sentences on tensors that are not used and on a model that becomes a classifier.

    Args:
        adapter: the adapter's reference in the recipe.
        ignored: the adapter's names of tensors that peft writes and does not load.
        new_head: the names of the tensors of a head that the adapter's task adds.
        removed: the names of the heads that are removed for the new one.
    """
    notes = []
    if ignored:
        notes.append(
            f"{adapter}: originals and copies beside the tensors that peft loads are not "
            f"used: {some(ignored, most=SHOWN)}"
        )
    if new_head:
        notes.append(
            f"{adapter} makes the model a classifier: the output has {some(new_head, most=SHOWN)}"
            + (f", and not {some(removed, most=SHOWN)}" if removed else "")
        )
    return notes
