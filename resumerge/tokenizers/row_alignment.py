"""The origins of the rows of embeddings and heads in the output, token by token.

The rules for rows are mergekit's; each was observed by running mergekit 0.1.5 on small models. If a
model has the token, its own row is used. Otherwise the row is, in this order: the base model's row;
the row of the only input with the token; the average of the rows of all inputs with the token;
zeros, if no input has it. The recipe's setting for a token overrules these rules.

A row without a token (models have more rows than tokens) is the model's row of the same number if
that row has no token in the model; otherwise it is zeros. If the recipe pads the vocabulary, the
rows after the last token are the mean of all other rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from resumerge.errors import Problem
from resumerge.layout import listed
from resumerge.layout.model_views import ModelViews
from resumerge.layout.vocabulary_tensors import find_vocabulary
from resumerge.recipe import ModelRef, Recipe, TokenizerSetting, TokenRow
from resumerge.tensors import Gathered, Tensor, rounded_input
from resumerge.tensors.rows import AVERAGE, MEAN, ZERO, Rows
from resumerge.tokenizers.output_vocabulary import make_output_vocabulary
from resumerge.tokenizers.vocabulary import Vocabulary


@dataclass
class RowAlignment:
    """The alignment of the rows of vocabulary tensors with the output's vocabulary, token by token.

    Args:
        recipe: the recipe, whose merged models are checked, and which problems refer to.
        setting: the recipe's choice of a vocabulary, and its rules for single tokens.
        models: the models of the recipe, under the reference's names of tensors.
        vocabularies: the vocabulary of each model. For ``union`` and ``base``, the vocabulary of
            the reference (the base, or else the first model) is the host.
        assumed: for each model without a tokenizer, the model whose vocabulary is assumed.
        problems: the problems found so far. `aligned` adds to them.
        notes: the sentences for the user so far. `aligned` adds to them.

    Attributes:
        vocabulary: the output's vocabulary.
    """

    recipe: Recipe
    setting: TokenizerSetting
    models: ModelViews
    vocabularies: Mapping[ModelRef, Vocabulary]
    assumed: Mapping[ModelRef, ModelRef] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._tensors = {
            ref: find_vocabulary(
                self.models.sources[ref], self.models.layers[ref], len(vocabulary.ids)
            )
            for ref, vocabulary in self.vocabularies.items()
        }
        self._known: dict[tuple[tuple[ModelRef, ...], ModelRef | None], list[Rows]] = {}
        self._check_assumed()
        row_counts = {ref: self._size(ref) for ref in self.vocabularies}
        self.vocabulary, problems, notes = make_output_vocabulary(
            self.recipe, self.setting, self.models.reference, self.vocabularies, row_counts
        )
        self.problems += problems
        self.notes += notes
        self._check_tokens()
        self._check_identified()

    def applies(self, ref: ModelRef, tensor: Tensor) -> bool:
        """Return whether a model's tensor has a row for every token."""
        return tensor.name in self._tensors[ref].found

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        """Return a vocabulary tensor's shape in the output."""
        axis = next((k for k, size in enumerate(tensor.shape) if size != 1), 0)
        return (*tensor.shape[:axis], self.vocabulary.rows, *tensor.shape[axis + 1 :])

    def aligned(
        self, refs: tuple[ModelRef, ...], tensors: tuple[Tensor, ...], base: ModelRef | None
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """Return the inputs of an output tensor with aligned rows, and the output tensor's shape.

        Inputs without a row for each token are returned unchanged, with their own shape.

        Args:
            refs: the model of each input, in the order of `tensors`.
            tensors: the inputs, one for each model.
            base: the base model; None without one.
        """
        if not self.applies(refs[0], tensors[0]):
            return tensors, tensors[0].shape
        shape = self.shape(tensors[0])
        if self.problems:  # reported elsewhere; the rows may not exist
            return tensors, shape
        further_models = [ref for ref in self._models_of_tokens() if ref not in refs]
        tables = list(tensors)
        for ref in further_models:
            name = self.models.name_in(ref, tensors[0].name)
            tensor = self.models.find(ref, name)
            if tensor is None or not self.applies(ref, tensor):
                self._no_tensor(ref, name)
                return tensors, shape
            tables.append(rounded_input(tensor, self.recipe.dtype))
        if (refs, base) not in self._known:
            self._known[refs, base] = self._rows(refs, base, further_models)
        rows_of_inputs = zip(self._known[refs, base], refs, tensors)
        aligned_tensors = tuple(
            tensor
            if rows.is_identity(input_index, self._size(ref))
            else Gathered.of(tensor.name, shape, tuple(tables), rows)
            for input_index, (rows, ref, tensor) in enumerate(rows_of_inputs)
        )
        return aligned_tensors, shape

    def _models_of_tokens(self) -> list[ModelRef]:
        """Return the models whose rows of single tokens the recipe requests."""
        models = (row.model for row in self.setting.tokens.values() if row.model is not None)
        return list(dict.fromkeys(models))

    def _size(self, ref: ModelRef) -> int:
        return self._tensors[ref].size or 0

    def _rows(
        self, refs: tuple[ModelRef, ...], base: ModelRef | None, further_models: Sequence[ModelRef]
    ) -> list[Rows]:
        """Return the origin of each row of the output, for each input.

        Args:
            refs: the model of each input. The place in this order is the number of its table.
            base: the base model; None without one.
            further_models: the models of the tables after the inputs, for the recipe's tokens.
        """
        ids, row_count = self.vocabulary.ids, self.vocabulary.rows
        rows_with_token = max(ids.values(), default=-1) + 1
        own_rows = np.stack([self._own(ref, row_count) for ref in refs])
        has_token = np.zeros(row_count, bool)
        has_token[list(ids.values())] = True
        fallback = _fallback(own_rows, refs.index(base) if base in refs else None)
        is_unseen = has_token & (own_rows < 0).all(0)
        for token, row in self.setting.tokens.items():
            number = ids[token]
            is_unseen[number] = False
            if row.model is None:
                fallback.origins[number] = ZERO
            else:
                table_number = [*refs, *further_models].index(row.model)
                fallback.origins[number] = table_number
                fallback.firsts[number] = self._number(token, row)
            if row.force:
                own_rows[:, number] = -1
        if is_unseen.any():
            self.notes.append(
                f"{int(is_unseen.sum())} tokens are in none of the merged models: "
                "their rows are zeros"
            )
        rows_of_inputs = []
        for input_index, ref in enumerate(refs):
            is_spare = self._spare(ref, row_count, has_token)
            rows = np.where(is_spare, np.arange(row_count), own_rows[input_index])
            origins = np.where(rows >= 0, input_index, fallback.origins)
            firsts = np.where(rows >= 0, rows, fallback.firsts)
            self._pad(origins, rows_with_token)
            rows_of_inputs.append(Rows.of(origins, firsts, rows_with_token, fallback.averages))
        return rows_of_inputs

    def _pad(self, origins: np.ndarray, rows_with_token: int) -> None:
        """Make rows after the last token the mean of all others, if the recipe pads the vocabulary.

        Args:
            origins: the origin of each row, which is changed in place.
            rows_with_token: the number of rows up to the last token.
        """
        if self.setting.pad_to_multiple_of is not None:
            origins[rows_with_token:] = MEAN

    def _own(self, ref: ModelRef, count: int) -> np.ndarray:
        """Return, for each row of the output, a model's row of the same token; -1 without one."""
        own_rows = np.full(count, -1, np.int64)
        ids, size = self.vocabulary.ids, self._size(ref)
        for token, number in self.vocabularies[ref].ids.items():
            if number < size and token in ids:
                own_rows[ids[token]] = number
        return own_rows

    def _spare(self, ref: ModelRef, count: int, has_token: np.ndarray) -> np.ndarray:
        """Return a mask of the rows that exist in the output and in a model without a token."""
        is_spare = ~has_token
        is_spare[self._size(ref) :] = False
        used_numbers = [n for n in self.vocabularies[ref].ids.values() if n < count]
        is_spare[used_numbers] = False
        return is_spare

    def _number(self, token: str, row: TokenRow) -> int:
        assert row.model is not None
        if row.token_id is not None:
            return row.token_id
        return self.vocabularies[row.model].ids[row.token or token]

    def _check_assumed(self) -> None:
        """Check that a model without a tokenizer has a row for each token of the assumed one."""
        for ref, assumed_ref in self.assumed.items():
            rows_needed = max(self.vocabularies[ref].ids.values(), default=-1) + 1
            model_rows, assumed_rows = self._tensors[ref].size, self._size(assumed_ref)
            if model_rows is not None and model_rows < rows_needed:
                self.problems.append(
                    self.recipe.problem(
                        f"{ref} has no tokenizer, and too few rows for the tokenizer of "
                        f"{assumed_ref}",
                        self.setting.path("source"),
                        expected=f"{rows_needed:,} rows, one for each token of {assumed_ref}; or a "
                        "tokenizer.json beside its weights",
                        found=f"{model_rows:,} rows",
                        fix="Save the model's own tokenizer into its folder",
                    )
                )
                continue
            note = f"{ref} has no tokenizer: the tokens of {assumed_ref} are assumed"
            if model_rows is not None and model_rows != assumed_rows:
                note += (
                    f", though it has {model_rows:,} rows, and {assumed_ref} has {assumed_rows:,}"
                )
            self.notes.append(note)

    def _check_identified(self) -> None:
        """Check that the tensors with a row for each token are known, if rows must be moved."""
        for ref in self.recipe.merged_models:
            vocabulary_tensors = self._tensors[ref]
            if not self._moves_rows(ref) or (
                vocabulary_tensors.size is not None and not vocabulary_tensors.undecided
            ):
                continue
            shapes = {
                name: self.models.sources[ref].tensors[name].shape
                for name in vocabulary_tensors.undecided
            }
            shape_texts = [f"{name} {list(shape)}" for name, shape in shapes.items()]
            self.problems.append(
                self.recipe.problem(
                    f"The tensors of {ref} with one row per token cannot be identified",
                    self.setting.path("source"),
                    expected="embeddings, output heads and their biases, with vocab_size rows "
                    "(config.json)",
                    found=listed(shape_texts) if shape_texts else "no such tensor",
                    fix="Merge models whose tokenizers give each token the same id: then no row "
                    "has to be moved",
                )
            )

    def _moves_rows(self, ref: ModelRef) -> bool:
        """Return whether the output's rows may differ in number or order from a model's rows."""
        has_same_ids = self.vocabularies[ref].ids == self.vocabulary.ids
        size = self._tensors[ref].size
        return (
            bool(self.setting.tokens)
            or not has_same_ids
            or size not in (None, self.vocabulary.rows)
        )

    def _check_tokens(self) -> None:
        for token, row in self.setting.tokens.items():
            if row.model is None:
                continue
            vocabulary, size = self.vocabularies[row.model], self._size(row.model)
            token_in_model = row.token or token
            if row.token_id is not None:
                has_row, expected_text = row.token_id < size, f"a token id below {size}"
            else:
                has_row = vocabulary.ids.get(token_in_model, size) < size
                models_with_token = [
                    str(ref)
                    for ref, vocabulary in self.vocabularies.items()
                    if token_in_model in vocabulary.ids
                ]
                expected_text = (
                    f"one of: {', '.join(models_with_token)}"
                    if models_with_token
                    else "a token that a model has"
                )
            if not has_row:
                self.problems.append(
                    self.recipe.problem(
                        f"{row.model} has no row for the token {token_in_model!r}"
                        if row.token_id is None
                        else f"{row.model} has no row for the token id {row.token_id}",
                        f"{self.setting.path('tokens')}.{token}.source",
                        expected=expected_text,
                        found=f"{len(vocabulary.ids):,} tokens, {size:,} rows",
                        fix="Name a model that has this token, or another token: "
                        "{kind: model_token, model: …, token: …}",
                    )
                )

    def _no_tensor(self, ref: ModelRef, name: str) -> None:
        self.problems.append(
            self.recipe.problem(
                f"{ref} has no token rows for {name}",
                self.setting.path("tokens"),
                expected=f"a tensor {name} with {self._size(ref):,} rows",
                found="none",
                fix="Take rows from models of the same architecture",
            )
        )


@dataclass(frozen=True)
class _Fallback:
    """The rows that are used for tokens that an input lacks.

    Args:
        origins: for each row of the output, the index of the input that it is taken from, or
            `AVERAGE` or `ZERO`.
        firsts: for each row, its number in this input, or the index of its average.
        averages: (the offset of each average among the members, the input of each member, the row
            of each member).
    """

    origins: np.ndarray
    firsts: np.ndarray
    averages: tuple[np.ndarray, np.ndarray, np.ndarray]


def _fallback(own: np.ndarray, base: int | None) -> _Fallback:
    """Return the rows for tokens that an input lacks: the base's, the only one, or an average.

    Args:
        own: each input's row for each row of the output, or -1; shape (inputs, rows).
        base: the index of the base model among the inputs; None if it is not an input.
    """
    count = own.shape[1]
    has_row = own >= 0
    origins = np.full(count, ZERO, np.int64)
    firsts = np.zeros(count, np.int64)
    in_one_input = has_row.sum(0) == 1
    only_input = has_row.argmax(0)
    origins[in_one_input] = only_input[in_one_input]
    firsts[in_one_input] = own[only_input[in_one_input], np.flatnonzero(in_one_input)]
    if base is not None:
        origins[has_row[base]], firsts[has_row[base]] = base, own[base, has_row[base]]
    averaged_rows = np.flatnonzero((origins == ZERO) & (has_row.sum(0) > 1) & ~has_row.all(0))
    origins[averaged_rows], firsts[averaged_rows] = AVERAGE, np.arange(len(averaged_rows))
    rows, members = np.nonzero(has_row[:, averaged_rows].T)
    offsets = np.concatenate(([0], np.cumsum(has_row[:, averaged_rows].sum(0)))).astype(np.int64)
    averages = (offsets, members, own[members, averaged_rows[rows]])
    return _Fallback(origins, firsts, averages)
