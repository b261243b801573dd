"""Converts the tokenizer in a GGUF file to tokenizer.json and tokenizer_config.json.

llama.cpp's converter omits the settings that follow from the names of the tokenizer and its
pre-tokenizer (llama.cpp, llama-vocab.cpp). A tokenizer with an unknown name is not converted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Any

from resumerge.errors import InputError
from resumerge.sources.gguf.metadata import Metadata
from resumerge.sources.gguf.pre_tokenizers import by_bytes, pre_tokenizer_named

SPACE = "\u2581"
"""The character that SentencePiece writes for a space."""

FILES = ("tokenizer.json", "tokenizer_config.json")
"""The names of the files that are made from the metadata."""

_BYTES, _PIECES = "gpt2", "llama"
"""llama.cpp's names of a byte-level BPE, and of a tokenizer of SentencePiece's pieces."""

_LONGEST = 256
"""The most characters of a normal piece. All places to split a piece are tried."""

_USUAL = {"bos": 1, "eos": 2, "unknown": 0}
"""The default numbers of SentencePiece's special tokens (llama.cpp)."""

SPECIAL = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding", "sep": "seperator"}
"""The words of GGUF's keys (spelt as in GGUF), by the words of transformers' keys."""

SPACE_FIRST = {"type": "Prepend", "prepend": SPACE}
TO_SPACE_SIGN = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
"""The steps of tokenizer.json that normalise text for SentencePiece's pieces."""


def _key(name: str) -> str:
    return f"tokenizer.ggml.{name}"


LONG_KEYS = frozenset(map(_key, ("tokens", "scores", "token_type", "merges")))
"""The keys of arrays with an element for each token or merge."""


class TokenType(IntEnum):
    """The types of tokens (gguf-py)."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def reason_against(metadata: Metadata) -> str:
    """Return the reason why a file's tokenizer is not converted, in words; empty if it is."""
    tokenizer_name, pre_tokenizer_name = metadata.text(_key("model")), metadata.text(_key("pre"))
    if not tokenizer_name:
        return "it has none"
    if tokenizer_name == _BYTES and pre_tokenizer_named(pre_tokenizer_name) is None:
        return f"its pre-tokenizer, {pre_tokenizer_name[:40]!r}, is not known"
    return (
        ""
        if tokenizer_name in (_BYTES, _PIECES)
        else f"its kind, {tokenizer_name[:40]!r}, is not known"
    )


def tokenizer_of(metadata: Metadata, rows: int) -> dict[str, dict[str, Any]]:
    """Return the content of the files of a tokenizer that has no `reason_against`, by name.

    Args:
        metadata: the metadata, with the arrays of `LONG_KEYS`.
        rows: the number of rows of the embedding.

    Raises:
        InputError: the tokenizer is damaged.
    """
    return _Tokenizer(metadata, rows).files()


class _Tokenizer:
    def __init__(self, metadata: Metadata, rows: int) -> None:
        self._metadata = metadata
        self._tokens = self._texts("tokens")
        if len(self._tokens) > rows:
            raise self._bad("tokens", f"{rows}, the rows of the embedding", len(self._tokens))
        self._types = self._per_token_array("token_type", int) or [TokenType.NORMAL] * len(
            self._tokens
        )
        self._has_pieces = metadata.text(_key("model")) == _PIECES
        self._ids = dict(self._own_tokens())
        self._special = {
            transformers_word: self._tokens[number]
            for transformers_word, key in SPECIAL.items()
            if (number := self._number(key)) is not None
        }

    def files(self) -> dict[str, dict[str, Any]]:
        settings = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            **{f"{name}_token": token for name, token in self._special.items()},
        }
        if context_length := self._metadata.size("context_length"):
            settings["model_max_length"] = context_length
        if template := self._metadata.text("tokenizer.chat_template"):
            settings["chat_template"] = template
        tokenizer = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": list(self._added_tokens()),
            **(self._of_pieces() if self._has_pieces else self._of_bytes()),
        }
        return dict(zip(FILES, (tokenizer, settings)))

    def _of_bytes(self) -> dict[str, Any]:
        pre_tokenizer = pre_tokenizer_named(self._metadata.text(_key("pre")))
        assert pre_tokenizer is not None
        return {
            "normalizer": pre_tokenizer.normalizer,
            "pre_tokenizer": pre_tokenizer.steps,
            "post_processor": self._around_text(pre_tokenizer.is_begun)
            or by_bytes(use_regex=False),
            "decoder": by_bytes(use_regex=True),
            "model": self._model(self._merges(), ignore_merges=pre_tokenizer.whole),
        }

    def _of_pieces(self) -> dict[str, Any]:
        prefix = self._is_set("add_space_prefix", True)
        prepend_steps = [SPACE_FIRST] if prefix else []
        decoders = [
            {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            *([{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []),
        ]
        return {
            "normalizer": {"type": "Sequence", "normalizers": [*prepend_steps, TO_SPACE_SIGN]},
            "pre_tokenizer": None,
            "post_processor": self._around_text(True),
            "decoder": {"type": "Sequence", "decoders": decoders},
            "model": self._model(
                self._joins(),
                unk_token=self._special.get("unk"),
                fuse_unk=True,
                byte_fallback=True,
            ),
        }

    def _model(self, merges: Iterable[str], **more: Any) -> dict[str, Any]:
        defaults = {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
        }
        return {**defaults, **more, "vocab": self._ids, "merges": [*merges]}

    # Tokens

    def _own_tokens(self) -> Iterator[tuple[str, int]]:
        """Yield each token with its number, except tokens that only pad the embedding's rows."""
        previous_tokens = set[str]()
        for number, (text, kind) in enumerate(zip(self._tokens, self._types)):
            if kind == TokenType.UNUSED and text == f"[PAD{number}]":
                continue
            if self._has_pieces and kind == TokenType.USER_DEFINED:
                text = text.replace(" ", SPACE)
                self._tokens[number] = text
            if text in previous_tokens:
                raise self._bad("tokens", "each token once", f"{text} twice")
            previous_tokens.add(text)
            yield text, number

    def _added_tokens(self) -> Iterator[dict[str, Any]]:
        """Yield the definitions of added tokens, which are matched before text is split."""
        for text, number in self._ids.items():
            kind = self._types[number]
            if kind in (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED):
                match_settings = dict.fromkeys(
                    ("single_word", "lstrip", "rstrip", "normalized"), False
                )
                is_special = kind != TokenType.USER_DEFINED
                yield {"id": number, "content": text, **match_settings, "special": is_special}

    def _merges(self) -> Iterator[str]:
        """Yield the merges as texts. Pairs would take several times as much memory."""
        for merge in self._texts("merges"):
            left, space, right = merge.partition(" ")
            if not space or not {left, right, left + right} <= self._ids.keys():
                raise self._bad("merges", "two tokens that make a third", merge)
            yield merge

    def _joins(self) -> Iterator[str]:
        """Yield every pair of pieces that makes a piece, by descending score of this piece."""
        scores = self._per_token_array("scores", float)
        if scores is None:
            raise self._bad("scores", "a score for every token", None)
        ids = {
            text: number
            for text, number in self._ids.items()
            if self._types[number] == TokenType.NORMAL
        }
        for piece in sorted(ids, key=lambda text: (-scores[ids[text]], ids[text])):
            if len(piece) > _LONGEST:
                raise self._bad("tokens", f"pieces of at most {_LONGEST} characters", piece)
            cuts = [(piece[:n], piece[n:]) for n in range(1, len(piece))]
            pairs_of_pieces = [cut for cut in cuts if cut[0] in ids and cut[1] in ids]
            yield from map(
                " ".join, sorted(pairs_of_pieces, key=lambda cut: (ids[cut[0]], ids[cut[1]]))
            )

    def _around_text(self, is_begun: bool) -> dict[str, Any] | None:
        """Return the step that puts tokens before and after a text; None if it puts none.

        Args:
            is_begun: whether a token comes before a text, if the file does not state it.
        """
        tokens_before = [self._special["bos"]] if self._puts("bos", is_begun) else []
        tokens_after = [self._special["eos"]] if self._puts("eos", False) else []
        if not tokens_before and not tokens_after:
            return None

        def single(name: str, number: int) -> list[dict[str, Any]]:
            sequence_items = [
                {"SpecialToken": {"id": token, "type_id": number}} for token in tokens_before
            ]
            sequence_items.append({"Sequence": {"id": name, "type_id": number}})
            sequence_items += [
                {"SpecialToken": {"id": token, "type_id": number}} for token in tokens_after
            ]
            return sequence_items

        return {
            "type": "TemplateProcessing",
            "single": single("A", 0),
            "pair": [*single("A", 0), *single("B", 1)],
            "special_tokens": {
                token: {"id": token, "ids": [self._ids[token]], "tokens": [token]}
                for token in (*tokens_before, *tokens_after)
            },
        }

    # Values

    def _puts(self, kind: str, usual: bool) -> bool:
        return self._is_set(f"add_{kind}_token", usual) and kind in self._special

    def _is_set(self, key: str, usual: bool) -> bool:
        flag = self._metadata.value(_key(key))
        if flag is None:
            return usual
        if not isinstance(flag, bool):
            raise self._bad(key, "true or false", flag)
        return flag

    def _number(self, kind: str) -> int | None:
        """Return the number of a special token; None if the tokenizer has none.

        Args:
            kind: a value of `SPECIAL`.
        """
        number = self._metadata.token(f"{kind}_token_id")
        if number is None and self._has_pieces:
            number = _USUAL.get(kind)
        if number is None:
            return None
        if number >= len(self._tokens):
            raise self._bad(f"{kind}_token_id", f"below {len(self._tokens)}", number)
        return number if self._tokens[number] in self._ids else None

    def _texts(self, key: str) -> list[str]:
        texts = self._metadata.value(_key(key))
        if not isinstance(texts, tuple) or not all(isinstance(text, str) for text in texts):
            raise self._bad(key, "texts", type(texts).__name__)
        return list(texts)

    def _per_token_array(self, key: str, kind: type) -> list[Any] | None:
        """Return the array under a key, with a number for each token; None if the key is missing.

        Args:
            key: the key without its prefix.
            kind: the type of the numbers.
        """
        numbers = self._metadata.value(_key(key))
        if numbers is None:
            return None
        has_number_per_token = isinstance(numbers, tuple) and len(numbers) == len(self._tokens)
        if not has_number_per_token or not all(type(number) is kind for number in numbers):
            raise self._bad(key, f"{len(self._tokens)} numbers", type(numbers).__name__)
        return list(numbers)

    def _bad(self, key: str, expected: str, found: object) -> InputError:
        return self._metadata.bad(_key(key), expected, found)
