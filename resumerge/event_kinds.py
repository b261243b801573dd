"""The kinds of events in a ledger: what happened to a run, beside its progress.

`ui/text/narrative.py` has the sentences about them.
"""

from __future__ import annotations

from enum import StrEnum


class EventKind(StrEnum):
    """What an event in the ledger says. The texts are stored, and part of the JSON.

    Each kind's docstring names its facts: the keys of an event's `data`. `files`, `models` and
    `names` are lists of text. Others are text, if no unit or type stands beside them.
    """

    BATCH_LOWERED = "batch_lowered"
    """The uncommitted limit was lowered, because memory is short.

    Facts: `reason`; the limit `before` and `after` (bytes); `rss` and `available` memory (bytes).
    """

    BATCH_RAISED = "batch_raised"
    """The uncommitted limit was raised, because memory is free again.

    Facts: `reason`; the limit `before` and `after` (bytes); `rss` and `available` memory (bytes).
    """

    MEMORY_AWAITED = "waiting"
    """The run waits for memory: not even one block fits.

    Facts: `reason`; `rss` and `available` memory (bytes).
    """

    MEMORY_WAIT_ENDED = "went_on"
    """The wait for memory ended: a block fits again, or a signal asked to stop.

    The `reason` says which of the two.

    Facts: `reason`; the `seconds` that it waited; `rss` and `available` memory (bytes).
    """

    MEMORY_GIVEN_UP = "gave_up_waiting"
    """The run stopped after it had waited for memory.

    Facts: `reason`; the `seconds` that it waited; `rss` and `available` memory (bytes).
    """

    STOPPED = "stopped"
    """An error stopped the attempt.

    Facts: the error's message as `reason`; the `Reason` of a `Resumable` as `cause`.
    """

    WORKER_KILLED = "worker_killed"
    """The kernel or another process killed the worker.

    Facts: `pid` (a number), `cause` (as `WorkerExit` has it), `signal`; its `budget` (bytes), if
    known.
    """

    WORKER_CRASHED = "worker_crashed"
    """The worker crashed.

    Facts: `pid` (a number), `cause` (as `WorkerExit` has it), `signal`; its `budget` (bytes), if
    known.
    """

    WORKER_STALLED = "worker_stalled"
    """The supervisor killed the worker, because it made no progress.

    Facts: `pid` (a number), `cause` (as `WorkerExit` has it), `signal`; its `budget` (bytes), if
    known; the `seconds` without progress; what it `waited_for`.
    """

    RECHECKED = "rechecked"
    """What was committed before an interruption was compared with the disk again.

    Fact: how many `units` (a number).
    """

    STREAMED = "streamed"
    """Files were read by ranges and not stored.

    Facts: the `bytes` and `requests` (numbers) of an attempt.
    """

    SOURCE_TOUCHED = "source_touched"
    """A source file has another modification time, and the same content.

    Fact: up to five `files`, as paths.
    """

    SOURCES_TRUSTED = "sources_trusted"
    """Source files have other modification times, and were not compared.

    Fact: up to five `files`, as paths.
    """

    SOURCE_CHANGED = "source_changed"
    """A source file changed while it was merged.

    Facts: all `models`; up to five `files`, as paths; how many `units` (a number) were computed
    from them, and up to five of their `names`.
    """

    SOURCE_DIFFERS = "source_differs"
    """A source file has other content: its units are pending again.

    Facts: up to five `files`, as paths; how many `units` (a number).
    """

    SOURCE_DAMAGED = "source_damaged"
    """A cached source file is damaged: its units are pending again.

    Facts: `model`, `file`; the number of the `damage` in the metadata cache, null if it has none;
    how many `units` (a number), if some were committed.
    """

    DOWNLOAD_DAMAGED = "download_damaged"
    """A download does not have its hash, and is repeated.

    Facts: `repo` (the model, also in a bucket), `file`.
    """

    DOWNLOAD_EVICTED = "download_evicted"
    """A download that is not needed any more was deleted.

    Facts: `file`, `bytes` (a number).
    """

    FILE_KEPT = "file_kept"
    """A file of the user has the name of an output file, and stays.

    Facts: `name`; the address of the `mirror`, if it is there.
    """

    FILE_SET_ASIDE = "file_set_aside"
    """A file of the user has the name of an output file, and got a backup name.

    Facts: its `name` before, and `now`; the address of the `mirror`, if it is there.
    """

    SHARD_LOST = "shard_lost"
    """A shard is missing or too short: its units are pending again.

    Facts: `shard`; what was `found`; how many `units` (a number).
    """

    SHARD_FOUND_WHOLE = "shard_found_whole"
    """A shard is complete on the disk, and was not sealed in the ledger.

    Fact: `shard`.
    """

    RANKS_CHOSEN = "ranks_chosen"
    """The changes chose the ranks of an adapter.

    Facts: how many `modules`, and the `least` and `most` of their ranks (numbers).
    """

    SHARD_ADOPTED = "shard_adopted"
    """A shard that a task of an earlier attempt published was taken over.

    Facts: `shard`; how many `units` (a number).
    """

    SHARD_OF_SWEEP = "shard_of_sweep"
    """A shard that a sweep computed, with those of other models, was taken over.

    Facts: `shard`; how many `units` (a number).
    """

    SHARD_FROM_MIRROR = "shard_from_mirror"
    """A shard that another machine sealed and mirrored was taken over.

    Facts: `shard`; how many `units` (a number).
    """

    CHECKSUM_MISMATCH = "checksum_mismatch"
    """Units on the disk differ from their hashes, and are pending again.

    Facts: `shard`; how many `units` (a number), and up to five of their `names`.
    """

    STEP_LOST = "step_lost"
    """The file of a step is missing or damaged: the step begins again.

    Fact: how many `pieces` (a number) were done.
    """

    VERIFY_FOUND_DAMAGE = "verify_found_damage"
    """`verify` found damaged units, which are pending again.

    Facts: how many `units` (a number); up to five `names` of tensors or files.
    """

    LEDGER_DAMAGED = "ledger_damaged"
    """Neither the ledger nor its snapshot can be read; told, never stored.

    Fact: `why`.
    """

    LEDGER_RESTORED = "ledger_restored"
    """The ledger was damaged, and restored from its snapshot.

    Until `LEDGER_RECONCILED` every committed byte must be verified. No facts.
    """

    LEDGER_RECONCILED = "ledger_reconciled"
    """Everything on the disk was compared with the restored ledger. No facts."""

    MOVED_HERE = "moved_here"
    """The run was imported from its mirror by this machine.

    Facts: the address of the `mirror`; the host that it `came_from`; how many `shards` (a number)
    the mirror has; how many committed `units` (a number) it lacks.
    """

    BROUGHT_BACK = "brought_back"
    """A shard was copied back from the mirror.

    Facts: its `name`, and the address of the `mirror`.
    """

    MIRROR_FAILING = "mirror_failing"
    """The mirror fails.

    Facts: the address of the `mirror`; the error as `reason`.
    """

    MIRROR_RECOVERED = "mirror_recovered"
    """The mirror works again.

    Fact: the address of the `mirror`.
    """

    MIRROR_DAMAGED = "mirror_damaged"
    """A file of the mirror is missing or differs.

    Facts: its `name`; what was `found`, or ``verify``; the address of the `mirror`.
    """

    MIRROR_LOST_FILE = "mirror_lost_file"
    """A file that was in the mirror is missing there, and is copied again.

    Facts: its `name`, and the address of the `mirror`.
    """

    MIRROR_LACKS = "mirror_lacks"
    """The mirror of a finished run lacks files, which are copied again.

    Facts: some of the `names`, and the address of the `mirror`.
    """

    TASK_STARTED = "task_started"
    """A task of a cluster started.

    Facts: `task`, `shard`, `node`.
    """

    TASK_FINISHED = "task_finished"
    """The shard of a task was committed.

    Facts: `task`, `shard`, `node`; `bytes` of the shard, `seconds` that it took; `peak_rss`
    (bytes).
    """

    TASK_FAILED = "task_failed"
    """A task failed.

    Facts: `task`, `shard`, `node`; a `Reason` as `reason`; the error's `message`.
    """

    HASH_CONFLICT = "hash_conflict"
    """Two machines computed different bytes.

    Facts: `shard`, `task`, `node`. Where the driver compared hashes: the `tensor`, its `block` (a
    number), the `first` hash, which is kept, and the `second`. Where a task did: its `message`.
    """
