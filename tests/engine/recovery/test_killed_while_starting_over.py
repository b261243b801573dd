"""Promise: a `--restart` may be killed anywhere: it can be repeated, or its run continues."""

from __future__ import annotations

import pytest
from crashing import KILLED, RECIPE, Bench, Merge

OTHER = RECIPE.replace("density: 0.5", "density: 0.7")


@pytest.mark.parametrize("mode", ["kill", "power"])
def test_killed_while_starting_over(
    bench: Bench, reference: dict[str, bytes], operations: int, mode: str, soak: bool
) -> None:
    _, other = bench.calm(OTHER)

    def prepare(merge: Merge) -> None:
        assert merge.run(operations * 3 // 4).code == KILLED
        merge.config.write_text(OTHER)

    def check(merge: Merge) -> None:
        for name, data in merge.files().items():
            if not name.endswith(".partial"):
                assert data in (reference[name], other[name])
        again = merge.run()
        if again.code == 2:
            assert "changed since the run was created" in again.stderr
            again = merge.run(restart=True)
        assert again.code == 0, again.stderr
        merge.assert_done(other)

    points = range(1, 60) if soak else [*range(1, 18, 2), *range(18, 60, 10)]
    assert bench.each_state(points, check, mode, prepare=prepare, restart=True) > 10
