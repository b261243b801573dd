"""The metadata of a model in GGUF, each value checked where it is asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from resumerge.errors import InputError, refuse

LARGEST = 1 << 32
"""The largest whole number that a model has as one of its sizes."""


class Metadata:
    """The values that describe a model, from its first file.

    Args:
        model: the model as the recipe names it, for messages.
        values: the values by name.

    Attributes:
        architecture: llama.cpp's name of the architecture.
    """

    def __init__(self, model: str, values: Mapping[str, Any]) -> None:
        self.model = model
        self._values = values
        self.architecture = self.text("general.architecture")

    def bad(self, key: str, expected: str, found: object) -> InputError:
        """Return the error for a value that cannot be right."""
        return refuse(
            "The metadata of a GGUF file is damaged",
            where=f"{self.model}: {key}",
            expected=expected,
            found=repr(found)[:60],
            fix="download the file again, or name the model that it was made from",
        )

    def text(self, key: str) -> str:
        """Return a text; empty if there is none."""
        found = self._values.get(key, "")
        if not isinstance(found, str):
            raise self.bad(key, "a text", found)
        return found

    def value(self, key: str) -> Any:
        """Return a value as the file has it; None if there is none."""
        return self._values.get(key)

    def of_model(self, key: str) -> Any:
        """Return a value of the architecture; None if there is none."""
        return self._values.get(f"{self.architecture}.{key}")

    def size(self, key: str) -> int | None:
        """Return a whole number from 1 on; None if there is none."""
        found = self.of_model(key)
        if found is None:
            return None
        if type(found) is not int or not 0 < found < LARGEST:
            raise self.bad(f"{self.architecture}.{key}", "a whole number from 1 on", found)
        return found

    def needed(self, key: str) -> int:
        """Return a whole number from 1 on that every model has."""
        found = self.size(key)
        if found is None:
            raise self.bad(f"{self.architecture}.{key}", "a whole number from 1 on", None)
        return found

    def number(self, key: str) -> float | None:
        """Return a number above 0; None if there is none."""
        found = self.of_model(key)
        if found is None:
            return None
        if type(found) not in (int, float) or not 0 < found < math.inf:
            raise self.bad(f"{self.architecture}.{key}", "a number above 0", found)
        return shortest(found)

    def token(self, key: str) -> int | None:
        """Return the number of a token; None if there is none."""
        found = self._values.get(f"tokenizer.ggml.{key}")
        if found is None:
            return None
        if type(found) is not int or not 0 <= found < LARGEST:
            raise self.bad(f"tokenizer.ggml.{key}", "the number of a token", found)
        return found


def shortest(number: float) -> float:
    """Return the number with the fewest digits that is the same float32, if it is one."""
    with np.errstate(over="ignore"):
        narrow = np.float32(number)
    return float(str(narrow)) if float(narrow) == number else float(number)
