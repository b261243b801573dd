"""mergekit's own options, so that a command line from a tutorial of mergekit works here."""

from __future__ import annotations

import re
from collections.abc import Sequence

from resumerge.errors import refuse

COMMANDS = ("run", "plan")
"""The commands whose lines may contain mergekit's options."""

_RENAMED = {
    "--cuda": ["--device", "cuda"],
    "--no-cuda": [],
    "--no-quiet": [],
    "-j": ["--threads"],
    "--num-threads": ["--threads"],
    "--out-shard-size": ["--shard-size"],
    "--random-seed": ["--seed"],
}

_FLAGS = {
    f"--{prefix}{name}"
    for name in (
        "allow-crimes",
        "async-write",
        "clone-tensors",
        "copy-tokenizer",
        "gpu-rich",
        "i-understand-this-is-not-useful-without-training",
        "lazy-unpickle",
        "load-in-4bit",
        "load-in-8bit",
        "low-cpu-memory",
        "multi-gpu",
        "read-to-gpu",
        "safe-serialization",
        "trust-remote-code",
        "unsafe-truncate-embeddings",
        "write-model-card",
    )
    for prefix in ("", "no-")
}
_VALUED = {
    "--lora-merge-cache",
    "--lora-merge-dtype",
    "--transformers-cache",
    "--write-threads",
}
_ADAPTERS = "--lora-merge-dtype"
_REFUSED = {
    "--unsafe-truncate-embeddings": "vocabularies of different sizes are merged by tokens: write "
    "'tokenizer_source: base' (or union) in the recipe, and leave the option out",
    "--no-safe-serialization": "the output is always safetensors: leave the option out",
}


def without_mergekit_options(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Translate or remove mergekit's options of ``run`` and ``plan``.

    Options before the command are moved behind it.

    Returns:
        The words of the command line, and a note for each option that has no effect.

    Raises:
        InputError: an option of mergekit would change the output.
    """
    if not any(command in words for command in COMMANDS):
        return list(words), []
    position = next(number for number, word in enumerate(words) if word in COMMANDS)
    words_before = words[:position]
    if any(
        not word.startswith("-") or word in ("--help", "--version") for word in words_before[:1]
    ):
        return list(words), []
    kept_words = [words[position]]
    notes: list[str] = []
    remaining_words = iter([*words_before, *words[position + 1 :]])
    for word in remaining_words:
        name, has_value, value = word.partition("=")
        if word == "--":
            kept_words += [word, *remaining_words]
        elif name in _RENAMED:
            kept_words += [*_RENAMED[name], *([value] if has_value else [])]
        elif re.fullmatch("-j[0-9]+", word):
            kept_words += ["--threads", word[2:]]
        elif name in _REFUSED:
            raise refuse(
                f"{name} is an option of mergekit that is not followed here",
                found=name,
                fix=_REFUSED[name],
            )
        elif name in _FLAGS | _VALUED:
            if name in _VALUED and not has_value:
                value = next(remaining_words, "")
            notes.append(
                f"{name} {value}: adapters are applied in float32 whatever is asked for, and "
                "rounded once, to the type of the merge or of the output"
                if name == _ADAPTERS
                else f"{name} is an option of mergekit that has no effect here"
            )
        else:
            kept_words.append(word)
    return kept_words, notes
