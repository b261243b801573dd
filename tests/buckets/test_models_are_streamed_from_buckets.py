"""Promise: with `--stream` a model in a bucket is read by ranges and never stored, gives the same
bytes, and what is fetched is what `plan` says, whatever goes wrong on the way."""

from __future__ import annotations

import io
import signal
from pathlib import Path

import pytest
import torch
from bucket_merges import (
    SMALL_BATCHES,
    Files,
    Place,
    adapter,
    forget,
    interrupt_while_held,
    linear,
    sent,
    shard,
    sharded,
    upload,
    whole,
    write,
)
from loopback_s3 import Bucket, Proxy, Server, before
from merging import merge
from waiting import wait_until

NAMES_A_RUN = ("README.md", "mergekit_config.yml")
PATIENT = "from resumerge.buckets import s3\ns3.IDLE_TIMEOUT = 3600.0"
"""The client would wait for an hour before it repeats a request."""


def of_weights(proxy: Proxy) -> int:
    """Return the number of bytes of weight files that were sent."""
    return sum(count for name, count in sent(proxy).items() if name.endswith(".safetensors"))


def stored(place: Place) -> list[str]:
    """Return the names of the weight files, and of parts of them, in the cache."""
    blobs = (place.folder / "hf").rglob("blobs/*")
    return [path.name for path in blobs if path.stat().st_size > 10_000]


def ties(*models: object) -> str:
    rest = [f"  - {{model: {m}, parameters: {{weight: 0.5, density: 0.4}}}}" for m in models[1:]]
    return "\n".join(["merge_method: ties", f"base_model: {models[0]}", "models:", *rest, ""])


def merged(folder: Path, recipe: str) -> Files:
    """Merge local models by a recipe, and return the files of the output."""
    out = merge(folder.parent, recipe, folder)
    return {path.name: path.read_bytes() for path in out.iterdir() if path.name not in NAMES_A_RUN}


def test_the_same_bytes_as_from_folders(server: Server, tmp_path: Path) -> None:
    """The sources are shards with an adapter, and a single file; failed requests change no byte."""
    bucket = Bucket(server.env())
    models = {"a": sharded(1, numel=90_000), "lora": adapter(2, 90_000), "b": whole(3, 2, 90_000)}
    for name, files in models.items():
        write(tmp_path / "models" / name, files)
        upload(bucket, name, files)

    def recipe(at: object) -> str:
        return linear(f"{at}/a+{at}/lora", f"{at}/b")

    calm = merged(tmp_path / "calm", recipe(tmp_path / "models"))
    with before(server.endpoint) as proxy:
        place = Place(server, tmp_path / "place", recipe(f"s3://{bucket.name}"), proxy)
        plan = place.document("plan", "merge.yaml", "--stream")
        assert plan["problems"] == [] == plan["notes"]
        forget(proxy)
        place.call("run", "merge.yaml", "out", "--stream")
        assert of_weights(proxy) == plan["download"]["streamed_bytes"] == plan["download"]["bytes"]
        assert sum(s["streamed_bytes"] for s in plan["sources"]) == plan["download"]["bytes"]
        assert stored(place) == [] and place.output() == calm
        [event] = place.events("streamed")
        assert event["bytes"] == of_weights(proxy)
        proxy.shake(seed=1, share=0.15)
        place.call("run", "merge.yaml", "again", "--stream")
    assert place.output("again") == calm and sum(proxy.wrong.values()) > 0


def test_what_a_method_reads_again_is_fetched_again(
    s3: Server, bucket: Bucket, proxy: Proxy, tmp_path: Path
) -> None:
    """`plan` states the bytes of streaming, and notes that downloads have fewer.

    A tensor of one block is fetched once.
    """
    models = [whole(seed, layers=2, numel=600_000) for seed in (1, 2, 3)]
    here = [write(tmp_path / str(n), files) for n, files in enumerate(models)]
    there = [upload(bucket, str(n), files) for n, files in enumerate(models)]
    place = Place(s3, tmp_path / "place", ties(*there), proxy)
    plan = place.document("plan", "merge.yaml", "--stream")
    expected, needed = plan["download"]["bytes"], sum(s["bytes_needed"] for s in plan["sources"])
    large = 3 * 2 * 600_000 * 4
    assert needed - large + 2 * large < expected < needed - large + 2.1 * large
    [note] = plan["notes"]
    assert "read several times" in note and "without --stream less is fetched" in note
    forget(proxy)
    place.call("run", "merge.yaml", "out", "--stream")
    assert of_weights(proxy) == expected
    assert place.output() == merged(tmp_path / "calm", ties(*here))


def test_killed_again_and_again(s3: Server, bucket: Bucket, proxy: Proxy, tmp_path: Path) -> None:
    """A resumed run streams even if its command does not have `--stream`."""
    files = sharded(1, layers=8, numel=250_000)
    place = Place(s3, tmp_path / "place", linear(upload(bucket, "m", files)), proxy)
    place.document("plan", "merge.yaml")
    for kill in range(1, 4):
        proxy.hold("GET", shard(2 * kill + 1, 8))
        words = ("run", "merge.yaml", "out", "--stream") if kill == 1 else ("resume", "out")
        process = place.start(*words, before=SMALL_BATCHES)
        wait_until(lambda kill=kill: place.committed() >= 4 * kill, process)
        process.send_signal(signal.SIGKILL)
        process.wait()
    proxy.choose = lambda method, path: None
    place.call("resume", "out")
    assert stored(place) == []
    assert place.output() == merged(tmp_path / "calm", linear(write(tmp_path / "m", files)))


def test_a_signal_does_not_wait_for_a_server(
    s3: Server, bucket: Bucket, proxy: Proxy, tmp_path: Path
) -> None:
    files = sharded(1, layers=3, numel=500_000)
    place = Place(s3, tmp_path / "place", linear(upload(bucket, "m", files)), proxy)
    place.document("plan", "merge.yaml")
    proxy.allowance.give(100_000)
    process = place.start("run", "merge.yaml", "out", "--stream", before=PATIENT)
    wait_until(proxy.allowance.is_spent, process)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate()
    assert process.returncode == 130, told
    proxy.allowance.give(None)
    place.call("resume", "out")
    assert place.output() == merged(tmp_path / "calm", linear(write(tmp_path / "m", files)))


@pytest.mark.parametrize("part", ["list-type", "config.json", "model.safetensors"])
def test_a_signal_does_not_wait_for_what_a_plan_needs(
    part: str, s3: Server, bucket: Bucket, proxy: Proxy, tmp_path: Path
) -> None:
    """The library repeats a request that was interrupted by an error."""
    place = Place(s3, tmp_path / "place", linear(upload(bucket, "m", whole(1))), proxy)
    interrupt_while_held(place, proxy, part, before=PATIENT)
    assert proxy.wrong["held"] == 1


def test_an_object_that_changes_is_told(
    s3: Server, bucket: Bucket, proxy: Proxy, tmp_path: Path
) -> None:
    files, last = sharded(1, layers=4, numel=100_000), shard(4, 4)
    other = sharded(2, layers=4, numel=100_000)[last]
    place = Place(s3, tmp_path / "place", linear(upload(bucket, "m", files)), proxy)
    place.document("plan", "merge.yaml")
    left = [last]

    def change(method: str, path: str) -> None:
        if method == "GET" and left and shard(2, 4) in path:
            bucket.put(f"m/{left.pop()}", other)

    proxy.choose = change
    told = place.call("run", "merge.yaml", "out", "--stream", expect=75).stderr
    assert f"m/{last} changed" in told and "Nothing of the new content was used" in told
    told = place.call("resume", "out", expect=2).stderr
    assert "A source has changed since the run was created" in told
    bucket.put(f"m/{last}", files[last])
    place.call("resume", "out")
    assert place.output() == merged(tmp_path / "calm", linear(write(tmp_path / "m", files)))


def test_a_server_that_is_away_stops_the_run_for_now(
    s3: Server, bucket: Bucket, proxy: Proxy, tmp_path: Path
) -> None:
    """The run can be resumed without streaming.

    The `--evict` of one attempt holds for the next ones.
    """
    files = sharded(1, layers=4, numel=100_000)
    place = Place(s3, tmp_path / "place", linear(upload(bucket, "m", files)), proxy)
    place.document("plan", "merge.yaml")
    proxy.choose = lambda method, path: "403" if shard(3, 4) in path else None
    forget(proxy)
    told = place.call("run", "merge.yaml", "out", "--stream", expect=75).stderr
    assert "HTTP 403" in told and "resumerge resume" in told
    fetched = of_weights(proxy)
    told = place.call("resume", "out", "--evict", expect=75).stderr
    assert told.splitlines()[-1].endswith("state"), "what the ledger keeps is not repeated"
    proxy.choose = lambda method, path: None
    place.call("resume", "out")
    [streamed] = place.events("streamed")
    # Of the attempt that was stopped; nothing may have come before its error.
    assert streamed["bytes"] <= fetched
    assert stored(place) == []
    assert place.output() == merged(tmp_path / "calm", linear(write(tmp_path / "m", files)))


def test_a_run_may_stream_or_not_from_one_attempt_to_the_next(
    s3: Server, bucket: Bucket, proxy: Proxy, tmp_path: Path
) -> None:
    """A cached file is read from the cache."""
    files = sharded(1, layers=4, numel=100_000)
    place = Place(s3, tmp_path / "place", linear(upload(bucket, "m", files)), proxy)
    proxy.choose = lambda method, path: "403" if shard(3, 4) in path else None
    place.document("plan", "merge.yaml", "--stream", expect=2)
    proxy.choose = lambda method, path: None
    place.document("plan", "merge.yaml")
    proxy.choose = lambda method, path: "403" if shard(3, 4) in path else None
    place.call("run", "merge.yaml", "out", expect=75)
    there = {path.name for path in (place.folder / "hf").rglob("*-of-00004.safetensors")}
    assert shard(1, 4) in there and shard(3, 4) not in there
    proxy.choose = lambda method, path: None
    forget(proxy)
    place.call("resume", "out", "--stream")
    assert shard(1, 4) not in sent(proxy) and sent(proxy)[shard(3, 4)] > 0
    assert {path.name for path in (place.folder / "hf").rglob("*-of-00004.safetensors")} == there
    assert place.output() == merged(tmp_path / "calm", linear(write(tmp_path / "m", files)))
    place.call("run", "merge.yaml", "cached", "--evict")
    assert place.output("cached") == place.output()


def test_what_cannot_be_streamed_is_a_problem(s3: Server, bucket: Bucket, tmp_path: Path) -> None:
    config = {"config.json": whole(1)["config.json"]}
    data = io.BytesIO()
    torch.save({"model.layers.0.a.weight": torch.zeros(3, 4).T}, data)
    address = upload(bucket, "m", {**config, "pytorch_model.bin": data.getvalue()})
    place = Place(s3, tmp_path / "place", linear(address))
    told = place.call("run", "merge.yaml", "out", "--stream", expect=2).stderr
    assert "A file cannot be read by ranges" in told and "pytorch_model.bin" in told
    assert not (place.folder / "out").exists()
    place.call("run", "merge.yaml", "out")
    (place.folder / "local.yaml").write_text(linear(write(tmp_path / "m", whole(1))))
    plan = place.document("plan", "local.yaml", "--stream")
    assert plan["notes"] == ["--stream has no effect: every model is on this disk already"]
    for other in ("--evict", "--offline"):
        told = place.call("run", "merge.yaml", "no", "--stream", other, expect=2).stderr
        assert f"--stream and {other}" in told
