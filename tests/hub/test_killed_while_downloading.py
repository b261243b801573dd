"""A merge that is killed again and again while it downloads pays for no byte twice."""

from __future__ import annotations

import signal
from pathlib import Path

from loopback_hub import Hub
from loopback_sockets import bytes_on_the_way
from merges import Place, layered, output
from waiting import wait_until

KILLS = 4


def test_killed_again_and_again_while_it_downloads_and_merges(hub: Hub, tmp_path: Path) -> None:
    models = [layered(seed, numel=2_000_000) for seed in (1, 2)]
    for name, files in zip(("org/math", "org/code"), models):
        hub.commit(name, files)
    calm = Place(hub, tmp_path / "calm")
    calm.call("run", "merge.yaml", "out")
    needed = sum(hub.files_served().values())
    hub.forget_requests()

    place = Place(hub, tmp_path / "killed")
    committed = []
    for kill in range(KILLS):
        hub.allowance.give(needed // (KILLS + 1))
        process = place.start("run", "merge.yaml", "out")
        wait_until(hub.allowance.is_spent, process)
        wait_until(lambda: not bytes_on_the_way(hub.url), process)
        wait_until(lambda kill=kill: kill + 1 < KILLS or place.committed(), process)
        process.send_signal(signal.SIGKILL)
        process.wait()
        committed.append(place.committed())
    hub.allowance.give(None)
    place.call("resume")

    served = sum(hub.files_served().values())
    assert served < 1.02 * needed, (served, needed)
    assert output(place.folder / "out") == output(calm.folder / "out")
    assert committed == sorted(committed)
    print(f"served {served / needed:.4f} of what is needed; committed at the kills: {committed}")
