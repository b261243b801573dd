"""The tokens of the experts' prompts, from the base model's tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from resumerge.errors import InputError, refuse
from resumerge.recipe.types import Mixture
from resumerge.tokenizers.vocabulary import CONFIG, Vocabulary, read_json

Tokens = tuple[int, ...]

EXTRA = "pip install 'resumerge[mixtures]'"

TOKEN_BYTES = 1_400
"""The memory for each token of the vocabulary while prompts are split, in bytes.

It holds the token's text and merges as JSON, as Python objects, and in the library tokenizers
(measured: 43 MB for a BPE of 32,000 tokens).
"""

LIBRARY_BYTES = 6 * 10**6
"""The memory for importing the library tokenizers, in bytes (measured: 5 to 6 MB)."""


@dataclass(frozen=True)
class PromptTokens:
    """The tokens of an expert's prompts; each item holds the tokens of one prompt."""

    positive: tuple[Tokens, ...]
    negative: tuple[Tokens, ...]


def splitting_bytes(tokens: int) -> int:
    """Return the memory for splitting prompts into tokens, in bytes.

    Args:
        tokens: the number of tokens in the vocabulary.
    """
    return LIBRARY_BYTES + TOKEN_BYTES * tokens


def tokens_of_prompts(mixture: Mixture, vocabulary: Vocabulary) -> tuple[PromptTokens, ...]:
    """Return the tokens of each expert's prompts; prompts without tokens are left out.

    Each prompt starts with the vocabulary's bos token, if it has one. No other special token is
    added (same as mergekit-moe 0.1.5, observed).

    Args:
        mixture: the mixture of experts, with its prompts.
        vocabulary: the base model's vocabulary.

    Raises:
        InputError: the tokenizer cannot be used, or the library tokenizers is not installed.
    """
    encode = _encoder(vocabulary)
    bos_token = _starting_token(vocabulary)

    def tokens(prompts: Iterable[str]) -> tuple[Tokens, ...]:
        return tuple(filter(None, (tuple(encode(bos_token + text)) for text in prompts)))

    return tuple(
        PromptTokens(tokens(expert.positive_prompts), tokens(expert.negative_prompts))
        for expert in mixture.every
    )


def _encoder(vocabulary: Vocabulary) -> Callable[[str], list[int]]:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise refuse(
            "Prompts cannot be split into tokens",
            where=vocabulary.ref.text,
            expected="the library tokenizers",
            found="it is not installed",
            fix=EXTRA,
        ) from None
    try:
        tokenizer = Tokenizer.from_str(json.dumps(vocabulary.facts()))
    except InputError:
        raise
    except Exception as error:
        raise refuse(
            "The tokenizer cannot be used",
            where=str(vocabulary.source.folder),
            expected="a tokenizer.json that the library tokenizers reads",
            found=str(error).split("\n")[0][:200],
            fix="save the tokenizer again, with transformers",
        ) from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids)


def _starting_token(vocabulary: Vocabulary) -> str:
    """Return the text of the bos token, which begins texts; "" if there is none."""
    names = [name for name in (CONFIG, "special_tokens_map.json") if name in vocabulary.files]
    for name in names:
        token = read_json(vocabulary.source, name).get("bos_token")
        content = token.get("content") if isinstance(token, dict) else token
        if isinstance(content, str):
            return content
    return ""
