"""Promise: what was found out about a file of the cache holds until the file changes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from resumerge.remote.metadata_cache import DATABASE, MetadataCache

ETAG, OTHER = "a" * 64, "b" * 64


@pytest.fixture
def cache(tmp_path: Path) -> MetadataCache:
    return MetadataCache(tmp_path / "state")


@pytest.fixture
def blob(tmp_path: Path) -> Path:
    (tmp_path / "blob").write_bytes(b"content")
    return tmp_path / "blob"


@pytest.mark.parametrize("intact", [True, False])
def test_a_verdict_is_of_one_content_under_one_etag(
    cache: MetadataCache, blob: Path, tmp_path: Path, intact: bool
) -> None:
    assert cache.verdict(blob, ETAG) is None
    cache.record_verdict(blob, ETAG, intact)
    link = tmp_path / "link"
    link.symlink_to("blob")
    for path in (blob, link):
        assert cache.verdict(path, ETAG) is intact
        assert MetadataCache(tmp_path / "state").verdict(path, ETAG) is intact
    assert cache.verdict(blob, OTHER) is None
    assert cache.verdict(tmp_path / "another", ETAG) is None


def longer(blob: Path) -> None:
    with blob.open("ab") as file:
        file.write(b"?")


def with_its_time_set_back(blob: Path) -> None:
    stat = blob.stat()
    blob.write_bytes(b"CONTENT")
    os.utime(blob, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    while blob.stat().st_ctime_ns == stat.st_ctime_ns:  # some filesystems' clocks tick slowly
        os.utime(blob, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def another(blob: Path) -> None:
    fresh = blob.with_name("fresh")
    fresh.write_bytes(blob.read_bytes())
    fresh.replace(blob)


@pytest.mark.parametrize("change", [longer, with_its_time_set_back, another, Path.unlink])
def test_a_file_that_changed_is_not_known(cache: MetadataCache, blob: Path, change: object) -> None:
    cache.record_verdict(blob, ETAG, True)
    change(blob)  # type: ignore[operator]
    assert cache.verdict(blob, ETAG) is None


def test_a_verdict_that_is_forgotten_is_of_that_file(cache: MetadataCache, blob: Path) -> None:
    other = blob.with_name("other")
    other.write_bytes(b"other")
    for path in (blob, other):
        cache.record_verdict(path, ETAG, True)
    cache.forget_verdict(blob)
    assert (cache.verdict(blob, ETAG), cache.verdict(other, ETAG)) == (None, True)


def test_each_damage_is_recorded_once_and_stays(cache: MetadataCache, blob: Path) -> None:
    cache.record_verdict(blob, ETAG, False)
    cache.record_verdict(blob, ETAG, False)
    [first] = cache.damages(blob, since="")
    cache.record_verdict(blob, ETAG, True)
    assert cache.damages(blob, since="") == [first], "what was computed from it is still wrong"
    cache.record_verdict(blob, ETAG, False)
    found = cache.damages(blob, since="")
    assert found[0] == first and len(found) == 2 and found[1].id > first.id
    assert cache.damages(blob, since=found[1].at)[-1] == found[1]
    assert cache.damages(blob, since="9999") == []
    assert cache.damages(blob.with_name("other"), since="") == []


def test_a_listing_is_of_one_commit(cache: MetadataCache) -> None:
    cache.store_listing("org/a", "1", {"x": (1, ETAG)})
    cache.store_listing("org/a", "2", {"x": (2, OTHER), "y": (0, OTHER)})
    assert cache.listing("org/a", "1") == {"x": (1, ETAG)}
    assert cache.listing("org/a", "2") == {"x": (2, OTHER), "y": (0, OTHER)}
    assert cache.listing("org/b", "1") == {}


def test_headers_and_validators_are_kept_and_deleted_one_by_one(
    cache: MetadataCache, blob: Path
) -> None:
    other = blob.with_name("other")
    for etag, path, value in ((ETAG, blob, "1"), (OTHER, other, "2")):
        cache.store_header(etag, value.encode())
        cache.store_validator(path, value)
    assert (cache.header(ETAG), cache.validator(blob)) == (b"1", "1")
    cache.store_header(ETAG, b"3")
    cache.store_validator(blob, "3")
    assert (cache.header(ETAG), cache.validator(blob)) == (b"3", "3")
    cache.store_header(ETAG, None)
    cache.store_validator(blob, None)
    assert (cache.header(ETAG), cache.validator(blob)) == (None, None)
    assert (cache.header(OTHER), cache.validator(other)) == (b"2", "2")


def test_nothing_is_written_before_something_is_known(tmp_path: Path, blob: Path) -> None:
    cache = MetadataCache(tmp_path / "state")
    assert cache.verdict(blob, ETAG) is None
    assert not (tmp_path / "state").exists()


def test_a_damaged_database_is_made_anew(tmp_path: Path, blob: Path) -> None:
    (tmp_path / DATABASE).write_bytes(b"?" * 5000)
    MetadataCache(tmp_path).record_verdict(blob, ETAG, True)
    assert MetadataCache(tmp_path).verdict(blob, ETAG) is True


def test_where_nothing_can_be_written_it_is_known_for_now(tmp_path: Path, blob: Path) -> None:
    (tmp_path / "state").write_bytes(b"a file in the folder's place")
    cache = MetadataCache(tmp_path / "state")
    cache.record_verdict(blob, ETAG, True)
    assert cache.verdict(blob, ETAG) is True
    cache.close()
    assert cache.verdict(blob, ETAG) is None
