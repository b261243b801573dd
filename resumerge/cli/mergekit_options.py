"""mergekit's own command-line options, so that a command copied from a tutorial works here."""

from __future__ import annotations

import re
from collections.abc import Sequence

COMMANDS = ("run", "plan")
"""The commands that mergekit has under another name."""

_RENAMED = {"--cuda": ["--device", "cuda"], "--no-cuda": [], "-j": ["--threads"]}

_FLAGS = {
    f"--{prefix}{name}"
    for name in (
        "allow-crimes",
        "async-write",
        "clone-tensors",
        "copy-tokenizer",
        "gpu-rich",
        "lazy-unpickle",
        "low-cpu-memory",
        "multi-gpu",
        "quiet",
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
_MEANINGFUL = {"--unsafe-truncate-embeddings", "--no-safe-serialization"}


def without_mergekit_options(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of a command line without options that mean nothing here, and a note for each.

    Options of ``run`` and ``plan`` may stand before the command too. Those that would change the
    output are left in, to be refused.
    """
    if not any(command in words for command in COMMANDS):
        return list(words), []
    place = next(number for number, word in enumerate(words) if word in COMMANDS)
    before = words[:place]
    if any(not word.startswith("-") or word in ("--help", "--version") for word in before[:1]):
        return list(words), []
    kept = [words[place]]
    notes: list[str] = []
    rest = iter([*before, *words[place + 1 :]])
    for word in rest:
        name, has_value, _ = word.partition("=")
        if word == "--":
            kept += [word, *rest]
        elif word in _RENAMED:
            kept += _RENAMED[word]
        elif re.fullmatch("-j[0-9]+", word):
            kept += ["--threads", word[2:]]
        elif name in (_FLAGS | _VALUED) - _MEANINGFUL:
            notes.append(f"{name} means nothing here and is ignored")
            if name in _VALUED and not has_value:
                next(rest, None)
        else:
            kept.append(word)
    return kept, notes
