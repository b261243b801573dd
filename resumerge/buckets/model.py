"""The files of a model in a bucket, from the server's listing or a stored one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import xxhash

from resumerge.buckets.address import split_address
from resumerge.buckets.base import Listed
from resumerge.buckets.calls import bucket_call, open_bucket
from resumerge.buckets.content_hash import read_record
from resumerge.buckets.file import BucketFile, bucket_offline_error, model_folder
from resumerge.errors import InputError, refuse
from resumerge.foreign_files import has_odd_part
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.remote.model import RemoteModel

LATEST = "latest"
"""The key of the latest listing in the metadata cache. Other keys are revisions."""


@dataclass(frozen=True)
class BucketModel(RemoteModel):
    """The objects below an address. A bucket has no versions, so the listing is the version."""

    files: Mapping[str, BucketFile]

    kind = "bucket"
    fix_absent = "upload them"

    @property
    def version(self) -> str:
        return self.model

    def offline_error(self, names: list[str]) -> InputError:
        return bucket_offline_error(self.model, self.folder, names)

    def described(self, names: Iterable[str]) -> BucketModel:
        return self

    def pin(self, names: Iterable[str]) -> str:
        """Return a digest of the names, ETags and sizes of these files."""
        return _digest({name: self.files[name] for name in names})

    def remember(self, metadata: MetadataCache, revision: str, file: str) -> None:
        """Store the listing, for use without the network.

        Args:
            metadata: the cache to store the listing in.
            revision: the revision of the source that uses this listing.
            file: the only file that was requested; empty for all.
        """
        sizes_and_etags = {name: (entry.size, entry.etag) for name, entry in self.files.items()}
        for key in (LATEST, revision):
            metadata.store_listing(_listing_name(self.model, file), key, sizes_and_etags)


def bucket_model(model: str, file: str = "") -> BucketModel:
    """List the objects below an address.

    Args:
        model: the model's address in the recipe, without the name of a file.
        file: the only file that is needed; empty for all.

    Raises:
        InputError: the bucket does not exist or denies access, or has no object at this address.
        Resumable: the network failed.
    """
    prefix = split_address(model)[1]
    base_prefix = f"{prefix}/" if prefix else ""

    def found() -> dict[str, Listed]:
        objects = open_bucket(model).list(base_prefix + file)
        objects = {file + suffix: entry for suffix, entry in objects.items()}
        if file and file not in objects:
            objects = open_bucket(model).list(base_prefix)
        return {name: objects[name] for name in ([file] if file in objects else objects)}

    objects = bucket_call(found, model)
    if not objects:
        raise refuse(
            "The bucket has nothing at this address",
            where=model,
            expected="a folder of a model, or a weight file",
            found=f"no object whose key begins with {base_prefix}"
            if base_prefix
            else "an empty bucket",
            fix="check the spelling",
        )
    files = {name: (entry.nbytes, entry.etag) for name, entry in objects.items()}
    return _listed_model(model, files, online=True)


def cached_bucket_model(
    model: str, revision: str | None, metadata: MetadataCache, file: str = ""
) -> BucketModel:
    """Return the model of a stored listing, without the network.

    Args:
        model: the model's address in the recipe, without the name of a file.
        revision: the revision of the source; None for the latest listing.
        metadata: the cache that stores the listing.
        file: the only file that was requested; empty for all.

    Raises:
        InputError: no listing is stored.
    """
    listing = metadata.listing(_listing_name(model, file), revision or LATEST)
    if not listing:
        raise refuse(
            "Offline, and the bucket's listing is not cached",
            where=model,
            expected="a model that was merged or planned before, with the same state folder",
            fix="run once without --offline",
        )
    return _listed_model(model, listing, online=False)


def cached_bucket_files(model: str) -> list[BucketFile]:
    """Return all downloaded files of a model, each in the latest snapshot that contains it."""
    folder = model_folder(model)
    snapshots = sorted((folder / "snapshots").glob("*"), key=lambda path: path.stat().st_mtime)
    downloaded_files = []
    for path in sorted((folder / "blobs").glob("*.json")):
        record = read_record(path)
        if record is None or has_odd_part(record[0]):
            continue
        name, etag, size, _ = record
        files = [BucketFile(model, path.name, name, size, etag, folder) for path in snapshots]
        downloaded_files += [file for file in files if file.is_linked(file.pointer)][-1:]
    return sorted(downloaded_files, key=lambda file: file.name)


def _listed_model(
    model: str, listed: Mapping[str, tuple[int, str]], *, online: bool
) -> BucketModel:
    folder = model_folder(model)
    files = {
        name: BucketFile(model, "", name, size, etag, folder)
        for name, (size, etag) in listed.items()
        if not has_odd_part(name)
    }
    revision = _digest(files)
    files = {name: replace(file, revision=revision) for name, file in files.items()}
    snapshot_path = folder / "snapshots" / revision
    return BucketModel(model, revision, snapshot_path, files, online=online, is_listing=True)


def _digest(files: Mapping[str, BucketFile]) -> str:
    lines = (f"{name}\0{file.etag}\0{file.size}\n" for name, file in sorted(files.items()))
    return xxhash.xxh3_128_hexdigest("".join(lines).encode())


def _listing_name(model: str, file: str) -> str:
    return f"{model}/{file}" if file else model
