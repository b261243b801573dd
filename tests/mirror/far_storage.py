"""The operations that change a mirror in a folder: counted, spoiled, and looked at after each."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from mirror_audit import check_mirror
from small_disks import fill

from resumerge.mirror.stores import folder as folder_module
from resumerge.mirror.stores.folder import FolderStore
from resumerge.storage import Storage

INCONSISTENT = 99
"""Exit code of a process that found its mirror inconsistent."""

ACCIDENTS: dict[str, Callable[[Path], object]] = {
    "full": lambda disk: fill(disk / "ballast"),
    "read-only": lambda disk: subprocess.run(["mount", "-o", "remount,ro", disk], check=True),
    "taken away": lambda mirror: mirror.rename(mirror.with_name("aside")),
    "deleted": Path.unlink,
}
"""What somebody does to a mirror, or its disk, in the midst of a run."""

STATES = ["empty", "unfinished", "finished"]
T = TypeVar("T")


class FarStorage(Storage):
    """A storage with chosen faults, which audits the mirror after every operation."""

    def __init__(
        self,
        mirror: Path,
        *,
        at: int | None = None,
        mode: str = "kill",
        seed: int = 0,
        share: float = 0.0,
        lacks: tuple[str, ...] = (),
        accident: tuple[str, ...] = (),
        watched: bool = True,
        ignores_exclusive: bool = False,
    ) -> None:
        """
        Args:
            at: number of an operation, from 1.
            mode: ``kill`` before it, or in the midst of it where it writes (``torn``).
            seed: the seed that chooses the operations that fail.
            share: the share of operations that fail for now.
            lacks: what the filesystem cannot do: ``rename``, ``rename_over``, ``exclusive``,
                ``sync``, ``sync_folder``, ``extend``.
            accident: one of `ACCIDENTS` and its place: it happens when the third shard is begun.
            watched: the mirror has to be consistent after every operation; not where the test
                itself removes something.
            ignores_exclusive: an exclusive create is done as any other.
        """
        self.ignores_exclusive = ignores_exclusive
        self.mirror, self.at, self.mode, self.lacks = mirror, at, mode, lacks
        self.accident = accident
        self.watched, self.share, self.draw = watched, share, random.Random(seed)
        self.kinds: list[str] = []
        self.failed = self.checks = 0
        self._guard = threading.RLock()
        self._state = "empty"

    def install(self) -> None:
        """Have every mirror in a folder use this storage, and fail in reading too."""
        folder_module.Storage = lambda: self  # type: ignore[assignment,misc]
        for name in ("list", "get", "sha256"):
            setattr(FolderStore, name, self._unreliable(getattr(FolderStore, name)))

    # Operations

    def begin(self, path: Path, *, exclusive: bool = False) -> int:
        if exclusive and "exclusive" in self.lacks:
            raise OSError(errno.EPERM, "no exclusive create here")
        how = exclusive and not self.ignores_exclusive
        return self._do("begin", path, lambda: super(FarStorage, self).begin(path, exclusive=how))

    def open(self, path: Path) -> int:
        self._refuse("extend")
        return super().open(path)

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()

        def torn() -> None:
            super(FarStorage, self).write(fd, data[: len(data) // 2], offset)

        self._do("write", path, lambda: super(FarStorage, self).write(fd, data, offset), torn)

    def sync_data(self, fd: int) -> None:
        self._refuse("sync")
        path = Path(f"/proc/self/fd/{fd}").readlink()
        self._do("sync", path, lambda: super(FarStorage, self).sync_data(fd))

    def sync_folder(self, path: Path) -> None:
        self._refuse("sync_folder")
        self._do("sync folder", path, lambda: super(FarStorage, self).sync_folder(path))

    def replace(self, source: Path, target: Path) -> None:
        self._refuse("rename")
        if target.exists():
            self._refuse("rename_over")
        self._do("replace", target, lambda: super(FarStorage, self).replace(source, target))

    def remove(self, path: Path) -> None:
        if path.exists():
            self._do("remove", path, lambda: super(FarStorage, self).remove(path))

    def add_folder(self, path: Path) -> None:
        if not path.is_dir():
            self._do("add folder", path, lambda: super(FarStorage, self).add_folder(path))

    # What is done to them

    def _refuse(self, ability: str) -> None:
        if ability in self.lacks:
            raise OSError(errno.EOPNOTSUPP, f"no {ability} here")

    def _do(
        self, kind: str, path: Path, do: Callable[[], T], torn: Callable[[], None] | None = None
    ) -> T:
        with self._guard:
            self.kinds.append(f"{kind} {path.name}")
            if self.accident and self.kinds[-1].startswith("begin model-00003"):
                (what, where), self.accident = self.accident, ()
                ACCIDENTS[what](Path(where))
            if len(self.kinds) == self.at:
                if self.mode == "torn" and torn is not None:
                    torn()
                    self.check()
                os.kill(os.getpid(), signal.SIGKILL)
            self._fail_maybe(path)
            done = do()
            self.check()
            return done

    def _fail_maybe(self, path: Path) -> None:
        if self.draw.random() < self.share:
            self.failed += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    def _unreliable(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(store: FolderStore, *args: Any) -> Any:
            if threading.current_thread() is not self._checking:
                with self._guard:
                    self._fail_maybe(store.folder)
            return method(store, *args)

        return wrapped

    _checking: threading.Thread | None = None

    def check(self) -> None:
        """Audit the mirror, and end the process if it is not consistent."""
        if not self.watched:
            return
        self._checking = threading.current_thread()
        found = check_mirror(FolderStore(self.mirror, Storage()))
        self._checking = None
        self.checks += 1
        back = STATES.index(found.state) < STATES.index(self._state)
        if back or not found.consistent:
            told = {"kinds": self.kinds[-20:], "problems": dict(found.problems)}
            print(json.dumps({**told, "before": self._state, "now": found.state}), flush=True)
            os._exit(INCONSISTENT)
        self._state = found.state
