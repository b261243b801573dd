"""The results of kernels as hashes, to compare processors: ``python -m fuzz.kernel_calls.hashes``.

Each function is called with random arguments that are right, by each instruction set that this
processor has. The results have to be the same. A line for each function says what they were: the
same on any processor. Seed and number decide on the arguments of a call.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from fuzz.kernel_calls.arguments import CONTENTS, Arguments, Files
from fuzz.kernel_calls.calls import CALLS, Draw
from resumerge.native import _kernels

OF_PROCESSORS = ("instruction_sets", "use")
"""Functions whose results depend on the processor by design."""


@dataclass(frozen=True)
class Hashes:
    """The hashes of what functions return and write.

    Attributes:
        seed: the seed of the draw.
        files: the descriptors to read from.
    """

    seed: str
    files: Files

    def of(self, function: Callable[..., Any], draw_arguments: Draw, number: int) -> bytes:
        """Return the hash of one call's results."""
        draw = Random(f"{self.seed} {name_of(function)} {number}")
        given = Arguments(draw, self.files, overlaps=False)
        result = function(*draw_arguments(given))
        found = hashlib.sha256(as_bytes(result))
        for part in given.results:
            found.update(as_bytes(part, any_nan=not any(part is out for out in given.outputs)))
        return found.digest()

    def compared(self, calls: int) -> Iterator[tuple[str, str]]:
        """Yield (name, hash of the results of some calls) of each function, ordered by name.

        Raises:
            AssertionError: instruction sets differ.
        """
        for name, (function, draw_arguments) in sorted(functions().items()):
            every = hashlib.sha256()
            for number in range(calls):
                found = {}
                for kernels in _kernels.instruction_sets():
                    _kernels.use(kernels)
                    found[kernels] = self.of(function, draw_arguments, number)
                assert len(set(found.values())) == 1, (
                    f"FOUND by call {number} of {name}, seed {self.seed}: "
                    f"{' and '.join(found)} do not agree"
                )
                every.update(found.popitem()[1])
            yield name, every.hexdigest()


def hashes(seed: str, calls: int) -> Iterator[tuple[str, str]]:
    """Yield a hash of what all arguments are made of, then what `Hashes.compared` yields."""
    yield "(contents)", hashlib.sha256(b"".join(CONTENTS)).hexdigest()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        yield from Hashes(seed, Files(Path(folder))).compared(calls)


def functions() -> dict[str, tuple[Callable[..., Any], Draw]]:
    """Return the functions and what draws their arguments, by name."""
    found = {name_of(function): (function, draw) for function, draw in CALLS}
    return {name: each for name, each in found.items() if name not in OF_PROCESSORS}


def name_of(function: Callable[..., Any]) -> str:
    """Return the function's name, or that of the attribute that it reads."""
    of = getattr(function, "__self__", None)
    return str(getattr(of, "__qualname__", "") or function.__qualname__)


def as_bytes(part: object, *, any_nan: bool = True) -> bytes:
    """Return the bytes of a result.

    Args:
        part: what a function returned, or an array that it wrote to.
        any_nan: whether all NaN count as the same: only in what is stored are the sign and the
                payload the same on every processor.
    """
    if isinstance(part, (list, tuple)):
        return b"(" + b",".join(map(as_bytes, part)) + b")"
    if isinstance(part, float):
        return part.hex().encode()
    if part is None or isinstance(part, int):
        return repr(part).encode()
    if isinstance(part, _kernels.Vector):
        return f"{len(part)} {part.dtype}".encode()
    array = np.array(memoryview(part))  # type: ignore[arg-type]
    if any_nan and array.dtype.kind == "f":
        array[np.isnan(array)] = np.nan
    return array.tobytes()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="fuzz.kernel_calls.hashes", description=__doc__)
    parser.add_argument("--calls", type=int, default=1000, help="of each function (1000)")
    parser.add_argument("--seed", default="0", help="of the draw (0)")
    given = parser.parse_args(arguments)
    try:
        for name, found in hashes(given.seed, given.calls):
            print(f"{name:32} {found}", flush=True)
    except AssertionError as different:
        print(different)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
