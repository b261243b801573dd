"""What a recipe says of the output's vocabulary: ``tokenizer``, in short ``tokenizer_source``."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

from resumerge.recipe.invalid import InvalidValue, describe
from resumerge.recipe.references import is_local, read_reference
from resumerge.recipe.types import ModelRef, TokenizerSetting, TokenRow

LARGEST_MULTIPLE = 1 << 20
"""Of ``pad_to_multiple_of``; above it more rows would be padding than any vocabulary has."""

_KEYS = ("source", "tokens", "pad_to_multiple_of")
_TOKEN_KEYS = ("source", "force")
_KINDS = {"zero": (), "model_token": ("model", "token", "token_id")}


def read_tokenizer(value: object) -> TokenizerSetting | None:
    """The value of ``tokenizer``.

    Raises:
        Unfit: for the first thing in it that is unfit, with what else is.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidValue(
            "'tokenizer' is not a mapping",
            expected="a mapping with source, tokens or pad_to_multiple_of",
            found=describe(value),
            fix=f"Write 'tokenizer_source: {value}', or 'tokenizer:' and below it 'source: {value}'"
            if isinstance(value, str)
            else "Write 'source: union' below 'tokenizer:'",
        )
    unfits: list[InvalidValue] = []

    def kept(at: tuple[str, ...], read: Callable[[Any], Any], part: object) -> Any:
        try:
            return _within(at, read, part)
        except InvalidValue as unfit:
            unfits.extend((unfit, *unfit.further))
            return None

    kept((), lambda whole: _only(whole, _KEYS, "of tokenizer"), value)
    source = kept(("source",), _vocabulary, value.get("source", "union"))
    rows = {}
    for token, entry in (kept(("tokens",), _tokens, value.get("tokens")) or {}).items():
        text = kept((), _token_text, token)
        rows[text] = kept(("tokens", str(token)), _token_row, entry)
    multiple = kept(("pad_to_multiple_of",), _multiple, value.get("pad_to_multiple_of"))
    if unfits:
        raise InvalidValue.all_of(unfits)
    return TokenizerSetting(source, rows, multiple)


def read_tokenizer_source(value: object) -> TokenizerSetting | None:
    """The value of ``tokenizer_source``: union, base or a model."""
    if value is None:
        return None
    return TokenizerSetting(_vocabulary(value), key="tokenizer_source")


def read_chat_template(value: object) -> str | None:
    """The value of ``chat_template``: auto, a built-in name, or a Jinja template."""
    if value is None or (isinstance(value, str) and value.strip()):
        return value
    raise InvalidValue(
        "This is no chat template",
        expected="auto, the name of a built-in template, or a Jinja template as text",
        found=describe(value),
        fix="Write 'chat_template: auto', or delete it to keep the tokenizer's own",
    )


def _vocabulary(value: object) -> Literal["union", "base"] | ModelRef:
    if value == "union":
        return "union"
    if value == "base":
        return "base"
    if isinstance(value, str) and value.startswith("model:"):
        value = value.removeprefix("model:").strip()
    try:
        ref = read_reference(value)
    except InvalidValue as unfit:
        raise InvalidValue(
            "This names no vocabulary",
            expected="union, base, or a model",
            found=unfit.found or describe(value),
            fix="Write 'union' for the tokens of all models, 'base' for the base model's, "
            "or the model whose tokenizer the result shall have",
            at=unfit.at,
        ) from None
    meant = _meant(ref.text, ("union", "base"))
    if meant and not is_local(ref.name):
        raise InvalidValue(
            "This names no vocabulary",
            expected="union, base, or a model",
            found=describe(value),
            fix=f"{meant} A model is named in full: 'org/name'",
        )
    return ref


def _tokens(value: object) -> Mapping[Any, Any] | None:
    if value is None or isinstance(value, Mapping):
        return value
    raise InvalidValue(
        "'tokens' is not a mapping",
        expected="a token and below it its source, for each",
        found=describe(value),
        fix="Write the token in quotes, a colon, and below it 'source:'",
    )


def _token_text(token: object) -> str:
    if isinstance(token, str) and token:
        return token
    raise InvalidValue(
        "This is no token",
        expected="the token's text",
        found=describe(token),
        fix=f'Put it in quotes: "{token}"',
        at=("tokens", str(token)),
    )


def _token_row(entry: object) -> TokenRow:
    if not isinstance(entry, Mapping) or entry.get("source") is None:
        raise InvalidValue(
            "This token has no source",
            expected="source: a model, {kind: zero}, or {kind: model_token, model: …, token: …}",
            found=describe(entry),
            fix="Write where its row comes from, like 'source: org/name'; "
            "without an entry it comes from the models that have the token",
        )
    _only(entry, _TOKEN_KEYS, "of a token")
    force = entry.get("force")
    if force is not None and not isinstance(force, bool):
        raise InvalidValue(
            "'force' is neither true nor false",
            expected="true: for the models that have the token too; false: only for the others",
            found=describe(force),
            fix="Write true or false",
            at=("force",),
        )
    return _within(("source",), lambda source: _row(source, bool(force)), entry["source"])


def _row(source: object, force: bool) -> TokenRow:
    if not isinstance(source, Mapping) or "kind" not in source:
        return TokenRow(read_reference(source), force=force)
    kind = source["kind"]
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InvalidValue(
            f"There is no kind '{kind}' of token source",
            expected="zero, or model_token",
            found=describe(kind),
            fix=_meant(str(kind), _KINDS) or "Write 'kind: zero' or 'kind: model_token'",
            at=("kind",),
        )
    _only(source, ("kind", *_KINDS[kind]), f"of a source of kind {kind}")
    if kind == "zero":
        return TokenRow(force=force)
    token, number = source.get("token"), source.get("token_id")
    if (token is None) == (number is None):
        raise InvalidValue(
            "A model_token has either a token or a token_id",
            expected="token: its text, or token_id: its number",
            found="both" if token is not None else "neither",
            fix="Keep one of the two",
        )
    if token is not None and not isinstance(token, str):
        raise InvalidValue(
            "This is no token", expected="text", found=describe(token), at=("token",)
        )
    if number is not None and (type(number) is not int or number < 0):
        raise InvalidValue(
            "This is no token's number",
            expected="a whole number from 0",
            found=describe(number),
            at=("token_id",),
        )
    model = _within(("model",), read_reference, source.get("model"))
    return TokenRow(model, token, number, force)


def _multiple(value: object) -> int | None:
    if value is None or (type(value) is int and 0 < value <= LARGEST_MULTIPLE):
        return value
    raise InvalidValue(
        "The number of rows cannot be made a multiple of this",
        expected=f"a whole number from 1 to {LARGEST_MULTIPLE:,}",
        found=describe(value),
        fix="Write 64, say, or delete it to keep the size as it is",
    )


def _only(value: Mapping[Any, Any], known: Collection[str], whose: str) -> None:
    unfits = [
        InvalidValue(
            f"'{key}' is not a key {whose}",
            expected=", ".join(known),
            found=str(key),
            fix=_meant(str(key), known) or "Delete it",
            at=(str(key),),
        )
        for key in value
        if key not in known
    ]
    if unfits:
        raise InvalidValue.all_of(unfits)


def _meant(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"Did you mean '{close[0]}'?" if close else ""


def _within(at: tuple[str, ...], read: Any, value: object) -> Any:
    """`read`, with the place of what is unfit seen from one level up."""
    try:
        return read(value)
    except InvalidValue as first:
        for unfit in (first, *first.further):
            unfit.at = (*at, *unfit.at)
        raise
