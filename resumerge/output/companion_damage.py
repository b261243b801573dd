"""The check of copied companions for damage, by the format that a file's name implies."""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath

from resumerge.foreign_files import read_foreign
from resumerge.sources.companions import LARGEST, is_tokenizer_file
from resumerge.sources.json_object import check_value_count, json_object
from resumerge.tokenizers.chat_template import syntax_error

PARSED = 1 << 20
"""The largest size in bytes of a JSON file that is parsed.

Parsing takes memory of ten times the size. For a larger file, this would be more than most merges
need. Its first and last characters are checked instead, and that it contains no zero bytes.
"""

_OBJECT = re.compile(r".*config\.json|(tokenizer|special_tokens_map|added_tokens)\.json")
_CODE = (".jinja", ".py")
_TEXT = (".txt", ".bpe", ".tiktoken", ".vocab", ".codes")


def companion_damage(path: Path, name: str) -> str | None:
    """Return a description of the damage of a companion; None if it is intact.

    Args:
        path: where the file lies, which may be a cache with another name.
        name: the file's name in the model's folder, which determines the check.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        _check(read_foreign(path, LARGEST), PurePosixPath(name))
    except (ValueError, RecursionError) as error:
        return str(error)
    return None


def _check(data: bytes, name: PurePosixPath) -> None:
    """Verify the content of a companion.

    Raises:
        ValueError: the content is damaged; the message describes the damage.
        RecursionError: JSON is nested too deeply.
    """
    is_json, is_code = name.suffix == ".json", name.suffix in _CODE
    if not (is_json or is_code or is_tokenizer_file(str(name))):
        return
    if not any(data) and (data or name.suffix != ".py"):
        raise ValueError("only zeros" if data else "empty")
    if is_json:
        _check_json(data, is_object=_OBJECT.fullmatch(name.name) is not None)
    elif is_code or name.suffix in _TEXT:
        text = data.decode()
        if name.suffix == ".jinja" and (error_text := syntax_error(text)):
            raise ValueError(error_text)
    elif data.startswith(b"\n"):
        _check_pieces(data)


def _check_json(data: bytes, *, is_object: bool) -> None:
    if len(data) > PARSED:
        first_and_last_byte = data[:100].lstrip()[:1] + data[-100:].rstrip()[-1:]
        if first_and_last_byte not in (b"{}", b"[]") or b"\0" in data:
            raise ValueError("incomplete JSON")
    elif is_object:
        json_object(data)
    else:
        check_value_count(data)
        json.loads(data.decode())


def _check_pieces(data: bytes) -> None:
    """Verify that a model of SentencePiece, a protocol buffer, ends at the end of a field.

    Such a file begins with a line break. Other files with such names, like tiktoken's text, do not.

    Raises:
        ValueError: the file ends within a field.
    """
    offset = 0
    try:
        while offset < len(data):
            key, offset = _varint(data, offset)
            length, value_offset = _varint(data, offset) if key & 7 in (0, 2) else (0, offset)
            offset = value_offset + {1: 8, 2: length, 5: 4}.get(key & 7, 0)
    except IndexError:
        offset = len(data) + 1
    if offset > len(data):
        raise ValueError("the file ends early")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of a protocol buffer, and the offset of the byte after it."""
    value = 0
    for shift in range(0, 70, 7):
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            break
    return value, at
