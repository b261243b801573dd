"""The floor of a merge: read every input once, write one output's bytes once, sync once.

``python -m benchmarks.floor OUT MODEL...`` prints the seconds. Nothing is computed, buffers are
reused, so no merge of these files on this machine is faster than this by much.
"""

from __future__ import annotations

import argparse
import mmap
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from benchmarks.models import safetensors_files

BLOCK_BYTES = 4 << 20  # read by one call
THREADS = 2
Block = tuple[int, int, "int | None"]  # file, offset in it, offset in the output if written


def floor_seconds(inputs: list[Path], out: Path, threads: int = THREADS) -> float:
    """Wall seconds to read all inputs and to write the bytes of the first one to ``out``.

    Args:
        inputs: model folders; the size of the output is that of the first.
        out: the file to write; replaced, and left in place.
        threads: how many threads read and write.
    """
    out.unlink(missing_ok=True)
    start = time.perf_counter()
    with ExitStack() as open_files:

        def opened(path: Path, flags: int) -> int:
            descriptor = os.open(path, flags, 0o644)
            open_files.callback(os.close, descriptor)
            return descriptor

        target = opened(out, os.O_WRONLY | os.O_CREAT)
        blocks = []
        for number, folder in enumerate(inputs):
            offset = 0
            for file in safetensors_files(folder):
                source = opened(file, os.O_RDONLY)
                length = file.stat().st_size
                write_at = offset if number == 0 else None
                blocks += list(_blocks(source, length, write_at))
                offset += length
        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(_copy, target, blocks[i::threads]) for i in range(threads)]:
                done.result()
        os.fdatasync(target)
    return time.perf_counter() - start


def _blocks(source: int, length: int, write_at: int | None) -> Iterator[Block]:
    for offset in range(0, length, BLOCK_BYTES):
        yield source, offset, None if write_at is None else write_at + offset


def _copy(target: int, blocks: list[Block]) -> None:
    """Read each block into one reused buffer; write those that belong to the output."""
    with mmap.mmap(-1, BLOCK_BYTES) as memory, memoryview(memory) as buffer:
        for source, offset, write_at in blocks:
            count = os.preadv(source, [buffer], offset)
            if write_at is None:
                continue
            written = 0
            while written < count:
                written += os.pwrite(target, buffer[written:count], write_at + written)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--threads", type=int, default=THREADS)
    options = parser.parse_args()
    print(f"{floor_seconds(options.models, options.out, options.threads):.3f}")


if __name__ == "__main__":
    main()
