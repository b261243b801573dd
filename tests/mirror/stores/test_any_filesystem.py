"""Promise: what a mirror's filesystem cannot do is found by trying, and done without."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from far_storage import FarStorage
from mirrored import KILLED, Bench

from resumerge.mirror.stores.capabilities import Capabilities, find_capabilities
from resumerge.storage import Storage

EVERYTHING = ("rename", "exclusive", "sync", "sync_folder", "extend")
LACKS = [
    ("sync", "sync_folder"),
    ("rename_over",),
    ("rename",),
    ("exclusive",),
    ("exclusive", "exclusive"),
    ("extend",),
    EVERYTHING,
]


@pytest.mark.parametrize("lacks", [(), *LACKS], ids="+".join)
def test_what_it_can_do_is_found(tmp_path: Path, lacks: tuple[str, ...]) -> None:
    found = find_capabilities(tmp_path, FarStorage(tmp_path, lacks=lacks))
    without_rename = {"rename_over"} if "rename" in lacks else set()
    can = {name: name not in {*lacks, *without_rename} for name in Capabilities.__annotations__}
    assert found == Capabilities(**can)
    assert list(tmp_path.iterdir()) == []


def test_a_filesystem_that_fails_now_is_not_taken_for_one_that_cannot(tmp_path: Path) -> None:
    for seed in range(20):
        try:
            found = find_capabilities(tmp_path, FarStorage(tmp_path, seed=seed, share=0.05))
        except OSError as error:
            assert "Input/output error" in str(error)
        else:
            assert found == Capabilities(True, True, True, True, True, True)


NOW = ["EIO", "ENOSPC", "EDQUOT", "EROFS", "ESTALE", "ENOTCONN", "ETIMEDOUT", "ECONNRESET",
       "ECONNABORTED", "EHOSTDOWN", "ENODEV", "ENXIO", "EMFILE", "ENFILE", "ENOMEM",
       "ENOENT"]  # fmt: skip
NEVER = ["EINVAL", "ENOTSUP", "ENOSYS", "EPERM", "EACCES", "ENOTTY"]


@pytest.mark.parametrize("name", [*NOW, *NEVER])
def test_an_error_about_the_present_says_nothing_of_what_it_can_do(
    tmp_path: Path, name: str
) -> None:
    class Failing(Storage):
        def sync_folder(self, path: Path) -> None:
            raise OSError(getattr(errno, name), name)

    if name in NOW:
        with pytest.raises(OSError, match=name):
            find_capabilities(tmp_path, Failing())
    else:
        found = find_capabilities(tmp_path, Failing())
        assert found == Capabilities(True, True, True, True, False, True)
    assert list(tmp_path.iterdir()) == []


def test_a_filesystem_that_pretends_is_found_out(tmp_path: Path) -> None:
    """The filesystem reports success for an operation that it has not done."""

    class CopiesOnRename(Storage):
        def replace(self, source: Path, target: Path) -> None:
            target.write_bytes(source.read_bytes())

    class LosesOnRename(Storage):
        def replace(self, source: Path, target: Path) -> None:
            source.unlink()
            target.touch()

    class Overwrites(Storage):
        def begin(self, path: Path, *, exclusive: bool = False) -> int:
            if exclusive and path.exists():
                path.write_bytes(b"")
                raise FileExistsError(path)
            return super().begin(path, exclusive=exclusive)

    class BeginsAnew(Storage):
        def open(self, path: Path) -> int:
            return super().begin(path)

    class Forgets(Storage):
        def write(self, fd: int, data: bytes | memoryview, offset: int) -> None:
            super().write(fd, b"?" * len(data), offset)

    def lacks(storage: Storage) -> set[str]:
        found = find_capabilities(tmp_path, storage)
        return {name for name in Capabilities.__annotations__ if not getattr(found, name)}

    assert lacks(Storage()) == set()
    assert lacks(CopiesOnRename()) == lacks(LosesOnRename()) == {"rename", "rename_over"}
    assert lacks(Overwrites()) == {"exclusive"}
    assert lacks(BeginsAnew()) == {"extend"}
    with pytest.raises(OSError, match="what was read differs from what was written"):
        lacks(Forgets())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("lacks", LACKS, ids="+".join)
def test_a_run_killed_now_and_then(
    bench: Bench, reference: dict[str, bytes], lacks: tuple[str, ...], soak: bool
) -> None:
    """The operations at which runs are killed differ from filesystem to filesystem."""
    calm = bench.merge()
    ended = calm.run(lacks)
    assert ended.code == 0, ended.stderr
    calm.assert_done(reference)
    first = LACKS.index(lacks) + 1
    numbers = range(7 * first, len(ended.kinds), 10 if soak else 50)
    writes = [n for n, kind in enumerate(ended.kinds, 1) if kind.startswith("write")]
    for mode, points in (("kill", numbers), ("torn", writes[first :: 1 if soak else 8])):
        for at in points:
            merge = bench.merge()
            assert merge.run(lacks, at=at, mode=mode).code in (KILLED, 0)
            assert merge.checked().consistent
            again = merge.resume(lacks)
            assert again.code == 0, again.stderr
            merge.assert_done(reference)


def test_killed_in_the_midst_of_the_first_snapshot(
    bench: Bench, reference: dict[str, bytes]
) -> None:
    calm, merge = bench.merge(), bench.merge()
    usual = merge.lease
    calm.lease = merge.lease = (
        "3600"  # a renewal in one of them, and its operations had others' numbers
    )
    kinds = calm.run(["rename"]).kinds
    (at,) = (n for n, kind in enumerate(kinds, 1) if kind.startswith("write ledger-000001-000001"))
    assert merge.run(["rename"], at=at, mode="torn").code == KILLED
    merge.lease = usual
    (half,) = (merge.mirror / ".resumerge").glob("ledger-*.db")
    assert half.stat().st_size > 0
    again = merge.resume(["rename"])
    assert again.code == 0, again.stderr
    merge.assert_done(reference)
