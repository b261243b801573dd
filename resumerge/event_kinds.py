"""The kinds of events in a ledger: what happened to a run, beside its progress.

`ui/text/narrative.py` has the sentences about them.
"""

from __future__ import annotations

from enum import StrEnum


class EventKind(StrEnum):
    """What an event in the ledger says. The texts are stored, and part of the JSON."""

    BATCH_LOWERED = "batch_lowered"
    """The batch size was lowered, because memory is short."""

    BATCH_RAISED = "batch_raised"
    """The batch size was raised, because memory is free again."""

    WAITING = "waiting"
    """The run waits for memory: not even one block fits."""

    WENT_ON = "went_on"
    """The run continued after it had waited for memory."""

    GAVE_UP_WAITING = "gave_up_waiting"
    """The run stopped after it had waited for memory."""

    STOPPED = "stopped"
    """An error stopped the attempt; `cause` is the `Reason` of a `Resumable`."""

    WORKER_KILLED = "worker_killed"
    """The kernel or another process killed the worker."""

    WORKER_CRASHED = "worker_crashed"
    """The worker crashed."""

    WORKER_STALLED = "worker_stalled"
    """The supervisor killed the worker, because it made no progress."""

    RECHECKED = "rechecked"
    """What was committed before an interruption was compared with the disk again."""

    STREAMED = "streamed"
    """Files were read by ranges and not stored: `bytes` and `requests` of an attempt."""

    SOURCE_TOUCHED = "source_touched"
    """A source file has another modification time, and the same content."""

    SOURCES_TRUSTED = "sources_trusted"
    """Source files have other modification times, and were not compared."""

    SOURCE_CHANGED = "source_changed"
    """A source file changed while it was merged."""

    SOURCE_DIFFERS = "source_differs"
    """A source file has other content: its units are pending again."""

    SOURCE_DAMAGED = "source_damaged"
    """A cached source file is damaged: its units are pending again."""

    DOWNLOAD_DAMAGED = "download_damaged"
    """A download does not have its hash, and is repeated."""

    DOWNLOAD_EVICTED = "download_evicted"
    """A download that is not needed any more was deleted."""

    FILE_KEPT = "file_kept"
    """A file of the user has the name of an output file, and stays."""

    FILE_SET_ASIDE = "file_set_aside"
    """A file of the user has the name of an output file, and got a backup name."""

    SHARD_LOST = "shard_lost"
    """A shard is missing or too short: its units are pending again."""

    SHARD_FOUND_WHOLE = "shard_found_whole"
    """A shard is complete on the disk, and was not sealed in the ledger."""

    RANKS_CHOSEN = "ranks_chosen"
    """The changes chose the ranks of an adapter: of `modules`, from `least` to `most`."""

    SHARD_ADOPTED = "shard_adopted"
    """A shard that a task of an earlier attempt published was taken over."""

    SHARD_OF_SWEEP = "shard_of_sweep"
    """A shard that a sweep computed, with those of other models, was taken over."""

    SHARD_FROM_MIRROR = "shard_from_mirror"
    """A shard that another machine sealed and mirrored was taken over."""

    CHECKSUM_MISMATCH = "checksum_mismatch"
    """Units on the disk differ from their hashes, and are pending again."""

    STEP_LOST = "step_lost"
    """The file of a step is missing or damaged: the step begins again."""

    VERIFY_FOUND_DAMAGE = "verify_found_damage"
    """`verify` found damaged units, which are pending again."""

    LEDGER_DAMAGED = "ledger_damaged"
    """Neither the ledger nor its snapshot can be read; told, never stored."""

    LEDGER_RESTORED = "ledger_restored"
    """The ledger was damaged, and restored from its snapshot.

    Until `LEDGER_RECONCILED` every committed byte must be verified.
    """

    LEDGER_RECONCILED = "ledger_reconciled"
    """Everything on the disk was compared with the restored ledger."""

    MOVED_HERE = "moved_here"
    """The run was imported from its mirror by this machine."""

    BROUGHT_BACK = "brought_back"
    """A shard was copied back from the mirror."""

    MIRROR_FAILING = "mirror_failing"
    """The mirror fails."""

    MIRROR_RECOVERED = "mirror_recovered"
    """The mirror works again."""

    MIRROR_DAMAGED = "mirror_damaged"
    """A file of the mirror is missing or differs."""

    MIRROR_LOST_FILE = "mirror_lost_file"
    """A file that was in the mirror is missing there, and is copied again."""

    MIRROR_LACKS = "mirror_lacks"
    """The mirror of a finished run lacks files, which are copied again."""

    TASK_STARTED = "task_started"
    """A task of a cluster started, with `task`, `shard` and `node`."""

    TASK_FINISHED = "task_finished"
    """The shard of a task was committed, with `task`, `shard` and `node`."""

    TASK_FAILED = "task_failed"
    """A task failed, with `task`, `shard`, `node`, and a `Reason` as `reason`."""

    HASH_CONFLICT = "hash_conflict"
    """Two machines computed different bytes."""
