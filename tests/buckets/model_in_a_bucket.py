"""A model in one file of a bucket, and its listing."""

from __future__ import annotations

from pathlib import Path

from bucket_merges import whole
from served_objects import Objects

from resumerge.buckets.file import BucketFile
from resumerge.buckets.model import BucketModel, bucket_model

ADDRESS, MODEL = "s3://box/m", "model.safetensors"
FILES = whole(1)
DATA = FILES[MODEL]


def listed(address: str = ADDRESS, file: str = "") -> BucketModel:
    return bucket_model(address, file)


def the_file(objects: Objects, home: Path) -> BucketFile:
    found = listed().files[MODEL]
    objects.requests.clear()
    return found


def server_folder(objects: Objects) -> str:
    """Return the name of the server's folder in the cache."""
    return objects.address.removeprefix("http://").replace(":", "_")
