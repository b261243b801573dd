"""Merges whose machines share nothing but a bucket."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from cluster_runs import SHARD_SIZE, ClusterRuns, recipe_in, state_of
from loopback_s3 import Bucket
from mirror_audit import check_mirror

import resumerge
from resumerge.mirror.stores.registry import open_store

MANIFEST = ".resumerge/done.json"


@dataclass
class BucketRun:
    """A merge on the cluster into a bucket.

    Args:
        out: the output folder on the driver's machine.
    """

    runs: ClusterRuns
    bucket: Bucket
    out: Path
    prefix: str = field(init=False)

    def __post_init__(self) -> None:
        self.prefix = re.sub("[^a-z0-9]+", "-", str(self.out).lower())[-60:].strip("-") + "/"

    @property
    def url(self) -> str:
        return f"{self.bucket.url}/{self.prefix}".removesuffix("/")

    def merge(self, **options: object) -> None:
        """Merge in this process, which is connected to the cluster."""
        given = {"ray": self.runs.cluster.address, "mirror": self.url, "mirror_then_delete": True}
        resumerge.run(
            recipe_in(self.runs.models),
            self.out,
            state_dir=state_of(self.out),
            shard_size=SHARD_SIZE,
            threads=1,
            **{**given, **options},  # type: ignore[arg-type]
        )

    def begin(self, *further: str, **env: str) -> subprocess.Popen[str]:
        """Start the merge in a process of its own."""
        mirror = ("--mirror", self.url, "--mirror-then-delete", "--no-supervise")
        return self.runs.begin(self.out, *mirror, *further, **env)

    def resume(self, *words: str, **env: str) -> subprocess.Popen[str]:
        given = ("--threads", "1", *words)
        return self.runs.command("resume", *given, **env)

    def files(self) -> dict[str, bytes]:
        return self.bucket.contents(self.prefix)

    def shards(self) -> set[str]:
        return {name for name in open_store(self.url).list() if name.endswith(".safetensors")}

    def check_finished(self) -> None:
        """Check that the bucket contains the model of one machine, and nothing else."""
        files = self.files()
        assert files.pop(MANIFEST)
        plain = {p.name: p.read_bytes() for p in self.runs.plain.iterdir() if p.is_file()}
        differ = {n for n in files.keys() & plain.keys() if files[n] != plain[n]}
        assert differ <= {"README.md"} and files.keys() == plain.keys()
        assert self.bucket.unfinished_uploads() == []
        found = check_mirror(open_store(self.url))
        assert (found.state, found.consistent) == ("finished", True), found.problems
        assert not self.out.exists() or not list(self.out.rglob("*.safetensors*"))
