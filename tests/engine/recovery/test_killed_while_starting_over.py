"""Promise: `--restart` may be killed anywhere too; what was begun is given up, or goes on."""

from __future__ import annotations

import pytest
from crashing import KILLED, RECIPE, Bench, Merge

OTHER = RECIPE.replace("density: 0.5", "density: 0.7")


@pytest.mark.parametrize("mode", ["kill", "power"])
def test_killed_while_starting_over(
    bench: Bench, reference: dict[str, bytes], operations: int, mode: str
) -> None:
    _, other = bench.calm(OTHER)
    crashed = []

    def check(merge: Merge, at: int) -> None:
        merge.run(operations * 3 // 4)
        merge.config.write_text(OTHER)
        ended = merge.run(at, mode, restart=True)
        assert ended.code in (KILLED, 0), ended.stderr
        crashed.append(ended.code == KILLED)
        for name, data in merge.files().items():
            if not name.endswith(".partial"):
                assert data in (reference[name], other[name])
        again = merge.run()
        if again.code == 2:
            assert "changed since the run was created" in again.stderr
            again = merge.run(restart=True)
        assert again.code == 0, again.stderr
        merge.assert_done(other)

    bench.each([*range(1, 18), *range(18, 60, 7)], check)
    print(f"killed at {sum(crashed)} operations")
    assert sum(crashed) > 20
