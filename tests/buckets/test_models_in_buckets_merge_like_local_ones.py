"""Promise: a model in a bucket is a source like any other, and only what is needed is fetched."""

from __future__ import annotations

import io
from pathlib import Path

from bucket_merges import (
    Place,
    adapter,
    forget,
    linear,
    sent,
    shard,
    sharded,
    upload,
    whole,
    write,
)
from loopback_s3 import Bucket, Proxy, Server, before


def test_the_same_bytes_as_from_folders(server: Server, tmp_path: Path) -> None:
    """The sources are a folder, shards with an adapter, and a single file; requests fail."""
    bucket = Bucket(server.env())
    models = {"base": sharded(1), "a": sharded(2), "lora": adapter(3), "b": whole(4)}
    for name, files in models.items():
        write(tmp_path / "models" / name, files)
    upload(bucket, "deep/er/a", models["a"])
    upload(bucket, "lora", models["lora"])
    upload(bucket, "deep/b", {**models["b"], "other.safetensors": b"no model"})
    at, here = f"s3://{bucket.name}", tmp_path / "models"
    here_recipe = linear(here / "base", f"{here}/a+{here}/lora", here / "b" / "model.safetensors")
    there = (f"{at}/deep/er/a/+{at}/lora", f"{at}/deep/b/model.safetensors")
    calm = Place(server, tmp_path / "calm", here_recipe)
    calm.call("run", "merge.yaml", "out")
    with before(server.endpoint) as proxy:
        place = Place(server, tmp_path / "place", linear(here / "base", *there), proxy)
        plan = place.document("plan", "merge.yaml")
        assert [source["kind"] for source in plan["sources"]] == ["local", "lora", "bucket"]
        assert [source["model"] for source in plan["sources"]] == [str(here / "base"), *there]
        assert "other.safetensors" not in sent(proxy)
        proxy.shake(seed=1, share=0.15)
        place.call("run", "merge.yaml", "out")
        place.call("verify", "out")
    assert place.output() == calm.output()
    assert len(place.output()) > 3
    card = (place.folder / "out" / "README.md").read_text()
    assert f"`{at}/deep/b/model.safetensors`" in card


def test_only_the_files_that_are_read_are_fetched(
    s3: Server, bucket: Bucket, proxy: Proxy, tmp_path: Path
) -> None:
    files = sharded(1, layers=6, numel=20_000)
    more = {"pytorch_model.bin": b"x" * 5000, "optimizer.pt": b"y", "README.md": b"z"}
    address = upload(bucket, "m", {**files, **more, "checkpoint-1/model.safetensors": b"old"})
    recipe = f"""
merge_method: passthrough
slices:
  - sources: [{{model: {address}, layer_range: [0, 1]}}]
  - sources: [{{model: {address}, layer_range: [4, 5]}}]
"""
    place = Place(s3, tmp_path / "place", recipe, proxy)
    plan = place.document("plan", "merge.yaml")
    needed = [shard(1, 6), shard(5, 6)]
    whole_bytes = sum(len(files[name]) for name in needed)
    assert plan["download"] | {"files": 2, "bytes": whole_bytes} == plan["download"]
    headers = [name for name in sent(proxy) if name.endswith("-of-00006.safetensors")]
    assert len(headers) == 6 and sum(sent(proxy).values()) < 6 * 40_000, "headers by ranges"
    forget(proxy)
    place.call("run", "merge.yaml", "out")
    found = sent(proxy)
    assert {name: found[name] for name in needed} == {n: len(files[n]) for n in needed}
    assert set(found) - set(needed) <= {"tokenizer.json", "tokenizer_config.json"}
    forget(proxy)
    place.call("run", "merge.yaml", "again")
    assert sent(proxy) == {}, "all is in the cache, headers too"
    assert place.output("again") == place.output()


def test_nothing_is_asked_for_offline(
    s3: Server, bucket: Bucket, proxy: Proxy, tmp_path: Path
) -> None:
    address = upload(bucket, "m", sharded(1))
    place = Place(s3, tmp_path / "place", linear(address), proxy)
    told = place.call("run", "merge.yaml", "out", "--offline", expect=2).stderr
    assert "the bucket's listing is not cached" in told and "line 3" in told
    place.call("plan", "merge.yaml")
    told = place.call("run", "merge.yaml", "out", "--offline", expect=2).stderr
    assert f"missing: {shard(1, 2)}, {shard(2, 2)}" in told
    place.call("run", "merge.yaml", "out")
    forget(proxy)
    place.call("run", "merge.yaml", "again", "--offline")
    assert place.output("again") == place.output()
    assert proxy.requests == []


def test_the_vocabulary_of_a_model_in_a_bucket(s3: Server, bucket: Bucket, tmp_path: Path) -> None:
    """The tokenizer and the generation config of the base model are copied from the bucket."""
    base, other = sharded(1), whole(2)
    address = upload(bucket, "base", base | {"generation_config.json": b'{"eos_token_id": 1}'})
    local = write(tmp_path / "other", other)
    recipe = f"""
merge_method: task_arithmetic
base_model: {address}
models: [{{model: {local}, parameters: {{weight: 0.5}}}}]
"""
    place = Place(s3, tmp_path / "place", recipe)
    place.call("run", "merge.yaml", "out")
    assert place.output()["tokenizer_config.json"] == base["tokenizer_config.json"]
    assert "generation_config.json" in place.output()


def test_a_large_object_is_compared_part_by_part(server: Server, tmp_path: Path) -> None:
    """The ETag of an object of parts is the MD5 of the parts' MD5s, and is compared on arrival."""
    from boto3.s3.transfer import TransferConfig

    bucket = Bucket(server.env())
    files = whole(1, numel=1_600_000)
    address = upload(bucket, "m", {"config.json": files["config.json"]})
    parts = TransferConfig(multipart_threshold=1, multipart_chunksize=5 << 20)
    data = io.BytesIO(files["model.safetensors"])
    bucket.api.upload_fileobj(data, bucket.name, "m/model.safetensors", Config=parts)
    etag = bucket.api.head_object(Bucket=bucket.name, Key="m/model.safetensors")["ETag"]
    assert etag.strip('"').endswith("-3")
    place = Place(server, tmp_path / "place", linear(address))
    place.call("run", "merge.yaml", "out")
    calm = Place(server, tmp_path / "calm", linear(write(tmp_path / "m", files)))
    calm.call("run", "merge.yaml", "out")
    assert place.output() == calm.output()
