"""Promise: models on the Hub and in buckets are read by ranges, and none of them is stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from compared import changed, compare, drawn, write
from loopback_hub import Hub
from loopback_s3.bucket import Bucket
from loopback_s3.servers import Server, start

from resumerge.errors import InputError, Reason, Resumable

FILES = ("model.safetensors", "config.json", "tokenizer.json")


@pytest.fixture
def models(tmp_path: Path) -> list[Path]:
    base, tokens = drawn(), {"x": 0, "y": 1}
    return [
        write(tmp_path / "base", base, tokens=tokens),
        write(tmp_path / "tuned", changed(base, 1), tokens=tokens),
    ]


@pytest.fixture(scope="module")
def s3() -> Iterator[Server]:
    with start("moto") as server:
        yield server


def without_names(document: dict) -> dict:
    names = [model["model"] for model in document["models"]]
    pairs = [
        {key: value for key, value in found.items() if key != "findings"}
        for found in document["pairs"]
    ]
    assert len(names) == 2
    return {"pairs": pairs, "config": document["config"]}


def test_on_the_hub(hub: Hub, models: list[Path], tmp_path: Path) -> None:
    for folder in models:
        hub.commit(f"org/{folder.name}", {name: (folder / name).read_bytes() for name in FILES})
    found = compare(tmp_path, "org/base", "org/tuned")
    assert without_names(found) == without_names(compare(tmp_path, *models))
    assert found["pairs"][0]["vocabulary"]["same"]
    assert [model["kind"] for model in found["models"]] == ["hub", "hub"]
    assert all(len(model["revision"]) == 40 for model in found["models"])
    assert not [p for p in hub.home.rglob("blobs/*") if p.stat().st_size > 10_000], "not stored"
    with pytest.raises(InputError) as refused:
        compare(tmp_path, "org/base", models[1], offline=True)
    assert "--offline" in str(refused.value)


def test_on_the_hub_though_requests_fail(hub: Hub, models: list[Path], tmp_path: Path) -> None:
    for folder in models:
        hub.commit(f"org/{folder.name}", {name: (folder / name).read_bytes() for name in FILES})
    calm = compare(tmp_path, *models)
    hub.fail("/cdn/", method="GET", status=503, times=2)
    assert without_names(compare(tmp_path, "org/base", "org/tuned")) == without_names(calm)


def test_in_a_bucket(
    s3: Server, models: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.env().items():
        monkeypatch.setenv(name, value)
    bucket = Bucket(s3.env())
    for name in FILES:
        bucket.put(f"tuned/{name}", (models[1] / name).read_bytes())
    found = compare(tmp_path, models[0], f"s3://{bucket.name}/tuned")
    assert without_names(found) == without_names(compare(tmp_path, *models))
    assert [model["kind"] for model in found["models"]] == ["local", "bucket"]


def test_a_stage_of_models_on_the_hub(hub: Hub, models: list[Path], tmp_path: Path) -> None:
    for folder in models:
        hub.commit(f"org/{folder.name}", {name: (folder / name).read_bytes() for name in FILES})
    stage = "name: first\nmerge_method: linear\nparameters: {weight: 0.5}\nmodels: [MODELS]\n---\n"
    result = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: first}]\n"
    found = []
    for named in (["org/base", "org/tuned"], models):
        entries = ", ".join(f"{{model: {name}}}" for name in named)
        (tmp_path / "recipe.yaml").write_text(stage.replace("MODELS", entries) + result)
        found.append(compare(tmp_path, "first", named[0], recipe=tmp_path / "recipe.yaml"))
    assert without_names(found[0]) == without_names(found[1])
    assert not [p for p in hub.home.rglob("blobs/*") if p.stat().st_size > 10_000], "not stored"


def test_without_a_network_a_misspelt_folder_is_told_with_the_nearest(
    models: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(*words: object, **more: object) -> None:
        raise Resumable(Reason.NETWORK, "gone")

    monkeypatch.setattr("resumerge.comparison.models.open_source", answer)
    monkeypatch.chdir(tmp_path.parent)
    name = f"{tmp_path.name}/tund"
    with pytest.raises(Resumable) as stopped:
        compare(tmp_path, name, models[1])
    assert f"If {name} is meant to be a folder" in str(stopped.value)
    assert f"there is {tmp_path.name}/tuned" in str(stopped.value)
