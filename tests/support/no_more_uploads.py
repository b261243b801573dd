"""A Hub that answers no uploads into a repo once that promises one more shard than before."""

from __future__ import annotations

from loopback_hub import Hub
from loopback_hub.faults import Fault
from opened_snapshots import open_snapshot

from resumerge.mirror.names import snapshot_names


class NoMoreUploads(Fault):
    """A fault that leaves uploads unanswered once a snapshot names a new shard.

    A run that mirrors to the repo then stays in the middle of it, however long a test takes. A new
    shard in the repo is not enough: a heartbeat may have committed it before the snapshot.

    Args:
        hub: the Hub, which has this fault from now on.
        repo: the repo of the mirror.

    Attributes:
        reached: whether an upload was left unanswered.
    """

    def __init__(self, hub: Hub, repo: str) -> None:
        super().__init__(f"/{repo}/preupload/", "POST", None, {}, stall_after=0)
        self._hub, self._repo, self.reached = hub, repo, False
        self._before = self._shards()
        hub.faults.append(self)

    def applies(self, method: str, path: str, file: str, kind: str) -> bool:
        """Return whether a request is an upload that comes too late."""
        if not super().applies(method, path, file, kind) or self._shards() <= self._before:
            return False
        self.reached = True
        return True

    def end(self) -> None:
        """Have the Hub answer as before."""
        self._hub.faults.remove(self)

    def _shards(self) -> int:
        """Count the shards that the newest snapshot names."""
        repo = self._hub.repos.get(self._repo)
        commits = list(repo.commits.values()) if repo else []
        files = commits[-1] if commits else {}
        for snapshot in snapshot_names(files)[:1]:
            with open_snapshot(files[snapshot.name].data) as ledger:
                return len(ledger.mirrored.checksums())
        return 0
