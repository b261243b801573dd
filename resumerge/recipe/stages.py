"""Recipes of several documents: each is a merge, whose models may be results of other documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

from resumerge.errors import Problem
from resumerge.recipe.spelling import misspelled
from resumerge.recipe.types import Recipe


def check_stages(documents: Sequence[Recipe]) -> list[Problem]:
    """Return the problems of the documents' names, and of their references to each other."""
    if len(documents) == 1:
        return []
    if problems := [*_unnamed(documents), *_named_twice(documents)]:
        return problems
    problems = [*_misspelled(documents), *(_in_circles(documents) or _unused(documents))]
    return problems or [*_of_adapters(documents)]


def _of_adapters(documents: Sequence[Recipe]) -> Iterator[Problem]:
    """Yield the problems of extractions: only the result of a recipe may be an extraction."""
    names = {document.name for document in documents if document.name}
    for document in documents:
        if document.extraction is None:
            continue
        if _users(documents, document):
            yield document.problem(
                "An adapter that is extracted is the result of a recipe, and no stage",
                "extract_lora",
                expected="the extraction in the document that no other names",
                found=f"{document.name}, which another document names",
                fix="Run this document first, and name its output as an adapter: model+output",
            )
        base = document.base_model
        if base is not None and base.parts[0].text in names:
            yield document.problem(
                "The base model of an adapter is a model in files, and no stage",
                "base_model",
                expected="the model that the adapter will be loaded on",
                found=str(base),
                fix="Run that document first, and name its output here",
            )


def with_stages(documents: Sequence[Recipe]) -> Recipe:
    """Return the recipe of the result, with the other documents as its stages.

    Each stage comes after the stages that it needs, so that they can be planned in this order.

    Args:
        documents: documents without problems. The result is the document that no other one names.
    """
    ordered_documents = _ordered(documents)
    result = next(document for document in documents if not _users(documents, document))
    notes = tuple(note for document in ordered_documents for note in document.notes)
    return replace(
        result,
        stages=tuple(document for document in ordered_documents if document is not result),
        notes=notes,
    )


def stages_alone(recipe: Recipe, names: Set[str]) -> Recipe:
    """Return the recipe that makes only some stages; the last of them becomes its result.

    Args:
        recipe: a recipe with stages. Its own result is dropped.
        names: the names of stages, at least one. The stages that they need are added.
    """
    needed_names = set(names)
    for stage in reversed(recipe.stages):
        needed_names |= _model_names(stage) if stage.name in needed_names else set()
    *other_stages, last_stage = (stage for stage in recipe.stages if stage.name in needed_names)
    return replace(last_stage, stages=tuple(other_stages))


def with_variants(variants: Mapping[str, Recipe], text: str) -> Recipe:
    """Return the recipe of a sweep.

    Args:
        variants: the recipes of the outputs, by the outputs' names.
        text: the YAML text of the whole sweep.
    """
    first_variant = next(iter(variants.values()))
    notes = dict.fromkeys(note for variant in variants.values() for note in variant.notes)
    return replace(first_variant, text=text, variants=variants, notes=tuple(notes))


def _unnamed(documents: Sequence[Recipe]) -> Iterator[Problem]:
    unnamed_documents = [document for document in documents if not document.name]
    for document in unnamed_documents[1:]:
        yield document.problem(
            "Two documents have no name",
            "",
            expected="a name in every document but one, the result",
            found=f"none here, and none in the document of line {unnamed_documents[0].line('')}",
            fix="Write 'name: first' into one of them, and name it as a model where it is used",
        )


def _named_twice(documents: Sequence[Recipe]) -> Iterator[Problem]:
    first_with_name: dict[str, Recipe] = {}
    for document in filter(lambda document: document.name, documents):
        earlier_document = first_with_name.setdefault(document.name, document)
        if earlier_document is not document:
            yield document.problem(
                f"The name {document.name!r} is that of two documents",
                "name",
                expected="each name once",
                found=f"line {earlier_document.line('name')}, too",
                fix="Rename one of the two",
            )


def _misspelled(documents: Sequence[Recipe]) -> Iterator[Problem]:
    names = [document.name for document in documents if document.name]
    for document in documents:
        for ref in document.models:
            text = ref.parts[0].text
            similar_name = (
                misspelled(text, names) if "/" not in text and text not in names else None
            )
            if similar_name is not None:
                yield document.problem(
                    f"No document has the name {text!r}",
                    document.path_of(ref),
                    expected=f"the name of a document ({', '.join(names)}), or a model",
                    found=text,
                    fix=f"Write '{similar_name}'; or './{text}' for a folder, and org/name for a "
                    "model on the Hub",
                )


def _in_circles(documents: Sequence[Recipe]) -> list[Problem]:
    """Return the problem of the first document that needs its own result, or an empty list."""
    outside_circles = {document.name for document in _ordered(documents)}
    in_circles = {document.name for document in documents if document.name not in outside_circles}
    while in_circles != (needed_names := in_circles & _named_in(documents, in_circles)):
        in_circles = needed_names  # drops documents that no remaining document needs
    return [
        document.problem(
            f"The stage {document.name!r} is made from itself",
            document.path_of(ref),
            expected="stages that need each other's results in one direction only",
            found=f"{ref}, which needs the result of {document.name!r}",
            fix="Name another model here",
        )
        for document in documents
        if document.name in in_circles
        for ref in document.models
        if ref.parts[0].text in in_circles
    ][:1]


def _named_in(documents: Sequence[Recipe], names: Set[str]) -> set[str]:
    """Return the names of all models of the documents with certain names."""
    return set().union(*(_model_names(d) for d in documents if d.name in names))


def _unused(documents: Sequence[Recipe]) -> list[Problem]:
    """Return the problem of each document, except the result, that no other document uses.

    The result is the unused document without a name; else it is the last unused document.
    """
    unused_documents = [document for document in documents if not _users(documents, document)]
    result = next(
        (document for document in unused_documents if not document.name), unused_documents[-1]
    )
    return [
        document.problem(
            f"No document uses the stage {document.name!r}",
            "name",
            expected=f"'- model: {document.name}' in another document",
            found="it in none",
            fix="Name it where it is needed, or delete this document",
        )
        for document in unused_documents
        if document is not result
    ]


def _ordered(documents: Sequence[Recipe]) -> list[Recipe]:
    """Return the documents, each after the documents that it names.

    Documents in a circle, and documents that need them, are left out.
    """
    ordered_documents: list[Recipe] = []
    waiting_documents = {
        id(document): (
            document,
            {id(used_document) for used_document in _used(document, documents)},
        )
        for document in documents
    }
    while ready_keys := [
        key
        for key, (_, used_ids) in waiting_documents.items()
        if not used_ids & waiting_documents.keys()
    ]:
        ordered_documents += [waiting_documents.pop(key)[0] for key in ready_keys]
    return ordered_documents


def _users(documents: Sequence[Recipe], stage: Recipe) -> list[Recipe]:
    return [d for d in documents if any(used is stage for used in _used(d, documents))]


def _used(document: Recipe, documents: Sequence[Recipe]) -> list[Recipe]:
    """Return the documents whose results a document names as models."""
    names = _model_names(document)
    return [other for other in documents if other.name in names]


def _model_names(document: Recipe) -> set[str]:
    """Return the names of a document's models, without their adapters."""
    return {ref.parts[0].text for ref in document.models}
