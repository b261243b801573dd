"""Promise: a named device is used or refused; limits are raised where possible, else reported."""

from __future__ import annotations

import errno
import os
import resource
import sqlite3
from collections.abc import Callable, Iterator
from itertools import count, islice

import pytest

from resumerge.engine.resources import allocation_errors, allocator, open_files
from resumerge.engine.resources.allocation_errors import check_address_space, out_of_memory
from resumerge.engine.resources.device import resolve_device
from resumerge.engine.resources.resource_errors import as_resumable
from resumerge.errors import InputError
from resumerge.planning.estimates.memory import REUSED

# The device


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    torch = pytest.importorskip("torch")
    return lambda count: monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


@pytest.mark.parametrize(
    ("count", "asked", "found"),
    [
        (0, "cpu", "cpu"),
        (2, "cpu", "cpu"),
        (0, "auto", "cpu"),
        (1, "auto", "cuda"),
        (1, "cuda", "cuda"),
        (1, "cuda:0", "cuda:0"),
        (2, "cuda:1", "cuda:1"),
    ],
)
def test_a_device_that_is_here_is_used(
    gpus: Callable[[int], None], count: int, asked: str, found: str
) -> None:
    gpus(count)
    assert resolve_device(asked) == found


@pytest.mark.parametrize(("count", "asked"), [(0, "cuda"), (0, "cuda:0"), (1, "cuda:1")])
def test_a_device_that_is_not_here_is_refused(
    gpus: Callable[[int], None], count: int, asked: str
) -> None:
    gpus(count)
    expected = "one of 1 CUDA devices" if count else "for lack of a CUDA device"
    with pytest.raises(InputError, match=f"does not have the device(.|\n)*{expected}"):
        resolve_device(asked)


@pytest.mark.parametrize(
    "asked",
    ["", "gpu", "CUDA", "cuda:", "cuda:x", "cuda:-1", "cuda:0:1", "auto:", "auto:0", "cpu:0"],
)
def test_what_is_no_device_is_told_apart(gpus: Callable[[int], None], asked: str) -> None:
    gpus(8)
    with pytest.raises(InputError, match="Unknown device"):
        resolve_device(asked)


# Open files


@pytest.fixture
def few_files() -> Iterator[Callable[[int], None]]:
    """Yield a function that limits the open files of this process until the test ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield lambda count: resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_more_files_may_be_open_and_what_was_allowed_stays_allowed(
    few_files: Callable[[int], None],
) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    few_files(256)
    open_files.allow_many_open_files()
    most = 1 << 16 if hard == resource.RLIM_INFINITY else min(hard, 1 << 16)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, hard)
    if hard == resource.RLIM_INFINITY or hard > most:
        few_files(most + 1)
        open_files.allow_many_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most + 1, hard)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files_are_told(few_files: Callable[[int], None], number: int) -> None:
    few_files(256)
    found = as_resumable(OSError(number, "Too many open files"), "try again")
    assert found.reason == "open_files"
    assert "this process may open 256" in str(found) and "then try again" in str(found)


def test_a_ledger_that_cannot_be_opened_may_lack_files(few_files: Callable[[int], None]) -> None:
    """SQLite gives no reason, so the program tests whether enough files can be opened."""
    error = sqlite3.OperationalError("unable to open database file")
    for free, reason in [(12, "io"), (11, "open_files"), (12, "io")]:
        few_files(limit_that_leaves(free))
        assert as_resumable(error).reason == reason, "and what was tried is closed again"


def limit_that_leaves(free: int) -> int:
    """Return the limit with which so many more files can be opened."""
    numbers = (number for number in count() if not is_open(number))
    return next(islice(numbers, free - 1, None)) + 1


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


# Memory


def test_memory_that_a_disk_lacks_is_memory() -> None:
    assert as_resumable(OSError(errno.ENOMEM, "Cannot allocate memory")).reason == "memory"


def test_of_a_long_reason_the_first_line_is_told() -> None:
    assert "one" in str(out_of_memory(RuntimeError("one\ntwo")))
    assert "two" not in str(out_of_memory(RuntimeError("one\ntwo")))
    assert "(one)" in str(out_of_memory(RuntimeError("\n one\ntwo")))


@pytest.mark.parametrize(
    ("limit", "is_enough"), [(None, True), (1 << 28, True), (200 << 20, False)]
)
def test_an_address_space_that_holds_no_library_is_refused(
    monkeypatch: pytest.MonkeyPatch, limit: int | None, is_enough: bool
) -> None:
    monkeypatch.setattr(allocation_errors, "address_space_limit", lambda: limit)
    if is_enough:
        check_address_space()
        return
    with pytest.raises(InputError, match=r"address space(.|\n)*210 MB"):
        check_address_space()
    assert "ulimit -v" in str(out_of_memory(MemoryError()))


@pytest.mark.parametrize("limit", [None, 1 << 30])
def test_freed_memory_is_kept_for_the_next_block_within_the_address_space(
    monkeypatch: pytest.MonkeyPatch, limit: int | None
) -> None:
    """An arena of each thread would take 64 MiB of the address space."""
    set_: dict[int, int] = {}
    monkeypatch.setattr(allocator, "libc", {"mallopt": set_.__setitem__}.get)
    monkeypatch.setattr(allocator, "address_space_limit", lambda: limit)
    allocator.reuse_freed_memory()
    trim, mmap, arenas = -1, -3, -8  # glibc's malloc.h
    assert set_ == {trim: REUSED, mmap: REUSED, **({} if limit is None else {arenas: 1})}


def test_another_c_library_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "libc", {}.get)
    allocator.reuse_freed_memory()
    allocator.give_back_freed_memory()
