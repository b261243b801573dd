"""Merges whose mirrors are repos of the Hub."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loopback_hub import Blob, Hub
from mirror_audit import check_mirror
from mirrored import Ended, Merge
from plain_folder import PlainFolder


@dataclass
class HubMerge(Merge):
    """A merge whose mirror is a repo."""

    hub: Hub = field(kw_only=True)
    token: str = "hf_test"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.repo = f"org/merge-{self.folder.name}"
        self.options["mirror"] = f"hf://{self.repo}"

    def _work(self, command: str, lacks: Any, far: dict[str, Any]) -> Ended:
        env = {**self.hub.settings, "HF_HUB_OFFLINE": "0", "HF_TOKEN": self.token}
        env["RESUMERGE_LEASE_SECONDS"] = "600"  # no beat in between
        return self.driver.work(
            command=command,
            env=env,
            far=far,
            log=self.folder / "log.json",
            stderr=self.folder / "stderr",
            models=self.models,
            config=self.config,
            out=self.out,
            state=self.state,
            options=self.options,
        )

    @property
    def commits(self) -> list[dict[str, Blob]]:
        repo = self.hub.repos.get(self.repo)
        return list(repo.commits.values()) if repo else []

    def assert_consistent(self, folder: Path) -> None:
        """Assert that each commit is consistent, and that the mirror's state never goes back."""
        order, state = ["empty", "unfinished", "finished"], "empty"
        for number, files in enumerate(self.commits):
            (folder / self.folder.name).mkdir(parents=True, exist_ok=True)
            store = PlainFolder(folder / self.folder.name / str(number))
            for name, blob in files.items():
                store.put({name: blob.data})
            found = check_mirror(store)
            assert found.problems == {}
            assert order.index(found.state) >= order.index(state)
            state = found.state

    def mirrored(self) -> dict[str, bytes]:
        found = self.hub.contents(self.repo)
        found.pop(".resumerge/done.json")
        return found
