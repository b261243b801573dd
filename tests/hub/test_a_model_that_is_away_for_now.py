"""Promise: a run that has begun, and cannot reach a model, stops so that it can be resumed."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from hub_models import ref, shard, single
from loopback_hub import Hub
from merges import COPIES, Place, layered, output
from waiting import wait_until

from resumerge.errors import InputError
from resumerge.sources.remote.files import fetch
from resumerge.sources.remote.hub import open_hub_model


def test_access_lost_between_two_attempts(hub: Hub, tmp_path: Path) -> None:
    for number, name in enumerate(("org/math", "org/code")):
        hub.commit(name, layered(number))
    calm = Place(hub, tmp_path / "calm", COPIES)
    calm.call("run", "merge.yaml", "out")
    place = Place(hub, tmp_path / "place", COPIES)
    place.call("plan", "merge.yaml")
    hub.fail(shard(8, 8), stall_after=1000, times=None)
    process = place.start("run", "merge.yaml", "out")
    wait_until(place.committed, process)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    hub.faults.clear()

    for status, code in ((401, None), (403, "GatedRepo"), (404, "RepoNotFound")):
        hub.fail(status=status, code=code, times=None)
        ended = place.call("resume", "--json", expect=75)
        last = json.loads(ended.stdout.splitlines()[-1])
        assert (last["kind"], last["reason"]) == ("error", "source_unavailable")
        assert f"HTTP {status}" in last["message"]
        assert "could be read when the run was created" in last["message"]
        assert ended.stderr.splitlines()[-1] == last["resume"]
        assert last["resume"].startswith("resumerge resume out-")
        hub.faults.clear()

    place.call("resume")
    assert output(place.folder / "out") == output(calm.folder / "out")


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_cached_commit_needs_no_access(hub: Hub, status: int) -> None:
    hub.commit("org/model", single())
    source = open_hub_model(ref("org/model"))
    fetch(source, source.files)
    hub.fail(status=status, times=None)
    assert (
        open_hub_model(ref("org/model"), revision=source.revision).identity() == source.identity()
    )
    with pytest.raises(InputError):
        open_hub_model(ref("org/model"))
