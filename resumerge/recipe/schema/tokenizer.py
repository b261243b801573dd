"""The readers of the values of ``tokenizer``, ``tokenizer_source`` and ``chat_template``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from resumerge.recipe.invalid import Findings, InvalidValue, Location, describe
from resumerge.recipe.references import is_local, read_reference
from resumerge.recipe.schema.layer_ranges import whole_number
from resumerge.recipe.schema.sections import (
    key,
    optional,
    read_section,
    required_key,
    value_of,
)
from resumerge.recipe.schema.settings import truth
from resumerge.recipe.spelling import did_you_mean
from resumerge.recipe.types import ModelRef, TokenizerSetting, TokenRow

LARGEST_MULTIPLE = 1 << 20
"""The largest ``pad_to_multiple_of``, in rows; no vocabulary is as large."""


def read_tokenizer(value: Any, at: Location, errors: Findings) -> TokenizerSetting | None:
    """Return the setting from the value of ``tokenizer``, a mapping; None if it has an error."""
    if not isinstance(value, dict):
        errors.append(
            InvalidValue(
                "'tokenizer' is not a mapping",
                expected="a mapping with source, tokens or pad_to_multiple_of",
                found=describe(value),
                fix=f"Write 'tokenizer_source: {value}', or 'tokenizer:' and below it "
                f"'source: {value}'"
                if isinstance(value, str)
                else "Write 'source: union' below 'tokenizer:'",
                at=at,
            )
        )
        return None
    section = read_section(_TokenizerSection, value, at, errors)
    if section is None:
        return None
    return TokenizerSetting(section.source, section.tokens or {}, section.pad_to_multiple_of)


def read_tokenizer_source(value: object) -> TokenizerSetting | None:
    """Return the setting from the value of ``tokenizer_source``: union, base or a model.

    Raises:
        InvalidValue: the value is none of these.
    """
    if value is None:
        return None
    return TokenizerSetting(_read_vocabulary(value), key="tokenizer_source")


def read_template_setting(value: object) -> str | None:
    """Return the value of ``chat_template``: auto, a built-in name, or a Jinja template.

    Null and empty text become None.

    Raises:
        InvalidValue: the value is not text, or blank.
    """
    if value is None or value == "":
        return None
    if isinstance(value, str) and value.strip():
        return value
    raise InvalidValue(
        "This is not a chat template",
        expected="auto, the name of a built-in template, or a Jinja template as text",
        found=describe(value),
        fix="Write 'chat_template: auto', or delete the line to keep the tokenizer's own template",
    )


def _read_vocabulary(value: object) -> Literal["union", "base"] | ModelRef:
    if value == "union":
        return "union"
    if value == "base":
        return "base"
    if isinstance(value, str) and value.startswith("model:"):
        value = value.removeprefix("model:").strip()
    expected_text = "union, base, or a model"
    try:
        ref = read_reference(value)
    except InvalidValue as error:
        raise InvalidValue(
            "The source of the tokenizer is invalid",
            expected=expected_text,
            found=error.found or describe(value),
            fix="Write 'union' for the tokens of all models, 'base' for the tokens of the base "
            "model, or the model whose tokenizer the output should have",
            at=error.at,
        ) from None
    hint = did_you_mean(ref.text, ("union", "base"))
    if hint and not is_local(ref.name):
        raise InvalidValue(
            "The source of the tokenizer is invalid",
            expected=expected_text,
            found=describe(value),
            fix=f"{hint} To name a model, write 'org/name'",
        )
    return ref


def _read_tokens(value: Any, at: Location, errors: Findings) -> dict[str, Any]:
    if not isinstance(value, dict):
        errors.append(
            InvalidValue(
                "'tokens' is not a mapping",
                expected="a mapping: each token, and below it its source",
                found=describe(value),
                fix="Write the token in quotes, a colon, and below it 'source:'",
                at=at,
            )
        )
        return {}
    for token in value:
        if not isinstance(token, str) or not token:
            errors.append(
                InvalidValue(
                    "This is not a token",
                    expected="the text of a token",
                    found=describe(token),
                    fix=f'Put it in quotes: "{token}"',
                    at=(*at, str(token)),
                )
            )
    return {token: _read_row(entry, (*at, str(token)), errors) for token, entry in value.items()}


def _read_row(value: Any, at: Location, errors: Findings) -> TokenRow | None:
    """Return the row of one token, from its ``source`` and ``force``; None if it has an error."""
    if not isinstance(value, dict) or value.get("source") is None:
        errors.append(
            InvalidValue(
                "This token has no source",
                expected="source: a model, {kind: zero}, or "
                "{kind: model_token, model: …, token: …}",
                found=describe(value),
                fix="Write where its row comes from, like 'source: org/name'; "
                "without an entry it comes from the models that have the token",
                at=at,
            )
        )
        return None
    section = read_section(_TokenSection, value, at, errors)
    if section is None:
        return None
    return replace(section.source, force=bool(section.force))


def _read_row_source(value: Any, at: Location, errors: Findings) -> TokenRow | None:
    if not isinstance(value, dict) or "kind" not in value:
        return TokenRow(_reference(value, at, errors))
    kind = value["kind"]
    if kind == "zero":
        return TokenRow() if read_section(_ZeroSource, value, at, errors) else None
    if kind != "model_token":
        errors.append(
            InvalidValue(
                f"Unknown kind of token source '{kind}'",
                expected="zero, or model_token",
                found=describe(kind),
                fix=did_you_mean(str(kind), ("zero", "model_token"))
                or "Write 'kind: zero' or 'kind: model_token'",
                at=(*at, "kind"),
            )
        )
        return None
    source = read_section(_ModelTokenSource, value, at, errors)
    if source is None:
        return None
    if (source.token is None) == (source.token_id is None):
        errors.append(
            InvalidValue(
                "A model_token needs either 'token' or 'token_id'",
                expected="token: its text, or token_id: its id",
                found="both" if source.token is not None else "neither",
                fix="Write one of the two",
                at=at,
            )
        )
    return TokenRow(source.model, source.token, source.token_id)


def _read_token_text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise InvalidValue(
        "This is not a token",
        expected="the text of a token",
        found=describe(value),
        fix=f'Put it in quotes: "{value}"',
    )


def _read_token_id(value: object) -> int:
    number = whole_number(value)
    if number is not None and number >= 0:
        return number
    raise InvalidValue(
        "This is not a token id",
        expected="a whole number, 0 or more",
        found=describe(value),
        fix="Write the id of the token in the vocabulary of its model",
    )


def _read_force(value: object) -> bool:
    flag = truth(value)
    if flag is not None:
        return flag
    raise InvalidValue(
        "'force' is neither true nor false",
        expected="true: for all models; false: only for models without the token",
        found=describe(value),
        fix="Write true or false",
    )


def _read_multiple(value: object) -> int:
    number = whole_number(value)
    if number is not None and 0 < number <= LARGEST_MULTIPLE:
        return number
    raise InvalidValue(
        "The value of pad_to_multiple_of is invalid",
        expected=f"a whole number from 1 to {LARGEST_MULTIPLE:,}",
        found=describe(value),
        fix="Write a number like 64, or delete the line to keep the number of rows",
    )


_reference = value_of(read_reference)


@dataclass(frozen=True, kw_only=True)
class _TokenizerSection:
    where: ClassVar[str] = "in tokenizer"
    source: Literal["union", "base"] | ModelRef = field(
        default="union", metadata=key(value_of(_read_vocabulary))
    )
    tokens: dict[str, TokenRow] = field(default_factory=dict, metadata=key(optional(_read_tokens)))
    pad_to_multiple_of: int | None = field(
        default=None, metadata=key(optional(value_of(_read_multiple)))
    )


@dataclass(frozen=True, kw_only=True)
class _TokenSection:
    where: ClassVar[str] = "in the entry of a token"
    source: TokenRow = field(default=TokenRow(), metadata=key(_read_row_source))
    force: bool | None = field(default=None, metadata=key(optional(value_of(_read_force))))


@dataclass(frozen=True, kw_only=True)
class _ZeroSource:
    where: ClassVar[str] = "in a token source of kind zero"
    kind: str = field(default="", metadata=key(value_of(str)))


@dataclass(frozen=True, kw_only=True)
class _ModelTokenSource:
    where: ClassVar[str] = "in a token source of kind model_token"
    kind: str = field(default="", metadata=key(value_of(str)))
    model: ModelRef = field(
        metadata=required_key(
            _reference, expected="the model that has the token", fix="Add 'model: org/name'"
        )
    )
    token: str | None = field(default=None, metadata=key(optional(value_of(_read_token_text))))
    token_id: int | None = field(default=None, metadata=key(optional(value_of(_read_token_id))))
