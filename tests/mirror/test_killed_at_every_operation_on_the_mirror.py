"""Promise: killed at any operation on its mirror, a run leaves the mirror consistent, and goes on.

The mirror is looked at by a stranger after every single operation of every process here.
"""

from __future__ import annotations

import pytest
from mirrored import KILLED, Bench, Merge


@pytest.mark.parametrize("mode", ["kill", "torn"])
def test_killed_at_every_operation(bench: Bench, reference: dict[str, bytes], mode: str) -> None:
    calm = bench.merge()
    ended = calm.run()
    assert ended.code == 0, ended.stderr
    calm.assert_done(reference)
    assert calm.model() == reference
    operations = [
        number
        for number, kind in enumerate(ended.kinds, 1)
        if mode == "kill" or kind.startswith("write")
    ]
    killed = []

    def check(merge: Merge, at: int) -> None:
        first = merge.run(at=at, mode=mode)
        assert first.code in (KILLED, 0), first.stderr
        killed.append(first.code == KILLED)
        assert merge.checked().consistent
        again = merge.resume()
        assert again.code == 0, again.stderr
        merge.assert_done(reference)
        assert merge.model() == reference

    bench.each(operations, check)
    print(f"killed at {sum(killed)} of {len(operations)} operations")
    assert sum(killed) > 0.9 * len(operations)
