"""A merge that is killed again and again while it downloads pays for no byte twice."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from loopback_hub import Hub
from merges import Place, layered, output

KILLS = 10


def test_killed_ten_times_while_it_downloads_and_merges(hub: Hub, tmp_path: Path) -> None:
    models = [layered(seed, numel=5_000_000) for seed in (1, 2)]
    for name, files in zip(("org/math", "org/code"), models):
        hub.commit(name, files)
    calm = Place(hub, tmp_path / "calm")
    calm.call("run", "merge.yaml", "out")
    needed = sum(hub.files_served().values())
    hub.forget_requests()

    hub.bytes_per_second = 16e6
    place = Place(hub, tmp_path / "killed")
    hub.sent = 0
    committed = []
    for kill in range(KILLS):
        process = place.start("run", "merge.yaml", "out")
        until = time.monotonic() + 120
        while hub.sent < needed * (kill + 1) / (KILLS + 1) and process.poll() is None:
            assert time.monotonic() < until
            time.sleep(0.005)
        assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGKILL)
        process.wait()
        committed.append(place.committed())
    hub.bytes_per_second = None
    place.call("resume")

    served = sum(hub.files_served().values())
    assert served < 1.02 * needed, (served, needed)
    assert output(place.folder / "out") == output(calm.folder / "out")
    assert committed == sorted(committed)
    assert committed[-1] > 0, "nothing was merged while files were arriving"
    print(f"served {served / needed:.4f} of what is needed; committed at the kills: {committed}")
