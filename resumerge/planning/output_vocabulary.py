"""The tokens of the output and the size of its embedding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from resumerge.sources.tokenizers.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that the host's vocabulary lacks.

    Args:
        definition: of an added token; None for a plain one, which text is never cut into by itself.
    """

    content: str
    id: int
    definition: Mapping[str, Any] | None


@dataclass(frozen=True, eq=False)
class OutputVocabulary:
    """The tokens of the output.

    Args:
        host: whose tokenizer it is; its tokens keep their numbers.
        reference: of the model that config.json and the like come from.
        new: tokens added to the host's.
        ids: number of every token.
        rows: of embeddings and heads; more than tokens where the vocabulary is padded.
        reference_rows: of the reference model's embedding.
        merges: pairs of a BPE that go on where the host's end.
    """

    host: Vocabulary
    reference: Vocabulary
    new: tuple[NewToken, ...]
    ids: Mapping[str, int]
    rows: int
    reference_rows: int
    merges: tuple[tuple[str, str], ...] = ()
