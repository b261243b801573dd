"""A Hub that takes no more files into a repo, once that promises one more shard than before."""

from __future__ import annotations

from loopback_hub import Hub
from loopback_hub.faults import Fault
from opened_snapshots import open_snapshot

from resumerge.mirror.names import snapshot_names


class NoMoreUploads(Fault):
    """Answer no more uploads, once a snapshot names a new shard; `reached`: one was not answered.

    Whoever mirrors to the repo is then in the middle of it, however long a test looks away. That a
    shard has come is not enough: a heartbeat may have committed it before the snapshot.

    Args:
        hub: that this goes wrong with from now on.
        repo: the mirror.
    """

    def __init__(self, hub: Hub, repo: str) -> None:
        super().__init__(f"/{repo}/preupload/", "POST", None, {}, stall_after=0)
        self._hub, self._repo, self.reached = hub, repo, False
        self._before = self._shards()
        hub.faults.append(self)

    def applies(self, method: str, path: str, file: str, kind: str) -> bool:
        """Whether a request is an upload that comes too late."""
        if not super().applies(method, path, file, kind) or self._shards() <= self._before:
            return False
        self.reached = True
        return True

    def end(self) -> None:
        """Answer as before."""
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
