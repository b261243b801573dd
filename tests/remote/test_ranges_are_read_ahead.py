"""Promise: ranges that were announced are requested once, ahead, in little memory; whatever is
read, announced or not, has the bytes of the file."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from streamed_models import ServedFile
from waiting import HANGS_SECONDS, wait_until

from resumerge.errors import Reason, Resumable
from resumerge.remote import forecast, range_reader
from resumerge.remote.file import Response
from resumerge.remote.range_reader import RangeReader

PIECE, AHEAD = 1000, 4000
SIZE = 60_000


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (forecast, range_reader):
        monkeypatch.setattr(module, "REQUEST_BYTES", PIECE)
    monkeypatch.setattr(range_reader, "AHEAD_BYTES", AHEAD)


@pytest.fixture
def reader() -> Iterator[RangeReader]:
    reader = RangeReader()
    yield reader
    reader.close()


@pytest.fixture
def files(tmp_path: Path) -> list[ServedFile]:
    """Return two files, which share the count of the bytes that they send."""
    sent: Counter[str] = Counter()
    found = [ServedFile(tmp_path / name, sent) for name in "ab"]
    for number, file in enumerate(found):
        file.path.write_bytes(random.Random(number).randbytes(SIZE))
    return found


def sent(files: list[ServedFile]) -> int:
    return sum(files[0].sent.values())


def read(reader: RangeReader, file: ServedFile, start: int, stop: int) -> None:
    buffer = bytearray(stop - start)
    reader.fill(file, start, memoryview(buffer))  # type: ignore[arg-type]
    assert buffer == file.path.read_bytes()[start:stop]


def test_whatever_is_expected_and_read(files: list[ServedFile], soak: bool) -> None:
    """Several threads read random steps: some ranges only in part, and some not at all."""
    for seed in range(400 if soak else 40):
        draw = random.Random(seed)
        steps = []
        for _ in range(draw.randrange(1, 12)):
            places = [draw.randrange(SIZE) for _ in range(draw.randrange(1, 4))]
            steps.append(
                [(draw.choice(files), at, min(SIZE, at + draw.randrange(1, 3500))) for at in places]
            )
        reader = RangeReader()
        expected = reader.expect(steps, keep=draw.random() < 0.3)  # type: ignore[arg-type]
        wanted = [part for step in steps for part in step if draw.random() < 0.8]
        cut = [(file, start + draw.randrange(stop - start), stop) for file, start, stop in wanted]
        with ThreadPoolExecutor(3) as pool:
            for done in [pool.submit(read, reader, *part) for part in [*wanted, *cut]]:
                done.result(HANGS_SECONDS)
        reader.forget(expected)
        assert reader._held == 0
        reader.close()


def test_what_is_read_as_expected_is_requested_once(
    reader: RangeReader, files: list[ServedFile]
) -> None:
    """The bytes that two operands share, or a step and the next one, are requested once."""
    a, b = files
    steps = [
        [(a, at, at + 3000), (b, at, at + 3000), (a, at + 500, at + 3500)]
        for at in range(0, 30_000, 3000)
    ]
    expected = reader.expect(steps)  # type: ignore[arg-type]
    for step in steps:
        for part in step:
            read(reader, *part)
    assert sent(files) == 30_500 + 30_000 == sum(piece.nbytes for piece in expected)
    assert reader.bytes_received == sent(files) and reader._held == 0


@pytest.mark.parametrize("first", [300, 1000, 1700])
def test_what_a_step_has_in_common_with_the_one_before_is_requested_once(
    reader: RangeReader, files: list[ServedFile], first: int
) -> None:
    """The order of the two steps in the file does not matter."""
    steps = [[(files[0], 1000, 1600)], [(files[0], first, first + 900)]]
    reader.expect(steps)  # type: ignore[arg-type]
    for [part] in steps:
        read(reader, *part)
    assert sent(files) == len({*range(1000, 1600), *range(first, first + 900)})


def test_no_more_is_ahead_than_may_be(reader: RangeReader, files: list[ServedFile]) -> None:
    """Expected ranges arrive while nobody reads; an unexpected range is requested at once."""
    expected = reader.expect([[(files[0], 0, SIZE)]])  # type: ignore[arg-type]
    wait_until(lambda: sent(files) >= AHEAD)
    time.sleep(0.1)
    assert sent(files) == AHEAD
    read(reader, files[1], 100, 5000)
    assert sent(files) == AHEAD + 4900
    read(reader, files[0], 0, SIZE)
    assert sent(files) == SIZE + 4900
    reader.forget(expected)


def test_what_is_kept_is_requested_once(reader: RangeReader, files: list[ServedFile]) -> None:
    expected = reader.expect([[(file, 10, 3000) for file in files]], keep=True)  # type: ignore[arg-type]
    for start, stop in ((10, 200), (10, 3000), (1500, 1600), (10, 3000)):
        for file in files:
            read(reader, file, start, stop)
    assert sent(files) == 2 * 2990
    reader.forget(expected)
    read(reader, files[0], 10, 3000)
    assert sent(files) == 3 * 2990


def test_an_error_is_told_to_all_who_read(
    reader: RangeReader, files: list[ServedFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader whose response is late gets the error at once, too."""
    arrived, late = threading.Event(), threading.Event()
    real = ServedFile.request

    @contextmanager
    def request(self: ServedFile, start: int, stop: int | None = None) -> Iterator[Response]:
        if self is files[1]:
            arrived.set()
            late.wait()
        elif start == 0:
            arrived.wait()
            raise Resumable(Reason.SOURCE_CHANGED, "it is another object")
        with real(self, start, stop) as response:
            yield response

    monkeypatch.setattr(ServedFile, "request", request)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(read, reader, file, 0, 100) for file in reversed(files)]
        for told in waiting:
            with pytest.raises(Resumable, match="another object"):
                told.result(HANGS_SECONDS)
        late.set()


def test_what_is_forgotten_is_not_requested_any_more(
    reader: RangeReader, files: list[ServedFile]
) -> None:
    first = reader.expect([[(files[0], 0, SIZE)]])  # type: ignore[arg-type]
    read(reader, files[0], 0, PIECE)
    wait_until(lambda: sent(files) >= AHEAD + PIECE)
    reader.forget(first)
    reader.expect([[(files[1], 0, 3 * AHEAD)]])  # type: ignore[arg-type]
    read(reader, files[1], 0, 3 * AHEAD)
    assert sent(files) == 4 * AHEAD + PIECE
