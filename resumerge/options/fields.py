"""The declarations of all options: type, help, commands, default, and how long each holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from resumerge.local_path import OUTPUT
from resumerge.options.cluster import ClusterAddress, TaskResources
from resumerge.options.declaration import Kept, declare
from resumerge.options.types import (
    Address,
    Choice,
    Count,
    Flag,
    Folder,
    Number,
    Seconds,
    Size,
    Word,
    Words,
)

SHARD_SIZE = 5_000_000_000
SEED = 0
MEMORY_WAIT = 600.0
MIRROR_WAIT = 600.0
STALL_SECONDS = 600.0
"""Seconds without progress after which a worker counts as stuck. Even a slow disk is faster."""

_RUN_PLAN = ("run", "plan")
"""The commands for options of a new merge. `plan` has every option of `run`."""

_RUN_PLAN_EXPLAIN = (*_RUN_PLAN, "explain")
"""The commands for options that affect the values of a recipe's parameters."""

_NEW_OUTPUTS = (*_RUN_PLAN, "extract-expert")
"""The commands for options of writing a new model."""

_RUN_RESUME_PLAN = ("run", "resume", "plan")
"""The commands for options that `resume` may change."""

_WITH_MIRROR = (*_RUN_RESUME_PLAN, "extract-expert", "extract-lora")
"""The commands that can use a mirror or a cluster."""

_ALL_THAT_MERGE = (*_WITH_MIRROR, "reproduce")
"""The commands for options of every merge: memory, threads, disk and sources."""

_READERS = (
    *("status", "verify", "clean", "push", "try", "compare", "explain"),
    *("cache check", "cache repair"),
)

MACHINE = "Memory, processors and disk"
OUTPUT_GROUP = "The output"
STAGES = "Stages (recipes of several documents)"
SOURCES = "Models"
PROOF = "Checks"
SAFETY = "Interruptions"
MIRROR = "Mirror"
CLUSTER = "Cluster"
"""The headings in help, for `Option.group`."""


@dataclass(frozen=True, kw_only=True)
class OptionFields:
    """The fields of `Options`. Each field declares one option."""

    state_dir: Path | None = declare(
        Folder("state folder"),
        "Folder for the ledgers.",
        commands=(*_ALL_THAT_MERGE, *_READERS, "search"),
        default_text="./state, or RESUMERGE_STATE_DIR",
    )
    memory: int | None = declare(
        Size("2GB", "auto"),
        "Limit for the resident memory of the merge, like 2GB.",
        commands=(*_ALL_THAT_MERGE, "search"),
        default_text="auto: from the available memory",
        kept=Kept.INHERITED,
        group=MACHINE,
    )
    threads: int | None = declare(
        Count(),
        "Number of worker threads.",
        commands=(*_ALL_THAT_MERGE, "verify", "compare", "search"),
        default_text="auto: the cores that this process may use",
        kept=Kept.INHERITED,
        group=MACHINE,
    )
    device: str = declare(
        Word("cpu, cuda, cuda:1 or auto", "DEV"),
        "Device for dense computation such as SVD: cpu, cuda, cuda:1 or auto.",
        commands=(*_RUN_RESUME_PLAN, "verify", "reproduce", "search"),
        default="cpu",
        kept=Kept.REPEATED,
        group=MACHINE,
    )
    shard_size: int | None = declare(
        Size("5GB"),
        "Size of the largest output shard.",
        commands=_NEW_OUTPUTS,
        default_text=f"{SHARD_SIZE // 10**9}GB; a copy of one model keeps its files",
        kept=Kept.PLANNED,
        group=OUTPUT_GROUP,
    )
    link: bool = declare(
        Flag(),
        "Make shards that are copies of a model's files hard links to them, where both are on one "
        "disk: they take no space, and whoever changes one changes the other.",
        commands=_RUN_RESUME_PLAN,
        default=False,
        kept=Kept.BEGUN_WITH,
        group=OUTPUT_GROUP,
    )
    seed: int | None = declare(
        Number(),
        "Seed for randomized methods; of a search, also for what it tries.",
        commands=(*_RUN_PLAN, "extract-lora", "compare", "search"),
        default_text=str(SEED),
        kept=Kept.PLANNED,
        group=OUTPUT_GROUP,
    )
    tensor_union: bool | None = declare(
        Flag(),
        "Keep tensors that only some of the models have, each merged from the models that have it "
        "(checkpoints without config.json).",
        commands=(*_RUN_PLAN_EXPLAIN, "compare", "search"),
        kept=Kept.PLANNED,
        short="-u",
        group=OUTPUT_GROUP,
    )
    tensor_intersection: bool | None = declare(
        Flag(),
        "Leave out tensors that not all of the models have (checkpoints without config.json).",
        commands=(*_RUN_PLAN_EXPLAIN, "compare", "search"),
        kept=Kept.PLANNED,
        short="-i",
        group=OUTPUT_GROUP,
    )
    keep: Sequence[str] | None = declare(
        Words("names of stages, as a list", "NAME"),
        "Also write the result of the stage with this name, to OUT/stages/NAME. May be given "
        "several times.",
        commands=_RUN_PLAN,
        kept=Kept.PLANNED,
        group=STAGES,
    )
    intermediate_dir: Path | None = declare(
        Folder("folder of the stages"),
        "Keep the results of all stages, as with --keep, and make a link DIR/NAME to each.",
        commands=_RUN_PLAN,
        kept=Kept.PLANNED,
        short="-I",
        group=STAGES,
    )
    materialize: str | None = declare(
        Choice("auto", "always", "never"),
        "Which results of stages are written to scratch files while they are read, rather than "
        "computed again: auto, always or never.",
        commands=_RUN_RESUME_PLAN,
        default_text="auto: where that is quicker",
        kept=Kept.INHERITED,
        group=STAGES,
    )
    offline: bool = declare(
        Flag(),
        "Do not use the network: every source must be local or cached.",
        commands=(*_ALL_THAT_MERGE, "verify", "compare", "explain", "cache check", "search"),
        default=False,
        kept=Kept.REPEATED,
        group=SOURCES,
    )
    trust_sources: bool = declare(
        Flag(),
        "Do not check whether local models changed between attempts. If they did, the output "
        "mixes old and new weights. If a run begins with this option, its inputs are not hashed.",
        commands=_WITH_MIRROR,
        default=False,
        kept=Kept.BEGUN_WITH,
        group=SOURCES,
    )
    strict: bool | None = declare(
        Flag(),
        "Refuse a recipe that does not use every tensor of its models (those that transformers "
        "computes or ties, and that an adapter replaces, do not count), and exit with 75 after a "
        "merge with warnings about its numbers.",
        commands=_RUN_RESUME_PLAN,
        kept=Kept.INHERITED,
        group=PROOF,
    )
    no_accounts: bool = declare(
        Flag(),
        "Do not measure the numbers of the merge: how far each model differs from the base, and "
        "what of a change survives rounding. The accounts of tensors stay.",
        commands=(*_ALL_THAT_MERGE, "search"),
        default=False,
        kept=Kept.BEGUN_WITH,
        group=PROOF,
    )
    no_recheck: bool = declare(
        Flag(),
        "After an interruption, do not check the data that was committed before it.",
        commands=_ALL_THAT_MERGE,
        default=False,
        kept=Kept.REPEATED,
        group=SAFETY,
        of_process=True,
    )
    restart: bool = declare(
        Flag(),
        "Abandon the unfinished run and start over.",
        commands=_ALL_THAT_MERGE,
        default=False,
        group=SAFETY,
    )
    memory_wait: float = declare(
        Seconds(),
        "Seconds to wait for free memory before the run stops.",
        commands=(*_ALL_THAT_MERGE, "search"),
        default=MEMORY_WAIT,
        kept=Kept.REPEATED,
        group=MACHINE,
        of_process=True,
    )
    evict: bool | None = declare(
        Flag(),
        "Delete each download of this run as soon as it is no longer needed.",
        commands=_ALL_THAT_MERGE,
        kept=Kept.INHERITED,
        group=SOURCES,
    )
    stream: bool | None = declare(
        Flag(),
        "Read models on the Hub and in buckets by ranges as they are needed, and never store "
        "them. What a method reads several times is fetched several times.",
        commands=(*_ALL_THAT_MERGE, "search"),
        kept=Kept.INHERITED,
        group=SOURCES,
    )
    mirror: str | None = declare(
        Address(),
        "Copy the run to this folder, Hub repo (hf://org/name) or bucket (s3://bucket/prefix) "
        "while it works.",
        commands=_WITH_MIRROR,
        kept=Kept.REPEATED,
        group=MIRROR,
    )
    mirror_then_delete: bool | None = declare(
        Flag(),
        "Delete each shard on this machine once the mirror has it.",
        commands=_WITH_MIRROR,
        kept=Kept.INHERITED,
        needs_mirror=True,
        group=MIRROR,
    )
    mirror_rate: int | None = declare(
        Size("10MB", "none"),
        "Limit for transfers to and from the mirror in bytes per second, like 10MB.",
        commands=_WITH_MIRROR,
        default_text="none",
        kept=Kept.INHERITED,
        needs_mirror=True,
        group=MIRROR,
    )
    mirror_wait: float | None = declare(
        Seconds(),
        "Seconds to retry a failing mirror before the run stops.",
        commands=_WITH_MIRROR,
        default_text=f"{MIRROR_WAIT:g}",
        kept=Kept.INHERITED,
        needs_mirror=True,
        group=MIRROR,
        of_process=True,
    )
    take_over: bool = declare(
        Flag(),
        "Take over the mirror from another machine that is known to be dead.",
        commands=_WITH_MIRROR,
        default=False,
        kept=Kept.REPEATED,
        needs_mirror=True,
        group=MIRROR,
    )
    bring_back: bool = declare(
        Flag(),
        "Download shards that only the mirror has, and keep them here.",
        commands=_WITH_MIRROR,
        default=False,
        kept=Kept.REPEATED,
        needs_mirror=True,
        group=MIRROR,
    )
    ray: str | None = declare(
        ClusterAddress(),
        "Compute the shards on a Ray cluster, by tasks that write to OUT: a folder that all "
        "machines share, or a place in a bucket. Without an address a cluster is started on this "
        "machine alone.",
        commands=_WITH_MIRROR,
        kept=Kept.REPEATED,
        group=CLUSTER,
    )
    ray_resources: str | None = declare(
        TaskResources(),
        "What Ray reserves for each task beside --threads and --memory: NAME=N, separated by "
        "commas, or JSON.",
        commands=_WITH_MIRROR,
        kept=Kept.REPEATED,
        group=CLUSTER,
    )
    stall_timeout: float = declare(
        Seconds(),
        "Seconds without progress after which the worker, or a task of --ray, is started again; "
        "0: never.",
        commands=_ALL_THAT_MERGE,
        default=STALL_SECONDS,
        kept=Kept.REPEATED,
        group=SAFETY,
        of_process=True,
    )
    output: Path | None = declare(
        Folder(OUTPUT),
        "Output of a run that is resumed from a mirror.",
        commands=("resume",),
        default_text="./NAME",
        group=OUTPUT_GROUP,
    )
