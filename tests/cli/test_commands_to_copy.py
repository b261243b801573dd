"""Promise: a command that is printed to be copied means the same words to a shell."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resumerge.printable import shell_line


def read_by_bash(line: str) -> list[bytes]:
    said = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True)
    return said.stdout.split(b"\0")[:-1]


LETTERS = st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])


@settings(max_examples=40)
@given(st.lists(st.text(LETTERS, max_size=20), min_size=1, max_size=5))
def test_any_words(words: list[str]) -> None:
    line = shell_line(words)
    assert line.isprintable()
    assert read_by_bash(line) == [word.encode() for word in words]


@pytest.mark.parametrize("name", [b"caf\xe9", b"\xff\n'\\x41", b"\x1b[2J"])
def test_names_of_any_bytes(name: bytes) -> None:
    line = shell_line(["status", name.decode("utf-8", "surrogateescape")])
    assert line.isprintable()
    assert line.isascii()
    assert read_by_bash(line) == [b"status", name]
