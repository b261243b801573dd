"""The conversion of a recipe's text into a `Recipe`, or into a report of all its problems."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from resumerge.errors import InputError, Problem, refuse
from resumerge.foreign_files import UnfitFile, read_foreign
from resumerge.output_path import EXTRACTION
from resumerge.recipe.as_yaml import as_yaml
from resumerge.recipe.average import AVERAGE, averages_of
from resumerge.recipe.invalid import Findings, Location
from resumerge.recipe.notes import IGNORED_KEYS, notes_on
from resumerge.recipe.schema.exclusions import CHECKS, AnyFile
from resumerge.recipe.schema.extraction import ExtractionFile, ExtractionSection
from resumerge.recipe.schema.keys import MergeFile, ModuleEntry
from resumerge.recipe.schema.mixture import ExpertEntry, MixtureFile
from resumerge.recipe.schema.sections import read_section
from resumerge.recipe.spelling import misspelled
from resumerge.recipe.stages import check_stages, with_stages, with_variants
from resumerge.recipe.sweep import SWEEP, variants_of, without_sweep
from resumerge.recipe.types import (
    MIXTURE,
    Expert,
    Extraction,
    Input,
    Mixture,
    ModelRef,
    Module,
    Recipe,
    Slice,
)
from resumerge.recipe.yaml_lines import MOST_CHARS, Document, descend, load_yaml


@dataclass
class InvalidRecipe(InputError):
    """The error for a recipe that has problems.

    Args:
        valid_parts: the documents without their invalid values, for further checks. A document is
            left out if it then lacks a required value, such as the method.
    """

    valid_parts: Sequence[Recipe] = ()


def load_recipe(path: str | Path) -> Recipe:
    """Read and check a recipe file.

    Args:
        path: a YAML file in mergekit's format, UTF-8.

    Raises:
        InputError: the file cannot be read.
        InvalidRecipe: the recipe has problems. The error has all of them, in the order of lines.

    Example:
        >>> load_recipe("configs/linear.yaml").merge_method
        'linear'
    """
    try:
        text = read_foreign(Path(path), 4 * MOST_CHARS).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refuse(
            "The recipe is not text in UTF-8",
            where=path,
            expected="a YAML file in UTF-8",
            found=f"the byte 0x{error.object[error.start]:02x} at offset {error.start}",
            fix="Check that the path names the recipe, or save the file as UTF-8",
        ) from None
    except (OSError, UnfitFile) as error:
        raise refuse(
            "The recipe cannot be read",
            where=path,
            expected="a YAML file",
            found=getattr(error, "strerror", None) or str(error),
            fix="Check the path",
        ) from None
    return parse_recipe(text, str(path))


def parse_recipe(text: str, file: str = "<text>") -> Recipe:
    """Check the text of a recipe, and return the recipe.

    Args:
        text: the YAML text, with one document for each stage and one for the result.
        file: the name of the recipe file, for messages.

    Raises:
        InvalidRecipe: the recipe has problems. The error has all of them, in the order of lines.
    """
    documents = load_yaml(text, file)
    if any(map(_makes_several_models, documents)):
        return _parse_sweep(documents, text, file)
    return _parse(documents, text, file)


def _makes_several_models(document: Document) -> bool:
    """Return whether a document makes several models in one run."""
    return SWEEP in document.data or AVERAGE in document.data


def _parse_sweep(documents: list[Document], text: str, file: str) -> Recipe:
    """Check every variant of a sweep or an average as a recipe of its own.

    The text of an average's recipe gets a list in place of a pattern, so that a resumed run has the
    same models.

    Raises:
        InvalidRecipe: the sweep or a variant has problems. A problem of several variants is in the
            error once.
    """
    [swept_document, *other_sweeps] = [
        document for document in documents if _makes_several_models(document)
    ]
    key = AVERAGE if AVERAGE in swept_document.data else SWEEP
    variants: Mapping[str, Document]
    notes: Sequence[str] = ()
    if key == AVERAGE:
        variants, listed_document, notes, average_problems = averages_of(swept_document, file)
        problems = [*average_problems]
        if listed_document.data != swept_document.data:
            text = _text_of(
                [
                    listed_document if document is swept_document else document
                    for document in documents
                ]
            )
    else:
        variants, problems = variants_of(swept_document, file)
        variants = variants or {"": without_sweep(swept_document)}
    problems += [_second_sweep(document, file) for document in other_sweeps]
    valid_parts: Sequence[Recipe] = ()
    recipes: dict[str, Recipe] = {}
    for name, variant in variants.items():
        variant_documents = [
            variant if document is swept_document else document for document in documents
        ]
        try:
            recipes[name] = _parse(variant_documents, _text_of(variant_documents), file)
        except InvalidRecipe as error:
            problems += [problem for problem in error.problems if problem not in problems]
            valid_parts = valid_parts or error.valid_parts
    problems += _sweep_of_a_stage(swept_document, key, recipes.values(), file)
    if problems:
        raise InvalidRecipe(sorted(problems, key=lambda problem: problem.line or 0), valid_parts)
    recipe = with_variants(recipes, text)
    return replace(recipe, notes=(*notes, *recipe.notes))


def _text_of(documents: Sequence[Document]) -> str:
    return "---\n".join(as_yaml(document.data) for document in documents)


def _second_sweep(document: Document, file: str) -> Problem:
    key = AVERAGE if AVERAGE in document.data else SWEEP
    return Problem(
        "Two documents make several models each",
        file,
        key,
        document.lines[key],
        expected="a sweep or an average in the document of the result",
        found="one here, too",
        fix="Delete it here",
    )


def _sweep_of_a_stage(
    swept: Document, key: str, variants: Iterable[Recipe], file: str
) -> Iterator[Problem]:
    if any(swept.data.get("name") in variant.stage_names for variant in variants):
        yield Problem(
            f"A stage makes several models: it has the key '{key}'",
            file,
            key,
            swept.lines[key],
            expected=f"'{key}' in the document of the result, which may have stages",
            found=f"one in the stage {swept.data['name']!r}",
            fix="Merge this document with a recipe of its own, and name its outputs in others",
        )


def _parse(documents: list[Document], text: str, file: str) -> Recipe:
    ignored_keys = IGNORED_KEYS - {"name"} if len(documents) > 1 else IGNORED_KEYS
    parsed_documents = [
        _read_document(document, text, file, ignored_keys) for document in documents
    ]
    problems = [
        problem for _, document_problems in parsed_documents for problem in document_problems
    ]
    recipes = [recipe for recipe, _ in parsed_documents if recipe is not None]
    if not problems:
        problems = check_stages(recipes)
    if problems:
        raise InvalidRecipe(sorted(problems, key=lambda problem: problem.line or 0), recipes)
    return with_stages(recipes)


def _read_document(
    document: Document, text: str, file: str, ignored: Collection[str]
) -> tuple[Recipe | None, list[Problem]]:
    """Return the recipe in a document, and its problems.

    If there are problems, the recipe lacks the invalid values. It is None if the rest is not valid.
    """
    errors = Findings()
    section_type = _section(document.data)
    errors += [error for check in CHECKS[section_type] for error in check(document.data)]
    top_level = {key: value for key, value in document.data.items() if key not in ignored}
    recipe_file: AnyFile | None = read_section(section_type, top_level, (), errors)
    if recipe_file is None or errors or document.problems:
        valid_file = _valid_part(section_type, top_level, errors)
        partial_recipe = _recipe(valid_file, errors, text, file, document) if valid_file else None
        return partial_recipe, [
            *document.problems,
            *(document.problem(error, file) for error in errors),
        ]
    recipe = _recipe(recipe_file, errors, text, file, document)
    return replace(recipe, notes=tuple(notes_on(recipe, document.data, ignored))), []


def _recipe(
    written: AnyFile,
    findings: Findings,
    text: str,
    file: str,
    document: Document,
) -> Recipe:
    recipe = Recipe(
        merge_method=_method(written),
        base_model=written.base_model,
        ignored={descend("", at): str(at[-1]) for at in findings.ignored},
        text=text,
        file=file,
        lines=document.lines,
        name=written.name or "",
    )
    if isinstance(written, MixtureFile):
        return replace(recipe, dtype=written.dtype, mixture=_mixture(written))
    if isinstance(written, ExtractionFile):
        extraction = _extraction(written.extract_lora)
        return replace(recipe, out_dtype=written.out_dtype, extraction=extraction)
    return replace(
        recipe,
        modules=tuple(_modules(written)),
        parameters=written.parameters,
        dtype=written.dtype,
        out_dtype=written.out_dtype,
        tokenizer=written.tokenizer or written.tokenizer_source,
        chat_template=written.chat_template,
        experts_together=written.experts is not None,
        extract_expert=written.extract_expert,
        rank=written.rank,
    )


def _method(written: AnyFile) -> str:
    if isinstance(written, MixtureFile):
        return MIXTURE
    return EXTRACTION if isinstance(written, ExtractionFile) else written.merge_method


def _valid_part(section: type[AnyFile], top: dict[Any, Any], errors: Findings) -> AnyFile | None:
    """Return a recipe without its invalid values; None if the remaining values make no recipe.

    Values that become invalid by a deletion are deleted, too.
    """
    remaining_data = deepcopy(top)
    while sum(_delete(remaining_data, error.at) for error in errors):
        errors = Findings()
        valid_file: AnyFile | None = read_section(section, remaining_data, (), errors)
        if valid_file is not None:
            return valid_file
    return None


def _delete(tree: Any, at: Location) -> bool:
    """Delete a value. For an entry of a list, the whole list is deleted.

    Other entries would otherwise move to new indices.

    Returns:
        False if the value, or a section that contains it, has already been deleted.
    """
    if not at:
        return False
    *parent_steps, last_step = at
    container = tree
    for step in parent_steps:
        try:
            container = container[step]
        except (KeyError, IndexError, TypeError):
            return False
    if isinstance(container, dict) and last_step in container:
        del container[last_step]
        return True
    return _delete(tree, tuple(parent_steps))


def _modules(file: MergeFile) -> Iterator[Module]:
    """Yield the entries of ``modules``; without ``modules``, one module for the whole model."""
    if not file.modules:
        yield _module(file, None, "", file.base_model)
    for name, entry in (file.modules or {}).items():
        yield _module(entry, name, f"modules.{name}", file.base_model)


def _module(
    entry: MergeFile | ModuleEntry, name: str | None, path: str, base: ModelRef | None
) -> Module:
    """Return one module.

    Args:
        entry: the section with the module's models or slices.
        name: the module's name; None for the whole model.
        path: the YAML path of `entry`; empty for the top level of the recipe.
        base: the recipe's base model, used if `entry` names none.
    """
    module_base = entry.base_model if name is not None else None
    slices = []
    for index, slice_entry in enumerate(entry.slices or ()):
        slice_path = descend(path, ("slices", index))
        inputs = tuple(
            Input(
                source.model,
                source.layer_range,
                source.parameters,
                f"{slice_path}.sources[{number}]",
            )
            for number, source in enumerate(slice_entry.sources)
        )
        slices.append(
            Slice(inputs, slice_entry.base_model or module_base, slice_entry.parameters, slice_path)
        )
    if entry.models:
        listed_inputs = [
            Input(model.model, None, model.parameters, descend(path, ("models", index)))
            for index, model in enumerate(entry.models)
        ]
        base = module_base or base
        if base and all(model.model != base for model in entry.models):
            listed_inputs.append(
                Input(base, path=f"{path}.base_model" if module_base else "base_model")
            )
        slices.append(Slice(tuple(listed_inputs), module_base, path=path))
    parameters = entry.parameters if name is not None else {}
    return Module(tuple(slices), name, bool(entry.slices), parameters, path)


def _is_mixture(top: Mapping[Any, Any]) -> bool:
    """Return whether a document makes a mixture of experts, as mergekit-moe does."""
    return isinstance(top.get("experts"), list)


def _section(top: Mapping[Any, Any]) -> type[AnyFile]:
    if any(name == EXTRACTION or misspelled(str(name), (EXTRACTION,)) for name in top):
        return ExtractionFile
    return MixtureFile if _is_mixture(top) else MergeFile


def _extraction(section: ExtractionSection) -> Extraction:
    options = {name: value for name, value in vars(section).items() if value is not None}
    return Extraction(**options)


def _mixture(file: MixtureFile) -> Mixture:
    return Mixture(
        _experts(file.experts, "experts"),
        _experts(file.shared_experts or [], "shared_experts"),
        file.gate_mode,
        file.experts_per_token or 2,
        file.architecture,
        file.expert_layout,
    )


def _experts(entries: Sequence[ExpertEntry], key: str) -> tuple[Expert, ...]:
    return tuple(
        Expert(
            entry.source_model,
            entry.positive_prompts or (),
            entry.negative_prompts or (),
            entry.noise_scale or 0.0,
            1.0 if entry.residual_scale is None else entry.residual_scale,
            f"{key}[{number}]",
        )
        for number, entry in enumerate(entries)
    )
