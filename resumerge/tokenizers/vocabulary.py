"""Reads a model's vocabulary from tokenizer.json and other tokenizer files, as plain JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import xxhash

from resumerge.errors import InputError, Reason, Resumable, refuse
from resumerge.recipe.types import ModelRef
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources.companions import LARGEST, is_tokenizer_file, oversized_tokenizer_files
from resumerge.sources.formats.weight_format import damaged
from resumerge.sources.remote.files import fetch, list_companions
from resumerge.sources.types import Source
from resumerge.tokenizers.companion_content import read_companion, read_companion_object
from resumerge.tokenizers.origin import has_tokenizer, tokenizer_part

TOKENIZER = "tokenizer.json"
CONFIG = "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"
EXTRA = "pip install 'resumerge[sentencepiece]'"

_damaged = partial(damaged, "tokenizer")

_LARGEST_ID = 1 << 24
"""The limit of token ids, far above the number of tokens of any vocabulary."""

_LONGEST_ID = len(str(_LARGEST_ID))

_MOST_FREE_IDS = 1 << 18
"""The most unused ids below the largest one.

Some tokenizers skip hundreds of ids. In a union each of these becomes a row, and may become an
entry of the vocabulary.
"""

_LARGEST_SCORE = 1e30


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The tokens of a model.

    The other content of tokenizer.json takes several times as much memory. It is read again when it
    is needed.

    Args:
        source: the model, or its part that has the tokenizer.
        kind: the kind of tokenizer, in words: the type of its model, and the way in which tokens
            represent spaces.
        ids: the id of each token, including added tokens.
        added: the definition of each added token, which is matched before the text is split:
            content, special, normalized, lstrip, rstrip, single_word.
        files: the names of the tokenizer's files in the model's folder.
        digest: the xxh3-128 hex digest of the files, which pins the tokenizer.
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
        """Return tokenizer.json; without this file, the result of converting other files to it.

        Raises:
            Resumable: the files changed after the vocabulary was read.
        """
        if _digest(self.source, self.files) != self.digest:
            raise Resumable(
                Reason.SOURCE_CHANGED,
                f"The tokenizer in {self.source.folder} changed during the run: put its files back "
                "as they were, then resume",
            )
        return _facts(self.source, self.files)

    def merges(self) -> list[tuple[str, str]]:
        """Return the pairs of a BPE in their order; empty for other kinds of tokenizers.

        Raises:
            InputError: the pairs are damaged.
        """
        merges = self.facts()["model"].get("merges") or []
        if not isinstance(merges, list):
            raise _damaged(self._where, "model.merges: a list", _shown(merges))
        return [self._pair(merge) for merge in merges]

    def _pair(self, merge: Any) -> tuple[str, str]:
        pieces = merge.split(" ", 1) if isinstance(merge, str) else merge
        if not isinstance(pieces, list) or [type(part) for part in pieces] != [str, str]:
            raise _damaged(self._where, "model.merges: pairs of pieces", _shown(merge))
        return pieces[0], pieces[1]

    @property
    def _where(self) -> str:
        return str(self.source.folder / TOKENIZER)


def read_vocabulary(
    source: Source, metadata: MetadataCache | None = None, *, offline: bool = False
) -> Vocabulary:
    """Read a model's tokenizer. The small tokenizer files of a remote model are downloaded.

    Args:
        source: the model. If it has an adapter with a tokenizer, that one is read.
        metadata: the metadata cache of remote files; None for the default one.
        offline: do not use the network.

    Raises:
        InputError: the tokenizer is missing or damaged, or needs libraries that are not installed.
        Resumable: the network failed.
    """
    if not has_tokenizer(source):
        raise refuse(
            "The model has no tokenizer",
            where=source.ref.text,
            expected=f"{TOKENIZER} beside the weights",
            found="no tokenizer files",
            fix="save the tokenizer into the model's folder; or name a model that has one as "
            "tokenizer_source; or delete the recipe's tokenizer option: the models are then "
            "assumed to have the same token ids",
        )
    source = tokenizer_part(source)
    files = _fetched(source, metadata, offline)
    facts = _facts(source, files)
    ids, added_definitions = _tokens(facts, source, files)
    return Vocabulary(source, _kind(facts), ids, added_definitions, files, _digest(source, files))


def read_chat_template(
    source: Source, metadata: MetadataCache | None = None, *, offline: bool = False
) -> str | None:
    """Return a model's chat template; None without one.

    Of several named templates, only a template with the name ``default`` is returned.
    """
    source = tokenizer_part(source)
    files = _fetched(source, metadata, offline)
    config = read_json(source, CONFIG) if CONFIG in files else {}
    return _template(source, files, config)


def read_json(source: Source, name: str) -> dict[str, Any]:
    """Return the JSON object in a companion of a model, such as tokenizer_config.json.

    Raises:
        InputError: the file cannot be read, or does not contain a JSON object.
    """
    try:
        return read_companion_object(source, name)
    except (OSError, ValueError) as error:
        raise _damaged(str(source.folder / name), "a JSON object", str(error)) from None


def added_tokens_decoder(config: Mapping[str, Any], where: Path) -> dict[str, dict[str, Any]]:
    """Return the definition of each added token in tokenizer_config.json, by its id as text.

    Args:
        config: the parsed tokenizer_config.json.
        where: the path of the file, for messages.

    Raises:
        InputError: ``added_tokens_decoder`` is not an object of definitions by id.
    """
    definitions = config.get("added_tokens_decoder")
    if definitions is None:
        return {}
    if not isinstance(definitions, dict):
        raise _damaged(str(where), "added_tokens_decoder: an object", _shown(definitions))
    for key, entry in definitions.items():
        if not key.isdecimal() or len(key) > _LONGEST_ID or not _is_id(int(key)):
            raise _damaged(str(where), "added_tokens_decoder: token ids", _shown(key))
        _content(entry, where)
    return definitions


def _read(source: Source, name: str) -> bytes:
    try:
        return read_companion(source, name)
    except (OSError, ValueError) as error:
        file_path = str(source.folder / name)
        raise _damaged(file_path, "a file that can be read", str(error)) from None


def _digest(source: Source, files: tuple[str, ...]) -> str:
    digest = xxhash.xxh3_128()
    for name in files:
        data = _read(source, name)
        digest.update(f"{name} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def _facts(source: Source, files: tuple[str, ...]) -> dict[str, Any]:
    return read_json(source, TOKENIZER) if TOKENIZER in files else _converted(source, files)


def _fetched(source: Source, metadata: MetadataCache | None, offline: bool) -> tuple[str, ...]:
    files = tuple(name for name in list_companions(source) if is_tokenizer_file(name))
    fetch(source, files, metadata, offline=offline)
    return files


def _kind(facts: Mapping[str, Any]) -> str:
    model_kind = str(facts["model"].get("type"))
    settings_json = json.dumps(
        [facts.get(key) for key in ("normalizer", "pre_tokenizer", "decoder")]
    )
    if '"ByteLevel"' in settings_json:
        return f"{model_kind}, byte-level"
    if "Metaspace" in settings_json or "\\u2581" in settings_json:
        return f"{model_kind} with ▁ for spaces"
    return model_kind


def _template(source: Source, files: tuple[str, ...], config: Mapping[str, Any]) -> str | None:
    if TEMPLATE in files:
        return _read(source, TEMPLATE).decode(errors="replace")
    if "chat_template.json" in files:
        template_text = read_json(source, "chat_template.json").get("chat_template")
        return template_text if isinstance(template_text, str) else None
    template = config.get("chat_template")
    if isinstance(template, list):  # several, by name
        defaults = [t for t in template if isinstance(t, dict) and t.get("name") == "default"]
        template = defaults[0].get("template") if defaults else None
    return template if isinstance(template, str) else None


def _tokens(
    facts: Mapping[str, Any], source: Source, files: tuple[str, ...]
) -> tuple[dict[str, int], dict[str, dict[str, Any]]]:
    """Return the id of each token, and the definition of each added token."""
    folder = source.folder
    ids = _plain_tokens(facts, folder / TOKENIZER)
    listed_tokens = _added_tokens(facts, folder / TOKENIZER)
    config = read_json(source, CONFIG) if CONFIG in files else {}
    config_definitions = added_tokens_decoder(config, folder / CONFIG)
    added_definitions: dict[str, dict[str, Any]] = {}
    numbers = set(ids.values())
    for number, entry in (
        *listed_tokens,
        *((int(key), entry) for key, entry in config_definitions.items()),
    ):
        content = entry["content"]
        if content not in added_definitions and (content in ids or number not in numbers):
            ids.setdefault(content, number)
            numbers.add(ids[content])
            added_definitions[content] = {
                key: value for key, value in entry.items() if key not in ("id", "__type")
            }
    largest_id = max(numbers, default=0)
    if largest_id - len(numbers) > _MOST_FREE_IDS:
        expected_text = f"at most {_MOST_FREE_IDS:,} unused ids"
        used_ids = f"{len(numbers):,} ids up to {largest_id:,}"
        raise _damaged(str(folder / TOKENIZER), expected_text, used_ids)
    return ids, added_definitions


def _plain_tokens(facts: Mapping[str, Any], where: Path) -> dict[str, int]:
    model = facts.get("model")
    if not isinstance(model, dict):
        raise _damaged(str(where), "model: an object", _shown(model))
    vocab = model.get("vocab")
    if isinstance(vocab, list):
        for entry in vocab:
            if not _is_scored(entry):
                raise _damaged(str(where), "model.vocab: pieces with scores", _shown(entry))
        return {piece: number for number, (piece, _) in enumerate(vocab)}
    if not isinstance(vocab, dict):
        raise _damaged(str(where), "model.vocab: tokens with their ids", _shown(vocab))
    for token, number in vocab.items():
        if not _is_id(number):
            raise _damaged(
                str(where), "an id for every token", f"{_shown(token)}: {_shown(number)}"
            )
    return dict(vocab)


def _added_tokens(facts: Mapping[str, Any], where: Path) -> list[tuple[int, dict[str, Any]]]:
    entries = facts.get("added_tokens")
    if entries is None:
        return []
    if not isinstance(entries, list):
        raise _damaged(str(where), "added_tokens: a list", _shown(entries))
    for entry in entries:
        if not _is_id(_content(entry, where).get("id")):
            raise _damaged(str(where), "an id for every added token", _shown(entry.get("id")))
    return [(entry["id"], entry) for entry in entries]


def _content(entry: Any, where: Path) -> dict[str, Any]:
    """Return the definition of an added token, after checking that it has a content."""
    if isinstance(entry, dict) and isinstance(entry.get("content"), str):
        return entry
    raise _damaged(str(where), "added tokens with their content", _shown(entry))


def _is_id(number: Any) -> bool:
    return type(number) is int and 0 <= number < _LARGEST_ID


def _is_scored(entry: Any) -> bool:
    """Return whether an entry of a Unigram's vocabulary is a piece with its score."""
    if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], str):
        return False
    return type(entry[1]) in (int, float) and abs(entry[1]) < _LARGEST_SCORE


def _shown(value: Any) -> str:
    """Return a value of a damaged file as text; for an object or list, only its type."""
    return type(value).__name__ if isinstance(value, dict | list) else repr(value)[:60]


def _converted(source: Source, files: tuple[str, ...]) -> dict[str, Any]:
    """Return tokenizer.json as transformers makes it from other tokenizer files.

    Raises:
        InputError: a file is too large, a library is not installed, or the files cannot be
            converted.
    """
    if large_files := oversized_tokenizer_files(source.folder):
        expected_text = f"files of at most {LARGEST:,} bytes"
        raise _damaged(str(source.folder / large_files[0]), expected_text, "a larger file")
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise _needs_extra(source, "transformers is not installed") from None
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            source.folder, local_files_only=True, trust_remote_code=False
        )
        facts: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    except ImportError as error:
        raise _needs_extra(source, str(error).strip().split("\n")[0]) from None
    except BaseException as error:
        # Errors of many classes are possible; each means that the files are unusable. A panic of
        # the tokenizers library is not an Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise refuse(
            f"The tokenizer of {source.ref} has no {TOKENIZER}, and its other files cannot be "
            "converted",
            where=str(source.folder),
            expected=f"{TOKENIZER}, or files that transformers converts to it",
            found=f"{', '.join(files)}: " + str(error).strip().split("\n")[0][:200],
            fix=f"if libraries are missing: {EXTRA}; otherwise save the tokenizer as {TOKENIZER} "
            "(transformers: AutoTokenizer, save_pretrained)",
        ) from None
    return facts


def _needs_extra(source: Source, why: str) -> InputError:
    return refuse(
        f"The tokenizer of {source.ref} has no {TOKENIZER}: other files must be converted to it",
        where=source.ref.text,
        expected=f"{TOKENIZER}, or the libraries that convert to it",
        found=why,
        fix=EXTRA,
    )
