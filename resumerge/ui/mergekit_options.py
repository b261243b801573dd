"""mergekit's own command-line options, so that a command copied from a tutorial works here."""

from __future__ import annotations

from collections.abc import Sequence

_RENAMED = {"--cuda": ["--device", "cuda"]}

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
        "verbose",
        "write-model-card",
    )
    for prefix in ("", "no-")
}
_VALUED = {"--lora-merge-cache", "--lora-merge-dtype", "--transformers-cache"}
_MEANINGFUL = {"--unsafe-truncate-embeddings", "--no-safe-serialization"}


def without_mergekit_options(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of a ``run`` command without options that mean nothing here, and a note for each.

    Options that would change the output are left in, to be refused.
    """
    if not words or words[0] != "run":
        return list(words), []
    kept: list[str] = []
    notes: list[str] = []
    rest = iter(words)
    for word in rest:
        name, has_value, _ = word.partition("=")
        if word in _RENAMED:
            kept += _RENAMED[word]
        elif name in _MEANINGFUL or name not in _FLAGS | _VALUED:
            kept.append(word)
        else:
            notes.append(f"{name} means nothing here and is ignored")
            if name in _VALUED and not has_value:
                next(rest, None)
    return kept, notes
