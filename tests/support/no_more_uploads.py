"""A Hub that takes no more files into a repo, once that has one more shard than before."""

from __future__ import annotations

import re

from loopback_hub import Hub
from loopback_hub.faults import Fault


class NoMoreUploads(Fault):
    """Answer no more uploads, once a shard has come; `reached` says that one was not answered.

    Whoever mirrors to the repo is then in the middle of it, however long a test looks away.

    Args:
        hub: that this goes wrong with from now on.
        repo: the mirror.
    """

    def __init__(self, hub: Hub, repo: str) -> None:
        super().__init__("/preupload/", "POST", None, {}, stall_after=0)
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
        repo = self._hub.repos.get(self._repo)
        commits = list(repo.commits.values()) if repo else []
        names = commits[-1] if commits else {}
        return sum(bool(re.fullmatch(r"model-.*\.safetensors", name)) for name in names)
