"""A Ray cluster of machines with homes of their own, and merges on it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cluster_runs import CODE, SHARD_SIZE, ClusterRuns, RayCluster, recipe_in, state_of
from loopback_hub.hub import Hub
from merging import shards_of

import resumerge
from resumerge.methods import METHODS, load_methods


@pytest.fixture(scope="module")
def machine_env() -> dict[str, str]:
    """Return further variables of every machine; a test file may override this fixture."""
    return {}


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, machine_env: dict[str, str]
) -> Iterator[RayCluster]:
    """Yield a cluster for all tests of a file; every test finds at least two machines."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'resumerge[ray]'")
    folder = tmp_path_factory.mktemp("cluster")
    accidents = folder / "accidents"
    accidents.mkdir()
    hub = Hub(folder / "unused")
    hub.start()
    served = {name: value for name, value in hub.settings.items() if name != "HF_HOME"}
    env = {
        **served,
        "HF_HUB_OFFLINE": "0",
        "RESUMERGE_METHODS": str(CODE),
        "ACCIDENTS": str(accidents),
        "SLOWNESS": "0.02",
        "RAY_AUTH_MODE": "disabled",
        **machine_env,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")  # homes of their own have no common token
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        for table in ("_methods", "_origins"):  # other tests find what is built in
            patch.setattr(METHODS, table, dict(vars(METHODS)[table]))
        patch.setattr(METHODS, "_loaded", set())
        load_methods([CODE])
        cluster = RayCluster(folder, accidents, env, hub)
        cluster.start()
        try:
            cluster.add_machine()
            cluster.add_machine()
            ray.init(cluster.address, log_to_driver=False, logging_level="CRITICAL")
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()
            hub.stop()


@pytest.fixture(scope="module")
def runs(
    cluster: RayCluster, models: Path, tmp_path_factory: pytest.TempPathFactory
) -> ClusterRuns:
    plain = tmp_path_factory.mktemp("plain") / "model"
    resumerge.run(recipe_in(models), plain, state_dir=state_of(plain), shard_size=SHARD_SIZE)
    assert len(shards_of(plain)) == 4
    return ClusterRuns(models, cluster, plain)


@pytest.fixture(autouse=True)
def no_accident_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check that all accidents of a test have happened, and wake stopped workers."""
    yield
    if "cluster" in request.fixturenames:
        folder = request.getfixturevalue("cluster").accidents
        for path in folder.glob("taken-*-stop-*"):
            with suppress(ProcessLookupError):
                os.kill(int(path.name.rpartition("-")[2]), signal.SIGCONT)
        left = [path.name for path in folder.iterdir() if not path.name.startswith("taken")]
        for path in folder.iterdir():
            path.unlink()
        assert not left
