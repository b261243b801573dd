"""The real `hf`, except that the bucket to which it uploads files is a folder: that needs no Xet.

Usage: python submit.py FOLDER jobs uv run …
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from huggingface_hub import HfApi
from huggingface_hub.cli.hf import main

BUCKET = Path(sys.argv.pop(1))


def create_bucket(self: HfApi, bucket_id: str, **more: Any) -> SimpleNamespace:
    return SimpleNamespace(url=f"https://hub.example/buckets/{bucket_id}")


def batch_bucket_files(
    self: HfApi, bucket_id: str, *, add: list[tuple[Path, str]], **more: Any
) -> None:
    for source, name in add:
        place = BUCKET / bucket_id / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, place)


HfApi.create_bucket = create_bucket  # type: ignore[assignment]
HfApi.batch_bucket_files = batch_bucket_files  # type: ignore[assignment]
main()
