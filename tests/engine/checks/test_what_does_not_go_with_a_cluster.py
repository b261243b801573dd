"""Promise: what cannot be computed on a Ray cluster is refused before anything is written."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_models import LLAMA, write_family

import resumerge
from resumerge.engine.checks import cluster, disk
from resumerge.engine.shards.shard_files import TASKS
from resumerge.errors import InputError
from resumerge.host.machine import FREE_FOR_COMPANIONS
from resumerge.mirror.stores.folder import FolderStore
from resumerge.mirror.stores.hub import HubStore
from resumerge.options import Options
from resumerge.options.cluster import read_task_resources

LINEAR = """
merge_method: linear
models: [{{model: {0}/math}}, {{model: {0}/code}}]
parameters: {{weight: 1}}
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("models"), LLAMA)


@pytest.fixture
def refused(models: Path, tmp_path: Path) -> Callable[..., str]:
    def run(out: str = "out", **options: Any) -> str:
        config = tmp_path / "recipe.yaml"
        config.write_text(LINEAR.format(models))
        with pytest.raises(InputError) as error:
            resumerge.run(config, tmp_path / out, state_dir=tmp_path / "state", **options)
        assert not (tmp_path / out).exists() and not (tmp_path / "state").exists()
        return str(error.value)

    return run


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ray": "local", "evict": True}, "ray and evict=True cannot be combined"),
        ({"ray_resources": "num_gpus=1"}, "ray_resources needs ray"),
        ({"ray": "recipe.yaml"}, "HOST:PORT, auto or local"),
        ({"ray": "ray://10.0.0.1:10001"}, "HOST:PORT, auto or local"),
        ({"ray": "local", "ray_resources": "gpu"}, "NAME=N"),
        ({"ray": "local", "ray_resources": "num_cpus=2"}, "processors of a task are threads"),
        ({"ray": "local", "ray_resources": "memory=1e9"}, "memory of a task is memory"),
    ],
)
def test_options_that_do_not_go_together(
    refused: Callable[..., str], options: dict[str, Any], said: str
) -> None:
    assert said in refused(**options)


@pytest.mark.parametrize(
    ("mirror", "said"),
    [
        ("{}/mirror", "one that all machines share can be OUT itself"),
        ("hf://org/name", "allows too few commits"),
    ],
)
def test_a_mirror_that_tasks_cannot_put_shards_into(
    refused: Callable[..., str],
    tmp_path: Path,
    mirror: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HubStore, "open", lambda address, **how: FolderStore(tmp_path / "x"))
    given = {"mirror": mirror.format(tmp_path), "mirror_then_delete": True}
    told = refused(ray="local", **given)
    assert "ray and mirror_then_delete=True need a mirror in a bucket" in told and said in told


def test_the_driver_of_tasks_in_a_bucket_needs_no_space_for_a_shard(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "recipe.yaml"
    config.write_text(LINEAR.format(models))
    monkeypatch.setattr(cluster, "find_spec", lambda name: True)
    monkeypatch.setattr(disk, "free_bytes", lambda path: FREE_FOR_COMPANIONS)
    for ray, said in ((None, ["The disk is too small for the largest shard"]), ("local", [])):
        problems = resumerge.plan(
            config, tmp_path / "out", ray=ray, mirror="s3://bucket/x", mirror_then_delete=True
        )["problems"]
        assert [problem["what"] for problem in problems] == said


def test_a_file_where_tasks_have_their_folder(models: Path, tmp_path: Path) -> None:
    config, out = tmp_path / "recipe.yaml", tmp_path / "out"
    config.write_text(LINEAR.format(models))
    out.mkdir()
    (out / TASKS).touch()
    with pytest.raises(InputError, match="Cannot create the tasks' folder") as refused:
        resumerge.run(config, out, state_dir=tmp_path / "state", ray="local")
    assert str(out / TASKS) in str(refused.value) and "move it away" in str(refused.value)
    assert [*out.iterdir()] == [out / TASKS] and not (tmp_path / "state").exists()


def test_a_disk_that_is_too_small(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message recommends only options that can be combined with --ray."""
    monkeypatch.setattr(disk, "free_bytes", lambda path: 0)
    assert "mirror_then_delete=True" in refused()
    said = refused(ray="local")
    assert "too small for the output" in said and "mirror_then_delete" not in said


def test_a_recipe_that_stands_where_the_address_would(tmp_path: Path) -> None:
    words = ["run", "--ray", "recipe.yaml", "out"]
    merging = subprocess.run(
        [sys.executable, "-m", "resumerge", *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert merging.returncode == 2 and not [*tmp_path.iterdir()]
    assert "'recipe.yaml' is not the address of a Ray cluster" in merging.stderr
    assert "or write --ray local" in merging.stderr


def test_a_cluster_that_nobody_hears_from(refused: Callable[..., str]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        said = refused(ray=address)
    assert "The Ray cluster cannot be reached" in said and address in said


def test_without_ray(refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(cluster, "find_spec", lambda name: None if name == "ray" else find(name))
    assert "pip install 'resumerge[ray]'" in refused(ray="local")


def test_a_single_file(models: Path, tmp_path: Path) -> None:
    config = tmp_path / "recipe.yaml"
    files = ", ".join(f"{{model: {models}/{n}/model.safetensors}}" for n in ("math", "code"))
    config.write_text(f"merge_method: linear\nmodels: [{files}]\nparameters: {{weight: 1}}\n")
    with pytest.raises(InputError, match="A single file is computed by one machine"):
        resumerge.run(config, tmp_path / "o.safetensors", state_dir=tmp_path / "s", ray="local")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("num_gpus=1", {"num_gpus": 1}),
        ("num_gpus=0.5, fast_disk=2", {"num_gpus": 0.5, "fast_disk": 2}),
        ('{"accelerator_type": "A100"}', {"accelerator_type": "A100"}),
        ("accelerator_type=4090", {"accelerator_type": "4090"}),
    ],
)
def test_resources_of_a_task(text: str, read: dict[str, Any]) -> None:
    assert read_task_resources(text) == read
    assert Options(ray="local", ray_resources=text).ray_resources == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "=1", "gpu=", "gpu=-1", "gpu=true", "{", '{"gpu": "x"}', "[]", "CPU=1"),
        *("accelerator_type=", '{"accelerator_type": 4090}', "gpu=" + "[" * 100_000),
        *("num_gpus=1.5", "num_cpus=0.00001", '{"num_gpus": 1e999}', '{"a":' + "[" * 100_000),
    ],
)
def test_what_is_no_resource(text: str) -> None:
    with pytest.raises(ValueError):
        read_task_resources(text)
    with pytest.raises(InputError):
        Options(ray="local", ray_resources=text)
