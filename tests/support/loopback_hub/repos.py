"""The contents of the Hub: repos, their commits, and the contents of files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property

LFS_SUFFIXES = (".safetensors", ".bin", ".onnx", ".gguf")
GITATTRIBUTES = b"".join(b"*%s filter=lfs\n" % s.encode() for s in LFS_SUFFIXES)
"""The first file of every repo that a client creates."""


@dataclass(frozen=True)
class Blob:
    """The content of one file, and its names on the Hub."""

    data: bytes
    lfs: bool

    @cached_property
    def blob_id(self) -> str:
        return hashlib.sha1(b"blob %d\0" % len(self.data) + self.data).hexdigest()

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.blob_id

    @cached_property
    def cdn_etag(self) -> str:
        """The ETag of the CDN, which differs from that of the Hub, as in reality."""
        return hashlib.md5(self.data).hexdigest()


@dataclass
class Repo:
    """A repo with its commits and branches.

    Args:
        commits: the files of each commit, in the order in which they were made.
        branches: the commit of each branch.
        private: whether clients without permission get the answer that there is no such repo.
    """

    commits: dict[str, dict[str, Blob]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    private: bool = False

    def add(self, name: str, files: dict[str, Blob], branch: str = "main") -> str:
        """Add a commit of exactly `files`, move the branch to it, and return its id."""
        text = json.dumps([name, len(self.commits), {n: b.etag for n, b in files.items()}])
        commit = hashlib.sha1(text.encode()).hexdigest()
        self.commits[commit] = files
        self.branches[branch] = commit
        return commit

    def files(self, branch: str = "main") -> dict[str, Blob]:
        """Return the current files of a branch."""
        return self.commits[self.branches[branch]]
