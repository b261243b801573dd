"""llama.cpp's names of pre-tokenizers of byte-level BPEs, and their settings in tokenizer.json.

A GGUF file has only the name of its pre-tokenizer. llama.cpp contains the regular expressions for
each name. Its converter finds the name by the hash of an encoded text. This module finds it by the
expressions in tokenizer.json, which also works for models with other tokens. Unknown expressions
are refused, because llama.cpp would split text differently without an error. When a GGUF file is
read, the expressions are found by the name. Source of the names: llama.cpp, llama-vocab.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA_3 = rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}{_REST}"
_QWEN_2 = rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{_REST}"
_QWEN_3_5 = (
    rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BEFORE, _SLASHES = r"[^\r\n\p{L}\p{N}]?", r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TEKKEN = rf"{_BEFORE}{_UPPER}*{_LOWER}+|{_BEFORE}{_UPPER}+{_LOWER}*|\p{{N}}{_SLASHES}"
_GPT_4O = (
    rf"{_BEFORE}{_UPPER}*{_LOWER}+{_ENDINGS}?|{_BEFORE}{_UPPER}+{_LOWER}*{_ENDINGS}?"
    rf"|\p{{N}}{{1,3}}{_SLASHES}"
)
_GPT_2, _DIGITS = "that of GPT-2", "single digits"

_NAMES: dict[tuple[tuple[str, ...], bool], str] = {
    ((_LLAMA_3,), True): "llama-bpe",
    ((_LLAMA_3,), False): "smaug-bpe",
    ((_QWEN_2,), False): "qwen2",
    ((_QWEN_3_5,), False): "qwen35",
    ((_TEKKEN,), True): "tekken",
    ((_GPT_4O,), False): "gpt-4o",
    ((_GPT_2,), False): "gpt-2",
    ((_DIGITS, _GPT_2), False): "smollm",
}
"""The names, by the expressions that split text one after the other, and by whether a piece that
equals a token becomes this token without merges."""

KNOWN = ", ".join(_NAMES.values())

_ALSO = {"llama3": "llama-bpe", "llama-v3": "llama-bpe", "deepseek-r1-qwen": "qwen2"}
"""The names that llama.cpp treats like a name of `_NAMES`, each with this name."""

_NORMALISED = {"qwen2", "qwen35"}
"""The names whose tokenizer.json first normalises text (NFC). llama.cpp does not normalise it."""

_BEGUN = {"llama-bpe", "tekken"}
"""The names for which llama.cpp puts a token before a text unless the file states otherwise."""


@dataclass(frozen=True)
class PreTokenizer:
    """The settings of a pre-tokenizer that llama.cpp has a name for.

    Args:
        steps: the value of ``pre_tokenizer`` in tokenizer.json.
        normalizer: the value of ``normalizer`` in tokenizer.json.
        whole: whether a piece that equals a token becomes this token without merges.
        is_begun: whether a token is put before a text unless the file states otherwise.
    """

    steps: Mapping[str, Any]
    normalizer: Mapping[str, Any] | None
    whole: bool
    is_begun: bool


def pre_tokenizer_named(name: str) -> PreTokenizer | None:
    """Return the settings of a pre-tokenizer by llama.cpp's name; None for an unknown name."""
    name = _ALSO.get(name, name)
    expressions_and_whole = next(
        (key for key, known_name in _NAMES.items() if known_name == name), None
    )
    if expressions_and_whole is None:
        return None
    expressions, keeps_whole_tokens = expressions_and_whole
    steps = [_step(expression) for expression in expressions]
    if expressions[-1] != _GPT_2:
        steps.append(by_bytes(use_regex=False))
    return PreTokenizer(
        steps={"type": "Sequence", "pretokenizers": steps} if len(steps) > 1 else steps[0],
        normalizer={"type": "NFC"} if name in _NORMALISED else None,
        whole=keeps_whole_tokens,
        is_begun=name in _BEGUN,
    )


def _step(expression: str) -> dict[str, Any]:
    if expression == _GPT_2:
        return by_bytes(use_regex=True)
    if expression == _DIGITS:
        return {"type": "Digits", "individual_digits": True}
    pattern = {"Regex": expression}
    return {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}


def by_bytes(*, use_regex: bool) -> dict[str, Any]:
    """Return the step of tokenizer.json that replaces each byte by a character."""
    settings = {"add_prefix_space": False, "trim_offsets": False, "use_regex": use_regex}
    return {"type": "ByteLevel", **settings}


def pre_tokenizer_name(tokenizer: Mapping[str, Any]) -> str | None:
    """Return llama.cpp's name of the pre-tokenizer in a tokenizer.json; None if unknown."""
    steps = _steps(tokenizer.get("pre_tokenizer"))
    keeps_whole_tokens = bool(tokenizer["model"].get("ignore_merges"))
    return None if steps is None else _NAMES.get((tuple(steps), keeps_whole_tokens))


def _steps(step: Any) -> list[str] | None:
    """Return the expressions that split text, in order; None if a step is not supported."""
    if not isinstance(step, Mapping):
        return None
    kind = step.get("type")
    if kind == "Sequence":
        steps = []
        inner_steps = step.get("pretokenizers")
        for inner_step in inner_steps if isinstance(inner_steps, list) else [None]:
            inner_expressions = _steps(inner_step)
            if inner_expressions is None:
                return None
            steps += inner_expressions
        return steps
    if kind == "ByteLevel":
        if step.get("add_prefix_space"):
            return None
        return [_GPT_2] if step.get("use_regex", True) else []
    if kind == "Digits":
        return [_DIGITS] if step.get("individual_digits") else None
    if kind == "Split":
        pattern, split_mode = step.get("pattern"), (step.get("behavior"), bool(step.get("invert")))
        expression = pattern.get("Regex") if isinstance(pattern, Mapping) else None
        splits_alone = split_mode in (("Isolated", False), ("Removed", True))
        return [expression] if splits_alone and isinstance(expression, str) else None
    return None
