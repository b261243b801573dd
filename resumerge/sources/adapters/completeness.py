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
        settings: the adapter's config.
        base: the tensors of the model.
        names: the parsed names of the adapter's tensors.
        uses: the uses of the adapter's tensors.
        refusals: the collector of problems.
    """
    missing = list(_lacking(settings, base, names.whole, uses.replaced, uses.adapted))
    if settings.tokens and not uses.have_rows_of_tokens:
        missing.append("trainable_tokens_delta")
    for name in missing:
        refusals.problem(
            "The adapter lacks a tensor that its config says it has",
            name,
            expected="what modules_to_save, bias and trainable_token_indices name",
        )
    pairs = [
        (module, roles)
        for module, roles in names.modules.items()
        if roles.keys() & {"A", "embedding_A"}
    ]
    for role, words in (("magnitude", "magnitude vector"), ("alpha", "alpha")):
        incomplete = [module for module, roles in pairs if role not in roles]
        if 0 < len(incomplete) < len(pairs):
            refusals.problem(
                f"The adapter lacks the {words} of a module",
                incomplete[0],
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
        settings: the adapter's config.
        base: the tensors of the model.
        whole: the adapter's names of the tensors that it saves whole.
        replaced: the model's names of the tensors that whole tensors replace.
        adapted: the model's names of the weights that the adapter changes by matrices.
    """
    saved_modules = settings.modules_to_save
    places = {name: _place(name) for name in (*base, *whole)} if saved_modules else {}

    def under(names: Iterable[str], entry: str) -> list[str]:
        return [name for name in names if _place(entry) in places[name]]

    heads = [entry for entry in settings.modules_to_save if entry in HEADS]
    for entry in settings.modules_to_save:
        expected = [name for name in under(base, entry) if not is_computed(base[name])]
        if settings.ties_weights and any(is_head(name) or is_embedding(name) for name in expected):
            continue  # saved once, by either name
        yield from (name for name in expected if name not in replaced and name not in adapted)
        if not expected and entry not in heads and not under(whole, entry):
            yield f"{entry}.weight"
    # peft lists several names of heads; a model has one of them.
    if heads and not any(under(names, entry) for entry in heads for names in (base, whole)):
        yield f"{heads[-1]}.weight"
    yield from (name for name in _biases(settings, base, adapted) if name not in replaced)


def _biases(
    settings: LoraConfig, base: Mapping[str, Tensor], adapted: Collection[str]
) -> Iterator[str]:
    """Yield the model's biases that an adapter trains according to its option ``bias``."""
    if settings.bias == "lora_only":
        for name in adapted:
            bias = f"{name.removesuffix('weight')}bias"
            if name.endswith(".weight") and bias in base:
                yield bias
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
