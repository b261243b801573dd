"""Promise: a run that is mirrored to a repo of the Hub is there to the byte, whatever happens.

Every commit is audited, as another machine would find it at that moment.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hub_merges import HubMerge
from loopback_hub import Hub, Shaky
from mirrored import KILLED, Bench, Driver, one_of_each_kind

WEIGHTS = """
import sys
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
other = AutoModelForCausalLM.from_pretrained(sys.argv[2])
for (name, mine), (_, theirs) in zip(model.named_parameters(), other.named_parameters()):
    assert mine.equal(theirs), name
print(sum(p.numel() for p in model.parameters()))
"""


@dataclass
class Machines:
    """A factory of merges, each with a repo of its own."""

    hub: Hub
    folder: Path
    driver: Driver
    models: Path

    def merge(self, name: str, **options: Any) -> HubMerge:
        return HubMerge(self.folder / name, self.driver, self.models, options=options, hub=self.hub)


@pytest.fixture
def machines(hub: Hub, bench: Bench, tmp_path: Path) -> Machines:
    return Machines(hub, tmp_path, bench._drivers[0], bench.models)


def test_the_model_is_there_and_loads(
    machines: Machines, reference: Mapping[str, bytes], tmp_path: Path
) -> None:
    machines.hub.tokens = {"hf_test": "write"}
    merge = machines.merge("calm")
    ended = merge.run()
    assert ended.code == 0, ended.stderr
    assert merge.mirrored() == reference
    assert merge.model() == reference
    merge.assert_consistent(tmp_path / "looks")
    shards = sum(name.endswith(".safetensors") for name in reference)
    lease, first, companions, done = 1, 1, 1, 1
    assert len(merge.commits) - 1 == lease + first + shards + companions + done
    assert machines.hub.repos[merge.repo].private
    everything = str(merge.rows("SELECT * FROM run")) + str(merge.rows("SELECT * FROM events"))
    everything += ended.stderr
    assert "hf_test" not in everything
    assert all(b"hf_test" not in blob.data for files in merge.commits for blob in files.values())
    loaded = subprocess.run(
        [sys.executable, "-c", WEIGHTS, merge.repo, merge.out],
        env=machines.hub.env(HF_HUB_OFFLINE="0", HF_TOKEN="hf_test"),
        capture_output=True,
        text=True,
    )
    assert loaded.returncode == 0, loaded.stderr
    assert int(loaded.stdout) > 10_000


def test_killed_at_requests_to_the_hub(
    machines: Machines, reference: Mapping[str, bytes], tmp_path: Path, soak: bool
) -> None:
    calm = machines.merge("calm")
    ended = calm.run()
    assert ended.code == 0, ended.stderr
    chosen = range(1, len(ended.kinds) + 1)
    changing = [n for n in chosen if not ended.kinds[n - 1].startswith("GET")]
    numbers = list(chosen) if soak else one_of_each_kind(ended.kinds, changing)
    print([ended.kinds[n - 1] for n in numbers])
    killed = 0
    for at in numbers:
        mode = "after" if at % 2 else "before"
        merge = machines.merge(f"{mode}-{at}")
        first = merge.run(at=at, mode=mode)
        assert first.code in (KILLED, 0), first.stderr
        killed += first.code == KILLED
        sent = machines.hub.received
        again = merge.resume()
        assert again.code == 0, again.stderr
        assert merge.mirrored() == reference
        assert merge.model() == reference
        merge.assert_consistent(tmp_path / "looks")
        if at > changing[len(changing) // 2]:
            # What was stored is not sent again: at most the shard that was on its way, and one
            # that was merged after the kill.
            lacking = sum(len(data) for name, data in reference.items() if "safetensors" in name)
            assert machines.hub.received - sent < lacking
    assert killed > 0.8 * len(numbers)


def test_faults_at_random(
    machines: Machines, reference: Mapping[str, bytes], tmp_path: Path, soak: bool
) -> None:
    """The run goes on, or stops and can be resumed; nothing is lost."""
    for seed in range(200 if soak else 1):
        machines.hub.shaky = Shaky(seed, share=0.12, match="org/")
        merge = machines.merge(f"shaky-{seed}", mirror_wait=5.0)
        ended = merge.run()
        for _ in range(20):
            if ended.code == 0:
                break
            assert ended.code == 75, ended.stderr
            ended = merge.resume()
        assert ended.code == 0, ended.stderr
        assert machines.hub.shaky.drawn
        assert merge.mirrored() == reference
        assert merge.model() == reference
        merge.assert_consistent(tmp_path / "looks")


def test_a_hub_that_takes_nothing_stops_the_run_when_all_is_merged(
    machines: Machines, reference: Mapping[str, bytes]
) -> None:
    hub = machines.hub
    hub.fail("/cdn/upload/", status=503, times=None)
    merge = machines.merge("full", mirror_wait=1.0)
    ended = merge.run()
    assert ended.code == 75, ended.stderr
    assert "HTTP 503" in ended.stderr
    assert "lacks 4 of 4 shards" in ended.stderr
    assert "mirror_failing" in merge.events()
    hub.faults.clear()
    again = merge.resume()
    assert again.code == 0, again.stderr
    assert merge.mirrored() == reference


def test_a_token_that_may_not_write_is_refused_before_anything_is_merged(
    machines: Machines,
) -> None:
    machines.hub.tokens = {"hf_test": "read"}
    merge = machines.merge("reader")
    ended = merge.run()
    assert ended.code == 2
    assert "hf auth login" in ended.stderr
    assert "hf_test" not in ended.stderr
    assert not list(merge.out.glob("*.safetensors*"))
    assert machines.hub.repos == {}
