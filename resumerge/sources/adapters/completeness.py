"""The tensors that an adapter's config promises but its file lacks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from resumerge.sources.adapter_programs.config import LoraConfig
from resumerge.sources.adapters.adapter_names import AdapterNames
from resumerge.sources.adapters.heads import HEADS, is_language_head
from resumerge.sources.adapters.model_names import spelled, stripped
from resumerge.sources.adapters.refusals import Refusals
from resumerge.sources.adapters.uses import Uses
from resumerge.sources.tied_names import is_embedding
from resumerge.sources.tied_weights import is_computed, is_head
from resumerge.tensors import Tensor
from resumerge.tensors.dtypes import FLOATS


def check_complete(
    settings: LoraConfig,
    base: Mapping[str, Tensor],
    names: AdapterNames,
    uses: Uses,
    refusals: Refusals,
) -> None:
    """Check that an adapter has all tensors that its config promises.

    Alphas must exist for all modules or for none, and so must magnitude vectors.

    Args:
        settings: the adapter's settings, from its config; the defaults if it has none.
        base: the model's tensors by name, before the adapter changes them.
        names: the parsed names of the adapter's tensors.
        uses: the record of the tensors that the adapter replaces or changes.
        refusals: gets a problem for each missing tensor; nothing is raised here.
    """
    missing_tensors = list(_lacking(settings, base, names.whole, uses.replaced, uses.adapted))
    if settings.tokens and not uses.have_rows_of_tokens:
        missing_tensors.append("trainable_tokens_delta")
    for name in missing_tensors:
        refusals.problem(
            "The adapter lacks a tensor that its config says it has",
            name,
            expected="what modules_to_save, bias and trainable_token_indices name",
        )
    modules_with_matrices = [
        (module, roles)
        for module, roles in names.modules.items()
        if roles.keys() & {"A", "embedding_A"}
    ]
    for role, role_in_words in (("magnitude", "magnitude vector"), ("alpha", "alpha")):
        modules_without_role = [
            module for module, roles in modules_with_matrices if role not in roles
        ]
        if 0 < len(modules_without_role) < len(modules_with_matrices):
            refusals.problem(
                f"The adapter lacks the {role_in_words} of a module",
                modules_without_role[0],
                expected="one for each",
            )


def _lacking(
    settings: LoraConfig,
    base: Mapping[str, Tensor],
    whole: Collection[str],
    replaced: Collection[str],
    adapted: Collection[str],
) -> Iterator[str]:
    """Yield the names of the tensors that an adapter's config promises but its file lacks.

    Args:
        settings: the adapter's settings, from its config; the defaults if it has none.
        base: the model's tensors by name, before the adapter changes them.
        whole: the adapter's names of the tensors that it saves whole.
        replaced: the model's names of the tensors that whole tensors replace.
        adapted: the model's names of the weights that the adapter changes by matrices.
    """
    saved_modules = settings.modules_to_save
    places = {name: _place(name) for name in (*base, *whole)} if saved_modules else {}

    def under(names: Iterable[str], entry: str) -> list[str]:
        return [name for name in names if _place(entry) in places[name]]

    head_entries = [entry for entry in settings.modules_to_save if entry in HEADS]
    for entry in settings.modules_to_save:
        expected_names = [name for name in under(base, entry) if not is_computed(base[name])]
        if settings.ties_weights and any(
            is_head(name) or is_embedding(name) for name in expected_names
        ):
            continue  # saved once, by either name
        yield from (name for name in expected_names if name not in replaced and name not in adapted)
        if not expected_names and entry not in head_entries and not under(whole, entry):
            yield f"{entry}.weight"
    # peft lists several names of heads; a model has one of them.
    if head_entries and not any(
        under(names, entry) for entry in head_entries for names in (base, whole)
    ):
        yield f"{head_entries[-1]}.weight"
    yield from (name for name in _biases(settings, base, adapted) if name not in replaced)


def _biases(
    settings: LoraConfig, base: Mapping[str, Tensor], adapted: Collection[str]
) -> Iterator[str]:
    """Yield the model's biases that an adapter trains according to its option ``bias``."""
    if settings.bias == "lora_only":
        for name in adapted:
            bias_name = f"{name.removesuffix('weight')}bias"
            if name.endswith(".weight") and bias_name in base:
                yield bias_name
    elif settings.bias == "all":
        for name, tensor in base.items():
            if not name.endswith(".bias") or tensor.dtype not in FLOATS or is_computed(tensor):
                continue
            if settings.task is None or not is_language_head(name):
                yield name


def _place(name: str) -> str:
    """Return a name in the common spelling, between dots.

    The result for a module is a substring of the result for each of its tensors.
    """
    return f".{spelled(stripped(name))}."
