"""The validated recipe: what to merge and how, as frozen dataclasses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from resumerge.errors import Problem
from resumerge.recipe.paths import descend, nearest_line

Scalar = float | int | bool | str


@dataclass(frozen=True)
class Conditional:
    """One entry of a filtered value, for tensors whose name contains `filter` (None: for all)."""

    filter: str | None
    value: Setting


Setting = Scalar | tuple[float, ...] | tuple[Conditional, ...]
"""A parameter's value as written: a scalar, a gradient over layers, or filtered values."""


@dataclass(frozen=True)
class ModelRef:
    """A model as the recipe names it: ``org/name``, ``org/name@revision`` or a local folder.

    Args:
        text: exactly as written, the key that parameters are looked up by.
        name: repo id or path, without the revision.
        revision: branch, tag or commit; None for the default branch and for local folders.
        lora: the adapter on top of it, of ``model+adapter``; None for a model as it is.
    """

    text: str
    name: str
    revision: str | None = None
    lora: ModelRef | None = None

    @property
    def parts(self) -> tuple[ModelRef, ...]:
        """The model without its adapter, and the adapter; a plain model is its only part."""
        if self.lora is None:
            return (self,)
        name = f"{self.name}@{self.revision}" if self.revision else self.name
        return ModelRef(name, self.name, self.revision), self.lora

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class TokenRow:
    """Where the row of one token of the output is taken from.

    Args:
        model: whose embedding; None for a row of zeros.
        token: its token there; None for the same token, or for `token_id`.
        token_id: its number there.
        force: also for the models that have a row of their own for the token.
    """

    model: ModelRef | None = None
    token: str | None = None
    token_id: int | None = None
    force: bool = False


@dataclass(frozen=True)
class TokenizerSetting:
    """Which vocabulary the output has.

    Args:
        source: the vocabulary of all models together, of the base model (or else the first), or
            of one model.
        tokens: rows that are not taken by the rules, by token; those that the vocabulary lacks are
            added to it.
        pad_to_multiple_of: the number of rows becomes a multiple of this; None keeps the size of
            the vocabulary's model where that has room.
        key: of the recipe: ``tokenizer`` or ``tokenizer_source``.
    """

    source: Literal["union", "base"] | ModelRef = "union"
    tokens: Mapping[str, TokenRow] = field(default_factory=dict)
    pad_to_multiple_of: int | None = None
    key: str = "tokenizer"

    @property
    def models(self) -> Iterator[ModelRef]:
        """Every model that is named."""
        if isinstance(self.source, ModelRef):
            yield self.source
        yield from (row.model for row in self.tokens.values() if row.model is not None)

    def normalized(self) -> dict[str, Any]:
        """For the fingerprint; the two ways to write it are one."""
        return {
            "source": str(self.source),
            "tokens": {
                token: {
                    "model": str(row.model) if row.model else None,
                    "token": row.token,
                    "token_id": row.token_id,
                    "force": row.force,
                }
                for token, row in sorted(self.tokens.items())
            },
            "pad_to_multiple_of": self.pad_to_multiple_of,
        }


@dataclass(frozen=True)
class Input:
    """One model of a slice (or of ``models``) with its own parameters.

    Args:
        layer_range: (start, stop), stop exclusive; None for all layers.
        path: YAML path of this entry, to report problems; ``base_model`` for a base that the
            ``models`` list does not name.
    """

    model: ModelRef
    layer_range: tuple[int, int] | None = None
    parameters: Mapping[str, Setting] = field(default_factory=dict)
    path: str = ""


@dataclass(frozen=True)
class Slice:
    """Consecutive layers of the output, each computed from one layer of every input.

    Args:
        base_model: overrides the recipe's for this slice.
        path: YAML path of this entry; empty for the one slice of a ``models`` list.
    """

    inputs: tuple[Input, ...]
    base_model: ModelRef | None = None
    parameters: Mapping[str, Setting] = field(default_factory=dict)
    path: str = ""


@dataclass(frozen=True)
class Module:
    """The slices of the whole model, or of one part of it: an entry of ``modules``.

    A ``models`` list is kept as one slice without layer ranges.

    Args:
        name: of the part, as the recipe writes it; None for the whole model.
        stacked: True where it was written with ``slices``, False for ``models``.
        path: YAML path of this entry; empty for the whole model.
    """

    slices: tuple[Slice, ...]
    name: str | None = None
    stacked: bool = False
    parameters: Mapping[str, Setting] = field(default_factory=dict)
    path: str = ""


@dataclass(frozen=True)
class Recipe:
    """A whole recipe: ``models`` and ``slices`` are one module, the whole model.

    A base that ``models`` does not name is its last input, without parameters (same as mergekit
    0.1.5, observed). In ``slices`` the base is never added.

    Args:
        tokenizer: which vocabulary the output has; None for the reference model's, as it is.
        chat_template: ``auto``, a built-in name, or a Jinja template; None keeps the tokenizer's.
        text: the YAML as read, to be kept in the ledger and the model card.
        file: where it was read from, for messages.
        lines: YAML path (``slices[0].sources[1]``) to line, counted from 1.
    """

    merge_method: str
    modules: tuple[Module, ...]
    base_model: ModelRef | None = None
    parameters: Mapping[str, Setting] = field(default_factory=dict)
    dtype: str | None = None
    out_dtype: str | None = None
    tokenizer: TokenizerSetting | None = None
    chat_template: str | None = None
    notes: tuple[str, ...] = ()
    """What was accepted and does not do what it may seem to, a sentence each."""
    text: str = ""
    file: str = ""
    lines: Mapping[str, int] = field(default_factory=dict)

    @property
    def slices(self) -> tuple[Slice, ...]:
        """Those of every module."""
        return tuple(slice_ for module in self.modules for slice_ in module.slices)

    @property
    def models(self) -> tuple[ModelRef, ...]:
        """Every model named, once: those that are merged, then those of tokens only."""
        tokens = self.tokenizer.models if self.tokenizer else ()
        return tuple(dict.fromkeys((*self.merged_models, *tokens)))

    @property
    def merged_models(self) -> tuple[ModelRef, ...]:
        """Models whose tensors are merged, in order of appearance (the base where it first is)."""
        named = [i.model for s in self.slices for i in s.inputs]
        named += [ref for ref in (self.base_model, *(s.base_model for s in self.slices)) if ref]
        return tuple(dict.fromkeys(named))

    def parameter_levels(self) -> list[tuple[str, Mapping[str, Setting]]]:
        """(YAML path of ``parameters``, settings) of every level of the recipe, outermost first."""
        levels: list[tuple[str, Mapping[str, Setting]]] = [("", self.parameters)]
        for module in self.modules:
            levels.append((module.path, module.parameters))
            for slice_ in module.slices:
                levels.append((slice_.path, slice_.parameters))
                levels += [(i.path, i.parameters) for i in slice_.inputs]
        return [(descend(path, ("parameters",)), found) for path, found in levels if found]

    def problem(self, what: str, path: str, **facts: Any) -> Problem:
        """A `Problem` at a YAML path of this recipe, with its file and line filled in."""
        return Problem(what, where=self.file, path=path, line=self.line(path), **facts)

    def line(self, path: str) -> int | None:
        """The line of a YAML path, or of its nearest parent that stands in the file."""
        return nearest_line(self.lines, path)

    def normalized(self) -> dict[str, Any]:
        """What decides the merge and nothing else (no comments, order of keys, notes), as JSON."""
        modules = [
            {"name": module.name, "parameters": _plain(module.parameters)}
            | {"slices": [_slice(slice_) for slice_ in module.slices]}
            for module in self.modules
        ]
        whole = len(modules) == 1 and modules[0]["name"] is None
        return {
            "merge_method": self.merge_method,
            "base_model": str(self.base_model) if self.base_model else None,
            "parameters": _plain(self.parameters),
            "dtype": self.dtype,
            "out_dtype": self.out_dtype,
            "tokenizer": self.tokenizer.normalized() if self.tokenizer else None,
            "chat_template": self.chat_template,
            **({"slices": modules[0]["slices"]} if whole else {"modules": modules}),
        }


def _slice(slice_: Slice) -> dict[str, Any]:
    return {
        "base_model": str(slice_.base_model) if slice_.base_model else None,
        "parameters": _plain(slice_.parameters),
        "inputs": [
            {
                "model": str(i.model),
                "layer_range": list(i.layer_range) if i.layer_range else None,
                "parameters": _plain(i.parameters),
            }
            for i in slice_.inputs
        ],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in sorted(value.items())}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Conditional):
        return {"filter": value.filter, "value": _plain(value.value)}
    if isinstance(value, float) and value.is_integer():
        return int(value)  # 1 and 1.0 are the same recipe
    return value
