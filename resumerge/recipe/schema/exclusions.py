"""Checks of keys of a document that exclude or need each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from resumerge.output_path import EXTRACTION
from resumerge.recipe.invalid import InvalidValue
from resumerge.recipe.schema.extraction import OF_ALL_MERGES, ExtractionFile
from resumerge.recipe.schema.keys import MergeFile
from resumerge.recipe.schema.mixture import OF_MERGES, MixtureFile
from resumerge.recipe.types import GATE_MODES, OF_PROMPTS

AnyFile = MergeFile | MixtureFile | ExtractionFile
"""The types of a document's top level: a merge, a mixture, or an extraction."""

_Check = Callable[[Mapping[Any, Any]], Iterator[InvalidValue]]


def _check_mixture(top: Mapping[Any, Any]) -> Iterator[InvalidValue]:
    """Yield the errors of a mixture's keys: keys of merges, and contradictory values."""
    for key in OF_MERGES:
        if key in top:
            yield InvalidValue(
                f"A recipe has either 'experts', to make a mixture, or '{key}', to merge",
                expected="one of the two",
                found="both",
                fix=f"Delete '{key}:' and what is below it; or merge in a document of its own, "
                "and name its result here",
                at=(key,),
            )
    experts = top["experts"]
    per_token = top.get("experts_per_token") or 2
    if type(per_token) is int and 0 < len(experts) < per_token:
        yield InvalidValue(
            f"A token cannot use {per_token} of {len(experts)} experts",
            expected=f"experts_per_token of at most {len(experts)}",
            found=f"{per_token}" + ("" if "experts_per_token" in top else ", the default"),
            fix=f"Write 'experts_per_token: {len(experts)}', or add experts",
            at=("experts_per_token",) if "experts_per_token" in top else ("experts",),
        )
    gate_mode = top.get("gate_mode", GATE_MODES[0])
    if gate_mode in OF_PROMPTS:
        yield from _check_prompts(experts)


def _check_prompts(experts: list[Any]) -> Iterator[InvalidValue]:
    """Yield an error for each expert without positive prompts, or one if all prompts are equal."""
    entries = [entry for entry in experts if isinstance(entry, dict)]
    for number, entry in enumerate(experts):
        if isinstance(entry, dict) and not entry.get("positive_prompts"):
            yield InvalidValue(
                f"Expert {number} has no positive_prompts",
                expected="texts of the kind that this expert is for: its gate is made of them",
                found="none",
                fix="Add 'positive_prompts:' with some texts; or write 'gate_mode: random' and "
                "train the gates",
                at=("experts", number),
            )
    prompts = [[e.get("positive_prompts"), e.get("negative_prompts")] for e in entries]
    if len(prompts) > 1 and prompts[0][0] and all(texts == prompts[0] for texts in prompts):
        yield InvalidValue(
            "All experts have the same prompts",
            expected="prompts that tell what each expert is for",
            found="the same for all, so that all gates would be the same",
            fix="Write other prompts for each expert; or 'gate_mode: random', and train the gates",
            at=("experts", 1, "positive_prompts"),
        )


def _check_choices(top: Mapping[Any, Any]) -> Iterator[InvalidValue]:
    """Yield an error for a recipe, and for each module, that has no list of models or several.

    An empty list counts as absent.
    """
    yield from _check_choice(top, (), ("models", "slices", "modules"))
    modules = top.get("modules")
    for name, entry in modules.items() if isinstance(modules, dict) else ():
        if isinstance(entry, dict):
            yield from _check_choice(entry, ("modules", str(name)), ("models", "slices"))


def _check_choice(
    section: Mapping[Any, Any], at: tuple[str, ...], choices: tuple[str, ...]
) -> Iterator[InvalidValue]:
    owner = "module" if at else "recipe"
    expected_text = "models, to merge whole models; slices, to choose layers"
    if not at:
        expected_text += "; modules, to merge the modules of a model in different ways"
    present_keys = [key for key in choices if section.get(key) not in (None, [], {})]
    if len(present_keys) > 1:
        yield InvalidValue(
            f"A {owner} has either {' or '.join(present_keys)}, not both",
            expected=expected_text,
            found=" and ".join(present_keys),
            fix=f"Delete all but one of them, for example '{present_keys[1]}:' and what is "
            "below it",
            at=(*at, present_keys[1]),
        )
    elif not present_keys:
        empty_key = next((key for key in choices if key in section), None)
        yield InvalidValue(
            f"The list of {empty_key} is empty" if empty_key else f"The {owner} names no models",
            expected=expected_text,
            found=f"{empty_key} without entries"
            if empty_key
            else f"neither {' nor '.join(choices)}",
            fix="Write 'models:' and below it '- model: org/name' for each model",
            at=(*at, empty_key) if empty_key else at,
        )


def _check_tokenizer(top: Mapping[Any, Any]) -> Iterator[InvalidValue]:
    if top.get("tokenizer") is not None and top.get("tokenizer_source") is not None:
        yield InvalidValue(
            "A recipe has either tokenizer or tokenizer_source, not both",
            expected="one of the two: 'tokenizer_source: x' is short for 'tokenizer: {source: x}'",
            found="both",
            fix="Delete tokenizer_source, and write its value as 'source:' below 'tokenizer:'",
            at=("tokenizer_source",),
        )


def _check_extraction(top: Mapping[Any, Any]) -> Iterator[InvalidValue]:
    """Yield an error for each key of another kind of recipe in an extraction."""
    for key in OF_ALL_MERGES:
        if key in top:
            yield InvalidValue(
                f"A recipe has either '{EXTRACTION}', to extract an adapter, or '{key}'",
                expected="one of the two",
                found="both",
                fix=f"Delete '{key}:' and what is below it",
                at=(key,),
            )


CHECKS: Mapping[type[AnyFile], tuple[_Check, ...]] = {
    MergeFile: (_check_choices, _check_tokenizer),
    MixtureFile: (_check_mixture,),
    ExtractionFile: (_check_extraction,),
}
"""The checks of a document's keys, by the type of its top level."""
