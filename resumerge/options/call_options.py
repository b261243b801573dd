"""The options of the Python functions, declared as `TypedDict` classes for type checkers."""

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
    """The options of `resumerge.reproduce`."""

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
    """The options of `resumerge.extract_expert`."""

    shard_size: int | str | None


class ExtractLoraOptions(_MergeOptions, total=False):
    """The options of `resumerge.extract_lora`, without the settings of the adapter."""

    seed: int | None


class RunOptions(ExtractOptions, total=False):
    """The options of `resumerge.run` and `resumerge.plan`."""

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
    """The options of `resumerge.resume`."""

    device: str
    link: bool
    materialize: str | None
    strict: bool | None
    output: StrPath | None


class VerifyOptions(TypedDict, total=False):
    """The options of `resumerge.verify`."""

    state_dir: StrPath | None
    threads: int | Literal["auto"] | None
    device: str
    offline: bool


class CompareOptions(TypedDict, total=False):
    """The options of `resumerge.compare`."""

    state_dir: StrPath | None
    threads: int | Literal["auto"] | None
    seed: int | None
    tensor_union: bool | None
    tensor_intersection: bool | None
    offline: bool


class ExplainOptions(TypedDict, total=False):
    """The options of `resumerge.explain`."""

    state_dir: StrPath | None
    tensor_union: bool | None
    tensor_intersection: bool | None
    offline: bool


class SearchOptions(TypedDict, total=False):
    """The options of `resumerge.search`, without the settings of the search."""

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
