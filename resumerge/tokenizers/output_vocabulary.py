"""Makes the output's vocabulary from the models' vocabularies: its tokens and number of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from resumerge.errors import Problem
from resumerge.recipe import ModelRef, Recipe, TokenizerSetting
from resumerge.tokenizers.vocabulary import Vocabulary

PLAIN = {
    "single_word": False,
    "lstrip": False,
    "rstrip": False,
    "normalized": False,
    "special": False,
}
"""The definition of a token that the recipe adds and no model has."""


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that the host's vocabulary lacks.

    Args:
        content: the token's text as vocabularies have it, such as ``Ġthe``.
        id: the token's number in the output.
        definition: the definition of an added token, as in tokenizer.json; None for a plain token,
            which text is never split into.
    """

    content: str
    id: int
    definition: Mapping[str, Any] | None


@dataclass(frozen=True, eq=False)
class OutputVocabulary:
    """The tokens of the output.

    Args:
        host: the vocabulary whose tokenizer the output has. Its tokens keep their numbers.
        reference: the vocabulary of the reference model, which config.json is taken from.
        new: the tokens that are added to the host's tokens.
        ids: the id of each token, of the host and new, which is also the number of its row.
        rows: the number of rows of embeddings and heads. It may exceed the number of tokens.
        reference_rows: the number of rows of the reference model's embedding.
        merges: the pairs of a BPE that are added after the host's pairs.
    """

    host: Vocabulary
    reference: Vocabulary
    new: tuple[NewToken, ...]
    ids: Mapping[str, int]
    rows: int
    reference_rows: int
    merges: tuple[tuple[str, str], ...] = ()


def make_output_vocabulary(
    recipe: Recipe,
    setting: TokenizerSetting,
    reference: ModelRef,
    vocabularies: Mapping[ModelRef, Vocabulary],
    rows: Mapping[ModelRef, int],
) -> tuple[OutputVocabulary, list[Problem], list[str]]:
    """Make the vocabulary of the output: the tokens of its host, then the added tokens.

    The host is the model that the setting names; for ``union`` and ``base``, it is the reference.

    Args:
        recipe: the recipe, whose merged models give their tokens to a union.
        setting: the recipe's choice of a vocabulary, and its rules for single tokens.
        reference: the base model, or else the first model.
        vocabularies: the vocabulary of each model in the recipe.
        rows: the number of rows in each model's embedding; 0 if it is unknown.

    Returns:
        (the vocabulary, problems, notes).
    """
    host_ref = setting.source if isinstance(setting.source, ModelRef) else reference
    host = vocabularies[host_ref]
    merged_vocabularies = [
        vocabularies[ref] for ref in dict.fromkeys([host_ref, *recipe.merged_models])
    ]
    ids = dict(host.ids)
    new_tokens = tuple(_new_tokens(setting, merged_vocabularies, vocabularies, ids))
    rows_with_token = max(ids.values(), default=-1) + 1
    multiple = setting.pad_to_multiple_of
    output = OutputVocabulary(
        host,
        vocabularies[reference],
        new_tokens,
        ids,
        -(-rows_with_token // multiple) * multiple
        if multiple
        else max(rows_with_token, rows[host_ref]),
        rows[reference],
        _further_merges(merged_vocabularies)
        if any(token.definition is None for token in new_tokens)
        else (),
    )
    problems, notes = _compare_kinds(recipe, setting, host, vocabularies)
    if not ids:
        problems.append(_no_tokens(recipe, setting, host_ref))
    if new_tokens:
        notes.append(
            f"the vocabulary is that of {host_ref} plus {len(new_tokens):,} more: "
            f"{len(ids):,} tokens, {output.rows:,} rows"
        )
    return output, problems, notes


def _new_tokens(
    setting: TokenizerSetting,
    merged: Sequence[Vocabulary],
    vocabularies: Mapping[ModelRef, Vocabulary],
    ids: dict[str, int],
) -> Iterator[NewToken]:
    """Yield the tokens that `ids` lacks, and add them to `ids`.

    For ``union``, the tokens of the models come first, model by model, in the order of their
    numbers. The tokens in the recipe follow.

    Args:
        setting: the recipe's choice of a vocabulary, and its tokens.
        merged: the vocabularies of the merged models, the host's first.
        vocabularies: the vocabulary of each model in the recipe.
        ids: the number of each token; new tokens are added in place.
    """
    candidates: list[tuple[str, Mapping[str, Any] | None]] = []
    if setting.source == "union":
        for vocabulary in merged:
            ordered_tokens = sorted(vocabulary.ids, key=vocabulary.ids.__getitem__)
            candidates += [(token, vocabulary.added.get(token)) for token in ordered_tokens]
    for token, row in setting.tokens.items():
        definitions = vocabularies[row.model].added if row.model else {}
        candidates.append((token, {**definitions.get(row.token or token, PLAIN), "content": token}))
    next_id = max(ids.values(), default=-1) + 1
    for token, definition in candidates:
        if token not in ids:
            ids[token] = next_id
            yield NewToken(token, next_id, definition)
            next_id += 1


def _further_merges(merged: Sequence[Vocabulary]) -> tuple[tuple[str, str], ...]:
    """Return the additional merges of the first BPE that extends the host's BPE; empty without one.

    Only a vocabulary with all plain tokens of the host can extend it. The merges of other
    vocabularies are not read, because reading them would take most of the planning time.

    Args:
        merged: the vocabularies of the merged models, the host's first.
    """
    host, *other_vocabularies = merged
    plain_tokens = host.ids.keys() - host.added.keys()
    for vocabulary in other_vocabularies:
        if (
            vocabulary is host
            or not vocabulary.kind.startswith("BPE")
            or not plain_tokens <= vocabulary.ids.keys()
        ):
            continue
        host_merges, merges = host.merges(), vocabulary.merges()
        if len(merges) > len(host_merges) and merges[: len(host_merges)] == host_merges:
            return tuple(merges[len(host_merges) :])
    return ()


def _compare_kinds(
    recipe: Recipe,
    setting: TokenizerSetting,
    host: Vocabulary,
    vocabularies: Mapping[ModelRef, Vocabulary],
) -> tuple[list[Problem], list[str]]:
    """Return problems and notes about models whose kind of tokenizer differs from the host's."""
    problems: list[Problem] = []
    notes: list[str] = []
    for ref in recipe.merged_models:
        vocabulary = vocabularies[ref]
        if vocabulary.kind == host.kind:
            continue
        if setting.source == "union":
            problems.append(
                recipe.problem(
                    f"The vocabularies of {host.ref} and {ref} cannot be combined into a union",
                    setting.path("source"),
                    expected="tokenizers of the same kind",
                    found=f"{host.kind} in {host.ref}, {vocabulary.kind} in {ref}",
                    fix="Write 'tokenizer_source: base' (or a model): the output gets that "
                    "tokenizer, and tokens with the same text are merged",
                )
            )
        else:
            shared_count = len(vocabulary.ids.keys() & host.ids.keys())
            notes.append(
                f"{ref} has a different kind of tokenizer ({vocabulary.kind}) than {host.ref} "
                f"({host.kind}): {shared_count:,} of {len(host.ids):,} tokens are matched by text"
            )
    return problems, notes


def _no_tokens(recipe: Recipe, setting: TokenizerSetting, host: ModelRef) -> Problem:
    return recipe.problem(
        f"The tokenizer of {host} has no tokens",
        setting.path("source"),
        expected="a vocabulary",
        found="none",
        fix="Name a model with another tokenizer",
    )
