"""A model's vocabulary, read from tokenizer.json and its companions as plain JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import xxhash

from resumerge.errors import InputError, refuse
from resumerge.hub.metadata_cache import MetadataCache
from resumerge.recipe.types import ModelRef
from resumerge.sources.companions import is_tokenizer_file
from resumerge.sources.formats.base import damaged
from resumerge.sources.hub.files import fetch, list_companions
from resumerge.sources.json_object import json_object
from resumerge.sources.tokenizers.origin import tokenizer_part
from resumerge.sources.types import Source

TOKENIZER = "tokenizer.json"
CONFIG = "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"
EXTRA = "pip install 'resumerge[sentencepiece]'"

_damaged = partial(damaged, "tokenizer")

_LARGEST_ID = 1 << 24
"""A larger token id is an error: no vocabulary has that many."""


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The tokens of a model. The rest of tokenizer.json is read again when it is needed, since it
    takes several times as much memory.

    Args:
        kind: the family: the model's type, and how spaces are written in tokens.
        ids: id of every token, added tokens included.
        added: definition of each token that is matched before the text is split: content,
            special, normalized, lstrip, rstrip, single_word.
        files: names of all the tokenizer's files in the model's folder.
        digest: of the files; it pins the tokenizer.
    """

    source: Source
    kind: str
    ids: Mapping[str, int]
    added: Mapping[str, Mapping[str, Any]]
    files: tuple[str, ...]
    digest: str

    @property
    def ref(self) -> ModelRef:
        return self.source.ref

    def facts(self) -> dict[str, Any]:
        """tokenizer.json, or the result of converting other files to it."""
        if TOKENIZER in self.files:
            return read_json(self.source.folder / TOKENIZER)
        return _converted(self.source)


def read_vocabulary(
    source: Source, metadata: MetadataCache | None = None, *, offline: bool = False
) -> Vocabulary:
    """Read a model's tokenizer. The files of a Hub model, which are small, are downloaded.

    Args:
        metadata: the metadata cache of Hub files.

    Raises:
        InputError: it is missing or damaged, or needs libraries that are not installed.
        Resumable: the network failed.
    """
    source = tokenizer_part(source)
    files = _fetched(source, metadata, offline)
    if not files:
        raise refuse(
            "The model has no tokenizer",
            where=source.ref.text,
            expected=f"{TOKENIZER} beside the weights",
            found="no tokenizer files",
            fix="save the tokenizer into the model's folder, or delete the recipe's tokenizer "
            "option: the models are then assumed to have the same token ids",
        )
    digest = xxhash.xxh3_128()
    for name in files:
        data = (source.folder / name).read_bytes()
        digest.update(f"{name} {len(data)}\n".encode() + data)
    facts = read_json(source.folder / TOKENIZER) if TOKENIZER in files else _converted(source)
    config = read_json(source.folder / CONFIG) if CONFIG in files else {}
    ids, added = _tokens(facts, config, str(source.folder / TOKENIZER))
    return Vocabulary(source, _kind(facts), ids, added, files, digest.hexdigest())


def read_chat_template(
    source: Source, metadata: MetadataCache | None = None, *, offline: bool = False
) -> str | None:
    """A model's chat template; None if there is none, or if no template is named ``default``."""
    source = tokenizer_part(source)
    files = _fetched(source, metadata, offline)
    config = read_json(source.folder / CONFIG) if CONFIG in files else {}
    return _template(source.folder, files, config)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a tokenizer file.

    Raises:
        InputError: the file cannot be read, or is not a JSON object.
    """
    try:
        return json_object(path.read_bytes())
    except (OSError, ValueError) as error:
        raise _damaged(str(path), "a JSON object", str(error)) from None


def _fetched(source: Source, metadata: MetadataCache | None, offline: bool) -> tuple[str, ...]:
    files = tuple(name for name in list_companions(source) if is_tokenizer_file(name))
    fetch(source, files, metadata, offline=offline)
    return files


def _kind(facts: Mapping[str, Any]) -> str:
    model = str(facts["model"].get("type"))
    text = json.dumps([facts.get(key) for key in ("normalizer", "pre_tokenizer", "decoder")])
    if '"ByteLevel"' in text:
        return f"{model} of bytes"
    if "Metaspace" in text or "\\u2581" in text:
        return f"{model} with ▁ for blanks"
    return model


def _template(folder: Path, files: tuple[str, ...], config: Mapping[str, Any]) -> str | None:
    if TEMPLATE in files:
        return (folder / TEMPLATE).read_text(encoding="utf-8", errors="replace")
    if "chat_template.json" in files:
        found = read_json(folder / "chat_template.json").get("chat_template")
        return found if isinstance(found, str) else None
    template = config.get("chat_template")
    if isinstance(template, list):  # several, by name
        named = [t for t in template if isinstance(t, dict) and t.get("name") == "default"]
        template = named[0].get("template") if named else None
    return template if isinstance(template, str) else None


def _tokens(
    facts: Mapping[str, Any], config: Mapping[str, Any], where: str
) -> tuple[dict[str, int], dict[str, dict[str, Any]]]:
    model = facts.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, list) and all(isinstance(v, list) and len(v) == 2 for v in vocab):
        ids = {piece: number for number, (piece, _) in enumerate(vocab)}
    elif isinstance(vocab, dict):
        ids = dict(vocab)
    else:
        raise _damaged(where, "model.vocab: tokens with their ids", type(vocab).__name__)
    listed = facts.get("added_tokens") or []
    late = config.get("added_tokens_decoder") or {}
    if not isinstance(listed, list) or not isinstance(late, dict):
        raise _damaged(where, "added_tokens: a list", type(listed).__name__)
    listed = [*listed, *({**entry, "id": _number(key)} for key, entry in late.items())]
    added: dict[str, dict[str, Any]] = {}
    numbers = set(ids.values())
    for entry in listed:
        content = entry.get("content") if isinstance(entry, dict) else None
        if not isinstance(content, str):
            raise _damaged(where, "added tokens with their content", str(entry)[:60])
        if content not in added and (content in ids or entry.get("id") not in numbers):
            ids.setdefault(content, entry.get("id"))
            numbers.add(ids[content])
            added[content] = {k: v for k, v in entry.items() if k not in ("id", "__type")}
    for token, number in ids.items():
        if not isinstance(token, str) or type(number) is not int or not 0 <= number < _LARGEST_ID:
            raise _damaged(where, "an id for every token", f"{token!r}: {number!r}"[:80])
    return ids, added


def _number(key: object) -> int | None:
    return int(key) if isinstance(key, str) and key.isdecimal() else None


def _converted(source: Source) -> dict[str, Any]:
    """tokenizer.json as transformers converts other files to it."""
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise _needs_extra(source, "transformers is not installed") from None
    try:
        tokenizer = AutoTokenizer.from_pretrained(source.folder, local_files_only=True)
        backend = tokenizer.backend_tokenizer
    except ImportError as error:
        raise _needs_extra(source, str(error).strip().split("\n")[0]) from None
    except Exception as error:  # of many classes; each means that the files are not usable
        raise refuse(
            f"The tokenizer of {source.ref} has no {TOKENIZER}, and cannot be converted",
            where=source.ref.text,
            found=str(error).strip().split("\n")[0][:200],
            fix=f"if libraries are missing: {EXTRA}; else save the tokenizer as {TOKENIZER} "
            "(transformers: AutoTokenizer, save_pretrained)",
        ) from None
    facts: dict[str, Any] = json.loads(backend.to_str())
    return facts


def _needs_extra(source: Source, why: str) -> InputError:
    return refuse(
        f"The tokenizer of {source.ref} has no {TOKENIZER}: other files must be converted to it",
        where=source.ref.text,
        expected=f"{TOKENIZER}, or the libraries that convert to it",
        found=why,
        fix=EXTRA,
    )
