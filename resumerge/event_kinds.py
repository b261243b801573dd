"""The kinds of events in a ledger. Events record what happens to a run besides its progress.

`ui/text/narrative.py` has the sentences about them.
"""

from __future__ import annotations

from enum import StrEnum


class EventKind(StrEnum):
    """The kind of an event in the ledger. The texts are stored, and are part of the JSON.

    Each kind's docstring names its facts: the keys of an event's `data`. `files`, `models` and
    `names` are lists of text. Facts with a unit or a type in parentheses, and facts that are "the
    number of" something, are numbers. Other facts are text.
    """

    LIMIT_LOWERED = "batch_lowered"
    """The uncommitted limit was lowered, because memory is short.

    Facts: `reason`; the limit `before` and `after` (bytes); `rss` and `available` memory (bytes).
    """

    LIMIT_RAISED = "batch_raised"
    """The uncommitted limit was raised, because memory is free again.

    Facts: `reason`; the limit `before` and `after` (bytes); `rss` and `available` memory (bytes).
    """

    MEMORY_AWAITED = "waiting"
    """The run waits for memory: not even one block fits.

    Facts: `reason`; `rss` and `available` memory (bytes).
    """

    MEMORY_WAIT_ENDED = "went_on"
    """The wait for memory ended: a block fits again, or a signal arrived.

    The `reason` names the cause.

    Facts: `reason`; the `seconds` that it waited; `rss` and `available` memory (bytes).
    """

    MEMORY_GIVEN_UP = "gave_up_waiting"
    """The run stopped because it had waited too long for memory.

    Facts: `reason`; the `seconds` that it waited; `rss` and `available` memory (bytes).
    """

    STOPPED = "stopped"
    """An error stopped the attempt.

    Facts: the error's message as `reason`; the `Reason` of a `Resumable` as `cause`.
    """

    WORKER_KILLED = "worker_killed"
    """The kernel or another process killed the worker.

    Facts: `pid` (a number), `cause` and `signal` (see `WorkerExit`); the `budget` (bytes), if
    known.
    """

    WORKER_CRASHED = "worker_crashed"
    """The worker crashed.

    Facts: `pid` (a number), `cause` and `signal` (see `WorkerExit`); the `budget` (bytes), if
    known.
    """

    WORKER_STALLED = "worker_stalled"
    """The supervisor killed the worker, because it made no progress.

    Facts: `pid` (a number), `cause` and `signal` (see `WorkerExit`); the worker's `budget` (bytes),
    if known; the `seconds` without progress; the operation that the worker `waited_for`.
    """

    RECHECKED = "rechecked"
    """Blocks that were committed before an interruption were compared with the disk again.

    Fact: the number of `units`.
    """

    STREAMED = "streamed"
    """Files were read by ranges, and not stored.

    Facts: the `bytes` and `requests` (numbers) of an attempt.
    """

    SOURCE_TOUCHED = "source_touched"
    """A source file has a new modification time, but the same content.

    Fact: the paths of up to five `files`.
    """

    SOURCES_TRUSTED = "sources_trusted"
    """Source files have new modification times, and were not compared.

    Fact: the paths of up to five `files`.
    """

    SOURCE_CHANGED = "source_changed"
    """A source file changed during the merge.

    Facts: all `models`; the paths of up to five `files`; the number of `units` that were computed
    from these files, and up to five of their `names`.
    """

    SOURCE_DIFFERS = "source_differs"
    """A source file has other content; the units that read it are pending again.

    Facts: the paths of up to five `files`; the number of `units`.
    """

    SOURCE_DAMAGED = "source_damaged"
    """A cached source file is damaged; the units that read it are pending again.

    Facts: `model`, `file`; the number of the `damage` in the metadata cache, null without a number;
    the number of committed `units` that read the file, if there are any.
    """

    DOWNLOAD_DAMAGED = "download_damaged"
    """A download does not match its hash, and is repeated.

    Facts: `repo` (the model, also in a bucket), `file`.
    """

    DOWNLOAD_EVICTED = "download_evicted"
    """A download that is no longer needed was deleted.

    Facts: `file`, `bytes` (a number).
    """

    FILE_KEPT = "file_kept"
    """A file of the user has the name of an output file, and is kept.

    Facts: `name`; the address of the `mirror`, if the file is in the mirror.
    """

    FILE_SET_ASIDE = "file_set_aside"
    """A file of the user had the name of an output file, and was renamed to a backup name.

    Facts: the file's `name` before, and its name `now`; the address of the `mirror`, if the file is
    in the mirror.
    """

    SHARD_LOST = "shard_lost"
    """A shard is missing or too short; its units are pending again.

    Facts: `shard`; the state that was `found`; the number of `units`.
    """

    SHARD_FOUND_WHOLE = "shard_found_whole"
    """A shard is complete on the disk, but was not sealed in the ledger.

    Fact: `shard`.
    """

    RANKS_CHOSEN = "ranks_chosen"
    """The ranks of an adapter were determined from its changes.

    Facts: the number of `modules`, and their `least` and `most` rank (numbers).
    """

    SHARD_ADOPTED = "shard_adopted"
    """A shard that a task of an earlier attempt published was taken over.

    Facts: `shard`; the number of `units`.
    """

    SHARD_OF_SWEEP = "shard_of_sweep"
    """A shard that a sweep computed, together with shards of other models, was taken over.

    Facts: `shard`; the number of `units`.
    """

    SHARD_FROM_MIRROR = "shard_from_mirror"
    """A shard that another machine sealed and mirrored was taken over.

    Facts: `shard`; the number of `units`.
    """

    CHECKSUM_MISMATCH = "checksum_mismatch"
    """Units on the disk do not match their hashes, and are pending again.

    Facts: `shard`; the number of `units`, and up to five of their `names`.
    """

    STEP_LOST = "step_lost"
    """The file of a step is missing or damaged; the step starts over.

    Fact: the number of `pieces` that were done.
    """

    VERIFY_FOUND_DAMAGE = "verify_found_damage"
    """`verify` found damaged units, which are pending again.

    Facts: the number of `units`; up to five `names` of tensors or files.
    """

    LEDGER_DAMAGED = "ledger_damaged"
    """Neither the ledger nor its snapshot can be read; reported, but never stored.

    Fact: `why`.
    """

    LEDGER_RESTORED = "ledger_restored"
    """The ledger was damaged, and restored from its snapshot.

    Every committed byte must be verified until `LEDGER_RECONCILED`. No facts.
    """

    LEDGER_RECONCILED = "ledger_reconciled"
    """All committed blocks on the disk were compared with the restored ledger. No facts."""

    MOVED_HERE = "moved_here"
    """The run was imported from its mirror by this machine.

    Facts: the address of the `mirror`; the host that the run `came_from`; the number of `shards`
    that the mirror has; the number of committed `units` that it lacks.
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

    Facts: its `name`; the state that was `found`, or ``verify``; the address of the `mirror`.
    """

    MIRROR_LOST_FILE = "mirror_lost_file"
    """A file is no longer in the mirror, and is copied again.

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

    Facts: `shard`, `task`, `node`. If the driver compared the hashes: the `tensor`, its `block` (a
    number), the `first` hash, which is kept, and the `second` hash. If a task compared them: its
    `message`.
    """
