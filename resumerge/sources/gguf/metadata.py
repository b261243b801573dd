"""The metadata of a model in GGUF. A value is checked when it is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from resumerge.errors import InputError, refuse

LARGEST = 1 << 32
"""The exclusive limit of sizes and token numbers."""


class Metadata:
    """The metadata of a model, from its first file.

    Args:
        model: the model as the recipe names it, for messages.
        values: the metadata values, by key.

    Attributes:
        architecture: llama.cpp's name of the architecture.
    """

    def __init__(self, model: str, values: Mapping[str, Any]) -> None:
        self.model = model
        self._values = values
        self.architecture = self.text("general.architecture")

    def bad(self, key: str, expected: str, found: object) -> InputError:
        """Return the error for an invalid value."""
        return refuse(
            "The metadata of a GGUF file is damaged",
            where=f"{self.model}: {key}",
            expected=expected,
            found=repr(found)[:60],
            fix="download the file again, or name the model that it was made from",
        )

    def text(self, key: str) -> str:
        """Return the text under a key; empty if the key is missing."""
        text = self._values.get(key, "")
        if not isinstance(text, str):
            raise self.bad(key, "a text", text)
        return text

    def value(self, key: str) -> Any:
        """Return the value under a key without a check; None if the key is missing."""
        return self._values.get(key)

    def of_model(self, key: str) -> Any:
        """Return a value of the architecture without a check; None if the key is missing.

        Args:
            key: the key without the architecture's name before it.
        """
        return self._values.get(f"{self.architecture}.{key}")

    def size(self, key: str) -> int | None:
        """Return a positive whole number of the architecture; None if the key is missing."""
        size = self.of_model(key)
        if size is None:
            return None
        if type(size) is not int or not 0 < size < LARGEST:
            raise self.bad(f"{self.architecture}.{key}", "a whole number from 1 on", size)
        return size

    def needed(self, key: str) -> int:
        """Return a positive whole number of the architecture, which every model must have."""
        size = self.size(key)
        if size is None:
            raise self.bad(f"{self.architecture}.{key}", "a whole number from 1 on", None)
        return size

    def number(self, key: str) -> float | None:
        """Return a positive number of the architecture; None if the key is missing."""
        number = self.of_model(key)
        if number is None:
            return None
        if type(number) not in (int, float) or not 0 < number < math.inf:
            raise self.bad(f"{self.architecture}.{key}", "a number above 0", number)
        return shortest(number)

    def token(self, key: str) -> int | None:
        """Return the number of a token under a key of the tokenizer; None if the key is missing."""
        token = self._values.get(f"tokenizer.ggml.{key}")
        if token is None:
            return None
        if type(token) is not int or not 0 <= token < LARGEST:
            raise self.bad(f"tokenizer.ggml.{key}", "the number of a token", token)
        return token


def shortest(number: float) -> float:
    """Return a float32 as the number with the fewest digits that rounds to it.

    A number that is not exactly a float32 is returned unchanged.
    """
    with np.errstate(over="ignore"):
        float32_number = np.float32(number)
    return float(str(float32_number)) if float(float32_number) == number else float(number)
