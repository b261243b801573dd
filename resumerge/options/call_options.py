"""The options as type checkers see them, of `resumerge.run` and its like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from resumerge.options.types import StrPath


class _MergeHereOptions(TypedDict, total=False):
    state_dir: StrPath | None
    memory: int | str | None
    threads: int | Literal["auto"] | None
    offline: bool
    no_accounts: bool
    no_recheck: bool
    restart: bool
    memory_wait: float
    evict: bool | None
    stream: bool | None
    stall_timeout: float


class ReproduceOptions(_MergeHereOptions, total=False):
    """Options that `resumerge.reproduce` takes."""

    device: str


class _MergeOptions(_MergeHereOptions, total=False):
    trust_sources: bool
    mirror: StrPath | None
    mirror_then_delete: bool | None
    mirror_rate: int | str | None
    mirror_wait: float | None
    take_over: bool
    bring_back: bool
    ray: str | None
    ray_resources: str | None


class ExtractOptions(_MergeOptions, total=False):
    """Options that `resumerge.extract_expert` takes."""

    shard_size: int | str | None


class ExtractLoraOptions(_MergeOptions, total=False):
    """Options that `resumerge.extract_lora` takes, beside those of the adapter."""

    seed: int | None


class RunOptions(ExtractOptions, total=False):
    """Options that `resumerge.run` takes, and `resumerge.plan`."""

    device: str
    link: bool
    materialize: str | None
    seed: int | None
    tensor_union: bool | None
    tensor_intersection: bool | None
    keep: Sequence[str] | None
    strict: bool | None
    intermediate_dir: StrPath | None


class ResumeOptions(_MergeOptions, total=False):
    """Options that `resumerge.resume` takes."""

    device: str
    link: bool
    materialize: str | None
    strict: bool | None
    output: StrPath | None


class VerifyOptions(TypedDict, total=False):
    """Options that `resumerge.verify` takes."""

    state_dir: StrPath | None
    threads: int | Literal["auto"] | None
    device: str
    offline: bool


class CompareOptions(TypedDict, total=False):
    """Options that `resumerge.compare` takes."""

    state_dir: StrPath | None
    threads: int | Literal["auto"] | None
    seed: int | None
    tensor_union: bool | None
    tensor_intersection: bool | None
    offline: bool


class ExplainOptions(TypedDict, total=False):
    """Options that `resumerge.explain` takes."""

    state_dir: StrPath | None
    tensor_union: bool | None
    tensor_intersection: bool | None
    offline: bool


class SearchOptions(TypedDict, total=False):
    """Options that `resumerge.search` takes, beside those of the search."""

    state_dir: StrPath | None
    memory: int | str | None
    threads: int | Literal["auto"] | None
    device: str
    seed: int | None
    tensor_union: bool | None
    tensor_intersection: bool | None
    offline: bool
    no_accounts: bool
    memory_wait: float
    stream: bool | None
