"""The tokenizer in a GGUF file, converted from tokenizer.json, as llama.cpp's converter writes it.

That converter uses transformers and SentencePiece. This module reads only tokenizer.json, which
transformers makes from other tokenizer files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from resumerge.errors import InputError, refuse
from resumerge.output.gguf.header import Value
from resumerge.output.gguf.pieces import is_byte, scores_of
from resumerge.sizes import some
from resumerge.sources.gguf.pre_tokenizers import KNOWN, pre_tokenizer_name
from resumerge.sources.gguf.tokenizer import (
    SPACE,
    SPACE_FIRST,
    SPECIAL,
    TO_SPACE_SIGN,
    TokenType,
)

_LIKE_CONTROL = ("<pad>", "<mask>", "<2mass>", "[@BOS@]")
"""Control tokens that some models declare as plain tokens. Source: llama.cpp's converter."""

_PHI, _OF_PHI = re.compile("phi-?3", re.IGNORECASE), {"<unk>", "<s>", "<|endoftext|>"}
"""The pattern of Phi 3's names, and the tokens that llama.cpp expects in a model with that name."""

_PREFIX = {"always": True, "first": True, "never": False}


@dataclass
class WrittenTokenizer:
    """A tokenizer in the form that llama.cpp reads.

    Args:
        model: the model that the tokenizer belongs to, for messages.
        facts: the content of tokenizer.json.
        settings: the content of tokenizer_config.json.
        ids: the id of every token, by the token's text.
        added: the definition of each added token.
        config: the output's config.json. Its ids of special tokens are used if the tokenizer does
            not name these tokens.
        rows: the number of rows of the embedding; rows without a token get a name and a type of
            their own.
        template: the chat template; None if the model has none.
    """

    model: str
    facts: Mapping[str, Any]
    settings: Mapping[str, Any]
    ids: Mapping[str, int]
    added: Mapping[str, Mapping[str, Any]]
    config: Mapping[str, Any]
    rows: int
    template: str | None
    notes: list[str] = field(default_factory=list)

    def values(self) -> dict[str, Value]:
        """Return the metadata, by GGUF key without the prefix ``tokenizer.``.

        Raises:
            InputError: llama.cpp does not support the tokenizer.
        """
        largest_id = max(self.ids.values(), default=0)
        if largest_id >= self.rows:
            raise self._unfit(
                "tokens with numbers",
                f"numbers below {self.rows}, the rows of the embedding",
                largest_id,
            )
        model = self.facts["model"]
        if model.get("type") != "BPE" or not isinstance(model.get("vocab"), Mapping):
            raise self._unfit("model.type", "BPE", model.get("type"))
        for key in ("continuing_subword_prefix", "end_of_word_suffix", "dropout"):
            if model.get(key):
                raise self._unfit(f"model.{key}", "none", model[key])
        has_byte_fallback = model.get("byte_fallback") is True
        metadata = self._of_pieces() if has_byte_fallback else self._of_bytes()
        metadata |= self._special()
        if self.template:
            metadata["chat_template"] = self.template
        self._note_on_matching()
        return {
            name if name == "chat_template" else f"ggml.{name}": value
            for name, value in metadata.items()
        }

    def label(self, name: str) -> str:
        """Return a model's name, changed if llama.cpp would treat the tokenizer wrongly by it.

        If a name contains that of Phi 3, llama.cpp removes spaces after special tokens, and fails
        if the tokens of Phi 3 are missing. Source: llama-vocab.cpp.
        """
        if not self._is_of_phi:
            return _PHI.sub("Phi_3", name)
        return name if _PHI.search(name) else f"{name} (Phi-3)"

    @property
    def _is_of_phi(self) -> bool:
        """Whether the tokenizer is Phi 3's, whose added tokens remove the spaces after them."""
        takes = any(definition.get("rstrip") for definition in self.added.values())
        return takes and self.ids.keys() >= _OF_PHI

    def _unfit(self, what: str, expected: str, found: object) -> InputError:
        return refuse(
            "The tokenizer cannot be written as GGUF",
            where=f"{self.model}: tokenizer.json, {what}",
            expected=expected,
            found=str(found)[:100],
            fix="name a folder as output, and convert it with llama.cpp's own script; or name "
            "another model's tokenizer (tokenizer_source)",
        )

    def _of_bytes(self) -> dict[str, Value]:
        """Return the metadata of a byte-level BPE, such as GPT-2's.

        Raises:
            InputError: llama.cpp does not support the tokenizer.
        """
        name = pre_tokenizer_name(self.facts)
        if name is None:
            raise self._unfit(
                "pre_tokenizer",
                f"one that llama.cpp has under a name: {KNOWN}",
                _shown(self.facts.get("pre_tokenizer")),
            )
        normalizer = self.facts.get("normalizer")
        if normalizer not in (None, {"type": "NFC"}):
            raise self._unfit("normalizer", "none, or NFC", _shown(normalizer))
        if normalizer is not None:
            self.notes.append(
                f"{self.model}: text is normalised (NFC) before it is split, which llama.cpp "
                "leaves out"
            )
        texts, token_types = self._tokens()
        return {
            "model": "gpt2",
            "pre": name,
            "tokens": texts,
            "token_type": token_types,
            "merges": [" ".join(merge) for merge in self._merges()],
        }

    def _of_pieces(self) -> dict[str, Value]:
        """Return the metadata of a BPE of SentencePiece's pieces, such as Llama 2's.

        Raises:
            InputError: llama.cpp does not support the tokenizer.
        """
        id_by_piece = self.facts["model"]["vocab"]
        adds_space = self._space_is_added()
        texts, token_types = self._tokens()
        scores = scores_of(id_by_piece, self._merges(), self.rows)
        if scores is None:
            raise self._unfit(
                "model.merges",
                "those of SentencePiece: every way to make a piece",
                "others: no scores of pieces do the same",
            )
        for token, number in id_by_piece.items():
            if is_byte(token):
                token_types[number], scores[number] = TokenType.BYTE, 0.0
        unknown_token = self.facts["model"].get("unk_token")
        if isinstance(unknown_token, str) and unknown_token in self.ids:
            token_types[self.ids[unknown_token]] = TokenType.UNKNOWN
        if (token_types == TokenType.BYTE).sum() != 256:
            raise self._unfit(
                "model.vocab", "a token for each byte", f"{(token_types == TokenType.BYTE).sum()}"
            )
        return {
            "model": "llama",
            "pre": "default",
            "tokens": texts,
            "scores": scores,
            "token_type": token_types,
            "add_space_prefix": adds_space,
        }

    def _space_is_added(self) -> bool:
        """Return whether the tokenizer puts a space before a text.

        Raises:
            InputError: the tokenizer changes the text in another way than SentencePiece.
        """
        normalizer = self.facts.get("normalizer")
        steps = _steps(normalizer, "normalizers")
        is_normalizer_step = SPACE_FIRST in steps
        other_steps = [step for step in steps if step != SPACE_FIRST]
        pre_tokenizer = _object(self.facts.get("pre_tokenizer"))
        if pre_tokenizer.get("type") == "Metaspace" and not other_steps and not is_normalizer_step:
            prepend_scheme = pre_tokenizer.get("prepend_scheme", "always")
            if pre_tokenizer.get("replacement", SPACE) == SPACE and prepend_scheme in [*_PREFIX]:
                if prepend_scheme == "first":
                    self.notes.append(
                        f"{self.model}: a space is put before the first word alone; llama.cpp puts "
                        "one after every special token, too"
                    )
                return _PREFIX[prepend_scheme]
        is_split = pre_tokenizer.get("type") == "Split" and pre_tokenizer.get("pattern") == {
            "String": " "
        }
        if other_steps != [TO_SPACE_SIGN] or (pre_tokenizer and not is_split):
            raise self._unfit(
                "normalizer and pre_tokenizer",
                "those of SentencePiece: spaces become \u2581",
                _shown([normalizer, pre_tokenizer]),
            )
        return is_normalizer_step

    def _merges(self) -> Iterator[tuple[str, str]]:
        merges = self.facts["model"].get("merges") or []
        if not isinstance(merges, list):
            raise self._unfit("model.merges", "a list", type(merges).__name__)
        for merge in merges:
            parts = merge.split(" ", 1) if isinstance(merge, str) else merge
            if not isinstance(parts, list) or [type(part) for part in parts] != [str, str]:
                raise self._unfit("model.merges", "pairs of pieces", merge)
            if " " in parts[0] + parts[1]:
                raise self._unfit("model.merges", "pieces without spaces", merge)
            yield parts[0], parts[1]

    def _tokens(self) -> tuple[list[str], np.ndarray]:
        """Return the texts of all tokens, and their types as int32, both by id."""
        texts = [f"[PAD{number}]" for number in range(self.rows)]
        token_types = np.full(self.rows, TokenType.UNUSED, np.int32)
        for token, number in self.ids.items():
            definition = self.added.get(token)
            texts[number], token_types[number] = token, TokenType.NORMAL
            if definition is not None:
                is_control = bool(definition.get("special")) or _looks_like_control(token)
                token_types[number] = TokenType.CONTROL if is_control else TokenType.USER_DEFINED
                texts[number] = token if is_control else token.replace(SPACE, " ")
        try:
            for text in texts:
                text.encode()
        except UnicodeEncodeError:
            raise self._unfit("tokens", "text", repr(text)) from None
        return texts, token_types

    def _special(self) -> dict[str, Value]:
        """Return the ids of special tokens, and whether bos and eos are added to a text."""
        metadata: dict[str, Value] = {}
        for kind, name in SPECIAL.items():
            number = self._number_of(kind)
            if number is not None:
                metadata[f"{name}_token_id"] = number
        begin_id, end_id = self._around_text()
        for kind, token in (("bos", begin_id), ("eos", end_id)):
            if token is not None:
                metadata[f"{kind}_token_id"] = token
            metadata[f"add_{kind}_token"] = token is not None
        return metadata

    def _number_of(self, kind: str) -> int | None:
        token = self.settings.get(f"{kind}_token")
        content = token.get("content") if isinstance(token, Mapping) else token
        if isinstance(content, str) and content in self.ids:
            return self.ids[content]
        number: Any = self.config.get(f"{kind}_token_id")
        number = number[0] if isinstance(number, list) and number else number
        return number if type(number) is int and 0 <= number < self.rows else None

    def _around_text(self) -> tuple[int | None, int | None]:
        """Return the ids of the tokens to add before and after a text; None for no token."""
        ids_around: tuple[int | None, int | None] = (None, None)
        for step in _steps(self.facts.get("post_processor"), "processors"):
            kind = step.get("type")
            if kind == "TemplateProcessing":
                template_parts = step.get("single")
                ids_around = self._around_template(
                    template_parts if isinstance(template_parts, list) else []
                )
            elif kind != "ByteLevel":
                raise self._unfit(
                    "post_processor", "a template with one token before and after the text", kind
                )
        return ids_around

    def _around_template(self, single: list[Any]) -> tuple[int | None, int | None]:
        names = [next(iter(_object(part)), "") for part in single]
        token_ids = [
            self.ids.get(str(_object(part["SpecialToken"]).get("id")))
            if name == "SpecialToken"
            else None
            for name, part in zip(names, single)
        ]
        if "Sequence" not in names:
            raise self._unfit("post_processor", "a template with the text", names)
        text_position = names.index("Sequence")
        ids_before, ids_after = token_ids[:text_position], token_ids[text_position + 1 :]
        if len(ids_before) > 1 or len(ids_after) > 1 or None in (*ids_before, *ids_after):
            raise self._unfit("post_processor", "at most one token before and after", names)
        return next(iter(ids_before), None), next(iter(ids_after), None)

    def _note_on_matching(self) -> None:
        """Append notes about added tokens with settings that a GGUF file cannot express."""
        tokens = self.facts.get("normalizer") and [
            token
            for token, definition in self.added.items()
            if definition.get("normalized") and not definition.get("special")
        ]
        if tokens:
            self.notes.append(
                f"{self.model}: {some(tokens)} are looked for in normalised text; llama.cpp "
                "looks in the text as it is"
            )
        names = [
            token
            for token, definition in self.added.items()
            if any(definition.get(key) for key in ("lstrip", "rstrip", "single_word"))
        ]
        if names and not self._is_of_phi:
            self.notes.append(
                f"{self.model}: {some(names)} take spaces beside them, or stand alone, which a "
                "GGUF file cannot say"
            )


def _object(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}


def _steps(found: Any, several: str) -> list[Mapping[str, Any]]:
    """Return the steps of a part of tokenizer.json: one step, or a sequence of steps.

    Args:
        found: the part; None if it is missing.
        several: the key of the list in a sequence.
    """
    inner = _object(found)
    steps = inner.get(several) if inner.get("type") == "Sequence" else [found] if found else []
    return [_object(step) for step in steps] if isinstance(steps, list) else []


def _looks_like_control(token: str) -> bool:
    delimiters = (("<|", "|>"), ("<\uff5c", "\uff5c>"), ("<unused", ">"))
    return token in _LIKE_CONTROL or any(
        token.startswith(opening) and token.endswith(closing) for opening, closing in delimiters
    )


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:100]
